// What the master tells the client of a step that failed in one or several tasks.
#ifndef MASTER_STEP_ERRORS_H_
#define MASTER_STEP_ERRORS_H_

#include <span>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

struct TaskError {
  std::string_view task;  // "/job:J/replica:R/task:T"
  Status status;          // not OK
};

// One status for errors in order of arrival, OK for none. Derived errors count only if there
// is no other; then the first one stands. A single root keeps its code and payloads and says
// "From <task>:\n<message>"; several different ones are listed under the code and payloads of
// the first. Of several Unavailable ones the first stands for all. The text ends after 16 MiB.
Status SummarizeErrors(std::span<const TaskError> errors);

// What a task said at the deadline that its part of the step was waiting for.
struct TaskWaits {
  std::string_view task;
  std::string text;  // "": nothing
};

// DeadlineExceeded for a step that was cancelled by its deadline, with what its parts said they
// were waiting for, those first that did not wait for others, with a node; and with their errors.
Status SummarizeTimeout(std::string_view reason, std::span<const TaskError> errors,
                        std::span<const TaskWaits> waits = {});

}  // namespace millrace

#endif  // MASTER_STEP_ERRORS_H_
