// SPDX-License-Identifier: Apache-2.0
// What keeps others from filling a log: a budget of lines, and texts of theirs in one line.
#ifndef BASE_CALLS_LINE_BUDGET_H_
#define BASE_CALLS_LINE_BUDGET_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace millrace {

// `most` lines at once; `back` of them come back after each `period`. Thread-safe.
class LineBudget {
 public:
  LineBudget(int most, int back, std::chrono::nanoseconds period)
      : most_(most), back_(back), period_(period), lines_(most) {}

  // Whether there is a line; then `left_out` is how many had none since the last one.
  bool Take(int64_t* left_out);

 private:
  const int most_, back_;
  const std::chrono::nanoseconds period_;
  Mutex mu_;
  int64_t lines_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point since_ ABSL_GUARDED_BY(mu_);  // lines_ is of
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

// The first `most` bytes of what others have sent: in one line, and with nothing that a terminal
// takes for a command.
std::string InOneLine(std::string_view text, std::size_t most);

}  // namespace millrace

#endif  // BASE_CALLS_LINE_BUDGET_H_
