// SPDX-License-Identifier: Apache-2.0
// The limits of a call: to a task, a worker or a master, in this process or another.
#ifndef BASE_CALLS_CALL_OPTIONS_H_
#define BASE_CALLS_CALL_OPTIONS_H_

#include "base/cancellation.h"
#include "base/notification.h"

namespace millrace {

struct CallOptions {
  Deadline deadline = kNoDeadline;
  CancellationManager* cancellation = nullptr;  // cancelling it cancels the call
};

}  // namespace millrace

#endif  // BASE_CALLS_CALL_OPTIONS_H_
