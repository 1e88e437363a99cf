// SPDX-License-Identifier: Apache-2.0
// Whether a step that failed may have had its effects all the same.
#ifndef BASE_CALLS_MAYBE_APPLIED_H_
#define BASE_CALLS_MAYBE_APPLIED_H_

#include "base/errors.h"

namespace millrace {

// On an error after which a caller may be inclined to try again (Cancelled, DeadlineExceeded,
// Unavailable, Aborted): some task had begun the step, or it is not known that none had, so that
// its variables may have been updated. Without it nothing of the step was begun.
inline constexpr char kMaybeAppliedPayload[] = "type.googleapis.com/millrace.MaybeApplied";

inline Status MarkMaybeApplied(Status status) {
  if (errors::IsCancelled(status) || errors::IsDeadlineExceeded(status) ||
      errors::IsUnavailable(status) || errors::IsAborted(status)) {
    status.SetPayload(kMaybeAppliedPayload, "");
  }
  return status;
}

inline bool IsMaybeApplied(const Status& status) {
  return status.GetPayload(kMaybeAppliedPayload).has_value();
}

}  // namespace millrace

#endif  // BASE_CALLS_MAYBE_APPLIED_H_
