// SPDX-License-Identifier: Apache-2.0
// Fourier transforms along the last axes of a tensor.
#ifndef KERNELS_SIGNAL_FFT_H_
#define KERNELS_SIGNAL_FFT_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterFftKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_SIGNAL_FFT_H_
