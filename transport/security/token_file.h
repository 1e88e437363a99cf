// SPDX-License-Identifier: Apache-2.0
// A file with the token of a cluster, which may be replaced while the process runs.
#ifndef TRANSPORT_SECURITY_TOKEN_FILE_H_
#define TRANSPORT_SECURITY_TOKEN_FILE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "millrace/status.h"

namespace millrace {

// The processes of a cluster do not see a new token at the same moment: the one before it is taken
// for two intervals more, and an unknown one is a reason to look at the file at once, though not
// more often than each second. A file that cannot be used is logged, and changes nothing.
// Thread-safe.
class TokenFile {
 public:
  // As ReadTokenFile. The file is read again, by whoever asks, when so much time has passed.
  static StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path,
                                                   std::chrono::nanoseconds interval);
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  // What to show to others.
  std::string Current();
  // Whether another one may be let in with `text`. Takes as long for any two texts of a size.
  bool Matches(std::string_view text);

 private:
  TokenFile(std::string path, std::chrono::nanoseconds interval, std::string token)
      : path_(std::move(path)), interval_(interval.count()), token_(std::move(token)) {}

  // Unless the file was read within so many nanoseconds.
  void ReadAgain(int64_t after) ABSL_LOCKS_EXCLUDED(mu_);
  bool Knows(std::string_view text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const int64_t interval_;        // ns
  std::atomic<int64_t> read_at_;  // by SteadyNanos
  Mutex mu_;
  std::string token_ ABSL_GUARDED_BY(mu_);
  std::string former_ ABSL_GUARDED_BY(mu_);  // "": none
  int64_t former_until_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_bad_ ABSL_GUARDED_BY(mu_) = false;  // the file, when it was read last
};

}  // namespace millrace

#endif  // TRANSPORT_SECURITY_TOKEN_FILE_H_
