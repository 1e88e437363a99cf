// SPDX-License-Identifier: Apache-2.0
// Rounding of floats to a number of bits and back, and its gradient.
#ifndef KERNELS_MATH_QUANTIZE_H_
#define KERNELS_MATH_QUANTIZE_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterQuantizeKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_MATH_QUANTIZE_H_
