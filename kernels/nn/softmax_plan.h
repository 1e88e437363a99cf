// SPDX-License-Identifier: Apache-2.0
// Softmax and cross entropies: what the ops accept, and the sizes that follow. For the kernels of
// all devices; pure.
#ifndef KERNELS_NN_SOFTMAX_PLAN_H_
#define KERNELS_NN_SOFTMAX_PLAN_H_

#include <cstdint>

#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// Softmax and LogSoftmax: `rows` of `n` classes, none without elements. InvalidArgument for what
// does not go together, as of all functions here.
struct SoftmaxPlan {
  int64_t rows = 0, n = 0;
};
StatusOr<SoftmaxPlan> PlanSoftmax(const Shape& logits);

// SoftmaxCrossEntropyWithLogits: `rows` of `n` classes; where those of the logits (x) and the
// labels (y) lie, with steps of 0 for what is repeated.
struct CrossEntropyPlan {
  int64_t rows = 0, n = 0;
  int64_t x_row = 0, x_column = 0, y_row = 0, y_column = 0;
};
StatusOr<CrossEntropyPlan> PlanCrossEntropy(const Shape& logits, const Shape& labels);
// With one class number for each row. Their values are not looked at.
Status CheckSparseCrossEntropy(const Shape& logits, const Shape& labels);

}  // namespace millrace

#endif  // KERNELS_NN_SOFTMAX_PLAN_H_
