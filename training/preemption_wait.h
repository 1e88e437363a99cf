// SPDX-License-Identifier: Apache-2.0
// Waiting that ends when the process is to end.
#ifndef TRAINING_PREEMPTION_WAIT_H_
#define TRAINING_PREEMPTION_WAIT_H_

#include <chrono>

#include "millrace/status.h"

namespace millrace {

// Sleeps for `time`. Cancelled, soon, after a notice of millrace/preemption.h, also an earlier one.
Status SleepUnlessPreempted(std::chrono::milliseconds time);

}  // namespace millrace

#endif  // TRAINING_PREEMPTION_WAIT_H_
