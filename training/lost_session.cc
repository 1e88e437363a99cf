// SPDX-License-Identifier: Apache-2.0
#include "training/lost_session.h"

#include <algorithm>

#include "base/errors.h"

namespace millrace {

bool SessionIsLost(const Status& status) {
  return errors::IsAborted(status) || errors::IsUnavailable(status) ||
         status.GetPayload(kWorkerRestartedPayload).has_value();
}

std::chrono::milliseconds RecoveryBackOff(int in_a_row) {
  constexpr std::chrono::milliseconds kFirst{100}, kLongest{5'000};
  return std::min(kFirst * (1 << std::clamp(in_a_row - 1, 0, 10)), kLongest);
}

}  // namespace millrace
