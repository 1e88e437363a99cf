// SPDX-License-Identifier: Apache-2.0
#include "training/preemption_wait.h"

#include "base/notification.h"
#include "base/preemption/on_preemption.h"
#include "base/status_macros.h"
#include "millrace/preemption.h"

namespace millrace {

Status SleepUnlessPreempted(std::chrono::milliseconds time) {
  MR_RETURN_IF_ERROR(CheckPreemption());
  if (time.count() <= 0) return OkStatus();
  Notification noticed;
  const OnPreemption wake([&] { noticed.Notify(); });
  (void)noticed.WaitUntil(DeadlineAfter(time));
  return CheckPreemption();
}

}  // namespace millrace
