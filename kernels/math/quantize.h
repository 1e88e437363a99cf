// SPDX-License-Identifier: Apache-2.0
// Rounding of floats to a number of bits and back, its gradients, and numbers that stay quantized.
#ifndef KERNELS_MATH_QUANTIZE_H_
#define KERNELS_MATH_QUANTIZE_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterQuantizeKernels(KernelRegistry& registry);
void RegisterFakeQuantizeKernels(KernelRegistry& registry);
void RegisterQuantizedNumberKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_MATH_QUANTIZE_H_
