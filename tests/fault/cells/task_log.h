// SPDX-License-Identifier: Apache-2.0
// What a task of a cell has told.
#ifndef TESTS_FAULT_CELLS_TASK_LOG_H_
#define TESTS_FAULT_CELLS_TASK_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::testing {

// A line of a Reporter.
struct Event {
  std::string kind;
  double at = 0, took = 0;  // seconds
  int64_t step = 0;
  double loss = 0;
  std::string code, text;

  bool is_error() const { return kind == "error" || kind == "step_error"; }
};

double NowSeconds();  // as in Event::at

// The whole lines of a file that are events.
std::vector<Event> ReadEvents(const std::string& file);
// Of those from `since` on.
int CountSteps(const std::vector<Event>& events, double since);
std::vector<Event> ErrorsBetween(const std::vector<Event>& events, double since, double until);
// Steps that ended in it, and errors: how long was waited at most.
double LongestWait(const std::vector<Event>& events, double since, double until);

// The text of the file's other lines, the last 4 kB.
std::string OtherLines(const std::string& file);

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_TASK_LOG_H_
