// SPDX-License-Identifier: Apache-2.0
// Batch normalization: what the ops accept, and the sizes that follow. For the
// kernels of all devices; pure.
#ifndef KERNELS_NN_BATCH_NORM_PLAN_H_
#define KERNELS_NN_BATCH_NORM_PLAN_H_

#include <array>

#include "kernels/nn/bias_plan.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// FusedBatchNorm of images or volumes `x`, seen around their channels. The vectors are the scale,
// the offset and the estimated mean and variance, of which the latter two are looked at only if the
// op needs them. InvalidArgument unless they have an element for each channel, as below.
StatusOr<ChannelView> PlanNormalization(const Shape& x, bool channels_first,
                                        const std::array<const Shape*, 4>& vectors,
                                        bool needs_estimates);
// Its gradient; the vectors are the scale, and the mean and variance that were kept.
StatusOr<ChannelView> PlanNormalizationGrad(const Shape& dy, const Shape& x, bool channels_first,
                                            const std::array<const Shape*, 3>& vectors);
// The view alone: InvalidArgument for what is of another rank than 4 or 5.
StatusOr<ChannelView> ViewImages(const Shape& x, bool channels_first);

}  // namespace millrace

#endif  // KERNELS_NN_BATCH_NORM_PLAN_H_
