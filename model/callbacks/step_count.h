// SPDX-License-Identifier: Apache-2.0
// When callbacks are due that act every so many steps.
#ifndef MODEL_CALLBACKS_STEP_COUNT_H_
#define MODEL_CALLBACKS_STEP_COUNT_H_

#include <cstdint>

namespace millrace::model {

// Counts the steps that have been made since `*last` of an epoch, where the numbers of batches that
// come may leave some out (steps_per_execution); true, and the count is 0 again, when there are
// `every` or more.
inline bool IsDueAfter(int64_t batch, int64_t every, int64_t* last, int64_t* steps) {
  *steps += batch <= *last ? batch + 1 : batch - *last;
  *last = batch;
  if (*steps < every) return false;
  *steps = 0;
  return true;
}

}  // namespace millrace::model

#endif  // MODEL_CALLBACKS_STEP_COUNT_H_
