// SPDX-License-Identifier: Apache-2.0
// One task of the training cluster: a parameter server or a worker.
#ifndef EXAMPLES_MNIST_TASK_H_
#define EXAMPLES_MNIST_TASK_H_

#include "examples/mnist/flags.h"
#include "millrace/digits.h"
#include "millrace/status.h"

namespace millrace::mnist {

// Serves until the chief says that the job is done: OK. Cancelled if a signal asks to stop before.
Status RunParameterServer(const Flags& flags);

// Trains, evaluates, and, as the chief, ends the job.
Status RunWorker(const Flags& flags);

// Restores the checkpoints of --checkpoint_dir as they appear (--evaluate) and says how good they
// are; until that of --train_steps, or a signal: then the newest that is there is the last, and it
// ends with Cancelled unless that was the one of --train_steps.
Status RunEvaluator(const Flags& flags);

// Those of --data_dir, or synthetic ones.
StatusOr<Digits> DigitsOf(const Flags& flags);

// From now on SIGINT and SIGTERM ask the task to stop; a task that has not ended some seconds
// later is ended.
void StopOnSignals();
// The signal that asked to stop, 0 if none did.
int StopSignal();

// What a worker reports to the launcher through --progress_fd, one line each:
//   "step <local step> <global step> <loss per example>"
//   "result <seconds> <steps> <validation cross entropy> <validation size> <test accuracy>"
inline constexpr char kStepRecord[] = "step";
inline constexpr char kResultRecord[] = "result";

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_TASK_H_
