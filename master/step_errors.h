// SPDX-License-Identifier: Apache-2.0
// What the master tells the client of a step that failed in one or several tasks.
#ifndef MASTER_STEP_ERRORS_H_
#define MASTER_STEP_ERRORS_H_

#include <span>
#include <string>
#include <string_view>

#include "millrace/status.h"
#include "proto/waits.pb.h"
#include "session/worker_cache.h"

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

// DeadlineExceeded for a step that was cancelled by its deadline, with the first of what its tasks
// said they were waiting for, and with their errors. What follows from others is left out of a task
// that said something. More of the report is in the status' payload (session/wait_report.h).
Status SummarizeTimeout(std::string_view reason, std::span<const TaskError> errors,
                        const pb::WaitReport& report = {});

// Of an error that is about tasks being late, gone or new: with "TASK is at h:p" for those that it
// names, 16 at most, where it does not say so itself. `workers` may be null.
Status TellAddresses(const WorkerCache* workers, Status status);

}  // namespace millrace

#endif  // MASTER_STEP_ERRORS_H_
