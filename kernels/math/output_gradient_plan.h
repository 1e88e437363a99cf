// SPDX-License-Identifier: Apache-2.0
// Gradients that are computed from an output: SigmoidGrad, TanhGrad, SqrtGrad, RsqrtGrad and
// ReciprocalGrad. For the kernels of all devices; pure.
#ifndef KERNELS_MATH_OUTPUT_GRADIENT_PLAN_H_
#define KERNELS_MATH_OUTPUT_GRADIENT_PLAN_H_

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// They do not broadcast: InvalidArgument unless `y` and `dy` have as many elements, in whatever
// shapes. The result has the shape of `y`.
Status CheckSameCount(const Shape& y, const Shape& dy);

}  // namespace millrace

#endif  // KERNELS_MATH_OUTPUT_GRADIENT_PLAN_H_
