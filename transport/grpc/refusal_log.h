// SPDX-License-Identifier: Apache-2.0
// The log of calls and connections that were refused, for whoever asks why a client gets nothing,
// or who has tried to get in.
#ifndef TRANSPORT_GRPC_REFUSAL_LOG_H_
#define TRANSPORT_GRPC_REFUSAL_LOG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/calls/line_budget.h"
#include "millrace/status.h"

namespace millrace {

// A line for each, as long as there are not many: strangers must not fill a disk. What had no line
// is counted, and the next one says how many. Thread-safe.
class RefusalLog {
 public:
  // Lines at once; each comes back after kPerLine.
  static constexpr int kMostLines = 20;
  static constexpr std::chrono::seconds kPerLine{5};

  // A call of `method`, whose error has the name `request_id`. `who` (its address, and what its
  // certificate says) is asked for if there is a line; `why` is the rule.
  void Call(const std::function<std::string()>& who, std::string_view method, int64_t request_id,
            const Status& why);
  // A connection that did not come about.
  void Connection(std::string_view who, std::string_view why);

 private:
  // False if there is no line for it; else what to put at its end.
  bool Take(std::string* end);

  LineBudget budget_{kMostLines, /*back=*/1, kPerLine};
};

// Of all servers of this process: they have one log.
RefusalLog& Refusals();

// What gRPC says of a handshake that failed, which it tells nobody else: a line, if it is that.
// Known are the addresses of connections that were begun a moment ago, one of which it is.
void NoteHandshake(std::string_view message_of_grpc);
// A connection on which a handshake begins.
void NoteConnection(std::string who);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_REFUSAL_LOG_H_
