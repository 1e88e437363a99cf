// SPDX-License-Identifier: Apache-2.0
// The rarer elementwise functions: inverse and hyperbolic ones, gamma, error and their kin,
// shifts of bits.
#ifndef KERNELS_MATH_ELEMENTWISE_SPECIAL_H_
#define KERNELS_MATH_ELEMENTWISE_SPECIAL_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterElementwiseSpecialKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_MATH_ELEMENTWISE_SPECIAL_H_
