// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/refusal_log.h"

#include <chrono>
#include <deque>
#include <utility>

#include "base/calls/line_budget.h"
#include "base/calls/request_text.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// As long as a handshake may take.
constexpr std::chrono::seconds kHandshake{5};
constexpr std::size_t kMostBegun = 64, kMostNamed = 4;

struct Begun {
  Clock::time_point at;
  std::string who;
};

struct Connections {
  Mutex mu;
  std::deque<Begun> begun ABSL_GUARDED_BY(mu);  // the oldest first
};

Connections& TheConnections() {
  static auto* const connections = new Connections;
  return *connections;
}

}  // namespace

bool RefusalLog::Take(std::string* end) {
  int64_t left_out = 0;
  if (!budget_.Take(&left_out)) return false;
  if (left_out > 0) *end = StrCat(" (", left_out, " refusals before it were not logged)");
  return true;
}

void RefusalLog::Call(const std::function<std::string()>& who, std::string_view method,
                      int64_t request_id, const Status& why) {
  std::string end;
  if (!Take(&end)) return;
  const LogRequest named(request_id);
  MR_LOG(kWarning, "refused a call of ", InOneLine(method, 200), " by ", InOneLine(who(), 400),
         RequestText(request_id), ": ", StatusCodeName(why.code()), ": ",
         InOneLine(Message(why), 1000), end);
}

void RefusalLog::Connection(std::string_view who, std::string_view why) {
  std::string end;
  if (!Take(&end)) return;
  MR_LOG(kWarning, "refused a connection of ", InOneLine(who, 400), ": ", InOneLine(why, 1000),
         end);
}

RefusalLog& Refusals() {
  static auto* const log = new RefusalLog;
  return *log;
}

void NoteConnection(std::string who) {
  Connections& all = TheConnections();
  MutexLock lock(&all.mu);
  all.begun.push_back({Clock::now(), std::move(who)});
  if (all.begun.size() > kMostBegun) all.begun.pop_front();
}

void NoteHandshake(std::string_view message) {
  constexpr std::string_view kBegin = "Handshake failed with fatal error ";
  const std::size_t at = message.find(kBegin);
  if (at == std::string_view::npos) return;
  std::string who;
  {
    Connections& all = TheConnections();
    MutexLock lock(&all.mu);
    const auto since = Clock::now() - kHandshake;
    std::size_t named = 0;
    for (auto it = all.begun.rbegin(); it != all.begun.rend() && it->at >= since; ++it) {
      if (++named > kMostNamed) {
        who += " or others";
        break;
      }
      StrAppend(&who, who.empty() ? "" : " or ", it->who);
    }
  }
  // At the end that called nobody was taken: the error of the call says why.
  if (who.empty()) return;
  std::string_view reason = message.substr(at + kBegin.size());
  if (const std::size_t text = reason.find(": "); text != std::string_view::npos) {
    reason.remove_prefix(text + 2);
  }
  Refusals().Connection(
      who, StrCat("its TLS handshake failed (", reason,
                  "): the certificate that it has shown, if any, must be signed by an authority "
                  "in --tls_ca, and be good at this time"));
}

}  // namespace millrace
