// SPDX-License-Identifier: Apache-2.0
// Images with their channels last, which is how the CPU's windows see them.
#ifndef KERNELS_NN_WINDOW_H_
#define KERNELS_NN_WINDOW_H_

#include "kernels/kernel.h"
#include "kernels/nn/window_plan.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// A copy of images with their channels last, or first. ResourceExhausted without memory.
StatusOr<Tensor> CopyChannelsLast(KernelContext& ctx, const Tensor& images);
Status CopyChannelsFirst(KernelContext& ctx, const Tensor& images, Tensor* out);

}  // namespace millrace

#endif  // KERNELS_NN_WINDOW_H_
