// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/softmax_plan.h"

#include <algorithm>

#include "base/errors.h"

namespace millrace {
namespace {

// Size of axis `i` of two; 1 where the shape has fewer.
int64_t SideOf(const Shape& shape, int i) {
  const int axis = shape.rank() - 2 + i;
  return axis < 0 ? 1 : shape.dim(axis);
}

Status DoNotBroadcast(const Shape& logits, const Shape& labels) {
  return errors::InvalidArgument(
      "logits and labels must be broadcastable 2-D matrices: logits_size=", logits.DebugString(),
      " labels_size=", labels.DebugString());
}

}  // namespace

StatusOr<SoftmaxPlan> PlanSoftmax(const Shape& logits) {
  if (logits.rank() < 1) {
    return errors::InvalidArgument("logits must have >= 1 dimension, got ", logits.DebugString());
  }
  const int64_t n = logits.dim(logits.rank() - 1);
  return SoftmaxPlan{n == 0 ? 0 : logits.num_elements() / n, n};
}

StatusOr<CrossEntropyPlan> PlanCrossEntropy(const Shape& logits, const Shape& labels) {
  if (std::max(logits.rank(), labels.rank()) != 2) return DoNotBroadcast(logits, labels);
  int64_t size[2];
  for (int i = 0; i < 2; ++i) {  // a side of 1 is repeated
    const int64_t a = SideOf(logits, i), b = SideOf(labels, i);
    if (a != b && a != 1 && b != 1) return DoNotBroadcast(logits, labels);
    size[i] = a == 1 ? b : a;
  }
  CrossEntropyPlan plan{size[0], size[1]};
  const auto steps = [](const Shape& shape, int64_t* row, int64_t* column) {
    *row = SideOf(shape, 0) == 1 ? 0 : SideOf(shape, 1);
    *column = SideOf(shape, 1) == 1 ? 0 : 1;
  };
  steps(logits, &plan.x_row, &plan.x_column);
  steps(labels, &plan.y_row, &plan.y_column);
  return plan;
}

Status CheckSparseCrossEntropy(const Shape& logits, const Shape& labels) {
  if (logits.rank() != 2) {
    return errors::InvalidArgument("logits must be 2-D, but got shape ", logits.DebugString());
  }
  if (labels.rank() != 1) {
    return errors::InvalidArgument("labels must be 1-D, but got shape ", labels.DebugString());
  }
  if (labels.dim(0) != logits.dim(0)) {
    return errors::InvalidArgument(
        "logits and labels must have the same first dimension, got logits shape ",
        logits.DebugString(), " and labels shape ", labels.DebugString());
  }
  if (logits.dim(1) == 0 && logits.dim(0) > 0) {
    return errors::InvalidArgument("Must have at least one class, but got logits shape ",
                                   logits.DebugString());
  }
  return OkStatus();
}

}  // namespace millrace
