// SPDX-License-Identifier: Apache-2.0
// Which errors another session may cure, and when it is made.
#ifndef TRAINING_LOST_SESSION_H_
#define TRAINING_LOST_SESSION_H_

#include <chrono>

#include "millrace/status.h"

namespace millrace {

// A task is gone, silent, new or has dropped the session: another session may work.
bool SessionIsLost(const Status& status);

// The pause before a session is made anew although the last `in_a_row` (1, 2, ...) have not seen a
// step end: twice as long each time, at most 5 s.
std::chrono::milliseconds RecoveryBackOff(int in_a_row);

}  // namespace millrace

#endif  // TRAINING_LOST_SESSION_H_
