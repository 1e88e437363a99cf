// SPDX-License-Identifier: Apache-2.0
// A batch's convolution by oneDNN, a few images at a time on several threads.
#ifndef KERNELS_NN_CONV_PARTS_H_
#define KERNELS_NN_CONV_PARTS_H_

#include "absl/functional/function_ref.h"
#include "kernels/kernel_context.h"
#include "kernels/nn/onednn_conv.h"

namespace millrace {

// Told of outputs that are done: the first image and how many, as floats.
using ConvPartDone = absl::FunctionRef<void(float* outputs, int64_t images)>;

// One of the three operands is made from the others; the same bits whatever the number of threads.
// False, and nothing was done, if oneDNN is not the better choice. `part_done` may be null.
StatusOr<bool> ConvByOneDnn(ConvPass pass, const OneDnnConvCache& cache, KernelContext& ctx,
                            const ConvGeometry& g, const float* images, const float* filter,
                            const float* outputs, const ConvPartDone* part_done);

}  // namespace millrace

#endif  // KERNELS_NN_CONV_PARTS_H_
