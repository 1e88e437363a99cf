// SPDX-License-Identifier: Apache-2.0
// Convolutions as matrix products over patches ("im2col"): a matrix with one row per output
// position and one column per filter tap is made for a part of an image at a time, small enough to
// stay in cache. Images NHWC, filters HWIO. C: float, double or int32, which wraps around.
#ifndef KERNELS_NN_CONV_PRODUCTS_H_
#define KERNELS_NN_CONV_PRODUCTS_H_

#include "kernels/kernel_context.h"
#include "kernels/nn/onednn_conv.h"

namespace millrace {

// ResourceExhausted where there is no memory for patches.
template <typename C>
Status ConvByProducts(KernelContext& ctx, const ConvGeometry& g, const C* input, const C* filter,
                      C* out);
// The gradient of the images.
template <typename C>
Status ConvInputByProducts(KernelContext& ctx, const ConvGeometry& g, const C* filter,
                           const C* gradient, C* out);
// The gradient of the filter; the same sums whatever the number of threads.
template <typename C>
Status ConvFilterByProducts(KernelContext& ctx, const ConvGeometry& g, const C* input,
                            const C* gradient, C* out);

}  // namespace millrace

#endif  // KERNELS_NN_CONV_PRODUCTS_H_
