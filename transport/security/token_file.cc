// SPDX-License-Identifier: Apache-2.0
#include "transport/security/token_file.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

// Strangers do not make the file be read all the time.
constexpr int64_t kLeastInterval = 1'000'000'000;  // ns

}  // namespace

StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                     std::chrono::nanoseconds interval) {
  MR_ASSIGN_OR_RETURN(std::string token, ReadTokenFile(path));
  std::unique_ptr<TokenFile> made(new TokenFile(path, interval, std::move(token)));
  made->read_at_.store(SteadyNanos(), std::memory_order_relaxed);
  return made;
}

void TokenFile::ReadAgain(int64_t after) {
  const int64_t now = SteadyNanos();
  int64_t read_at = read_at_.load(std::memory_order_relaxed);
  if (now - read_at < after) return;
  // One of those who ask reads.
  if (!read_at_.compare_exchange_strong(read_at, now, std::memory_order_relaxed)) return;
  StatusOr<std::string> token = ReadTokenFile(path_);
  MutexLock lock(&mu_);
  if (!token.ok()) {
    if (!std::exchange(is_bad_, true)) {
      MR_LOG(kError, "the token stays as it was: ", Message(token.status()));
    }
    return;
  }
  is_bad_ = false;
  if (*token == token_) return;
  former_ = std::exchange(token_, *std::move(token));
  former_until_ = now + 2 * std::max(interval_, kLeastInterval);
  MR_LOG(kInfo, "a new token was read from ", path_);
}

std::string TokenFile::Current() {
  ReadAgain(interval_);
  MutexLock lock(&mu_);
  return token_;
}

bool TokenFile::Knows(std::string_view text) const {
  const bool is_current = SameSecret(text, token_);
  const bool is_former = !former_.empty() && SameSecret(text, former_);
  return is_current || (is_former && SteadyNanos() < former_until_);
}

bool TokenFile::Matches(std::string_view text) {
  ReadAgain(interval_);
  {
    MutexLock lock(&mu_);
    if (Knows(text)) return true;
  }
  ReadAgain(kLeastInterval);
  MutexLock lock(&mu_);
  return Knows(text);
}

}  // namespace millrace
