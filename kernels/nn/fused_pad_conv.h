// SPDX-License-Identifier: Apache-2.0
// Convolutions of images that are resized and padded on the way.
#ifndef KERNELS_NN_FUSED_PAD_CONV_H_
#define KERNELS_NN_FUSED_PAD_CONV_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterFusedPadConvKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_NN_FUSED_PAD_CONV_H_
