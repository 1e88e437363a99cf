// SPDX-License-Identifier: Apache-2.0
// The operands of batch normalization, checked: for our own loops and for vendors' libraries.
#ifndef KERNELS_GPU_BATCH_NORM_CALL_H_
#define KERNELS_GPU_BATCH_NORM_CALL_H_

#include <cstdint>

#include "kernels/accelerator/stream_kernel.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/kernel.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace::gpu {

// The attributes of FusedBatchNorm, V2, V3 and their gradients.
struct BatchNormAttrs {
  explicit BatchNormAttrs(KernelConstruction& c);

  float epsilon, factor;
  bool training, channels_first, is_gradient;
};

// Sizes alone, of the images `x`, which the node normalizes; and their address. InvalidArgument for
// images that are not of rank 4 or 5.
StatusOr<BatchNormParams> PlanBatchNormSizes(const BatchNormAttrs& attrs, const Tensor& x);
// Sizes and addresses, without `chunks` and `scratch`. InvalidArgument as
// well for vectors that are not of one element for each channel.
StatusOr<BatchNormParams> PlanBatchNorm(const BatchNormAttrs& attrs, const StreamCall& call);

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_BATCH_NORM_CALL_H_
