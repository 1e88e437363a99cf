// SPDX-License-Identifier: Apache-2.0
// The log of steps and calls that failed, for whoever looks for the one that a client speaks of.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_FAILED_STEPS_H_
#define DISTRIBUTED_RUNTIME_SERVICE_FAILED_STEPS_H_

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/calls/line_budget.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe.
class FailedSteps {
 public:
  // Lines a second, so that clients cannot fill a disk.
  static constexpr int kMostLines = 20;

  // A line with the request's id, as the client has it in its error; none for the end of data and
  // for what a client has cancelled. Beyond kMostLines steps are only counted, and the next line
  // says how many. `of` is what the method was called for: "session HANDLE"; `by` who called, if
  // that is worth a word.
  void Log(std::string_view method, std::string_view of, int64_t request_id, const Status& why,
           std::string_view by = {});

 private:
  LineBudget budget_{kMostLines, kMostLines, std::chrono::seconds(1)};
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_FAILED_STEPS_H_
