// SPDX-License-Identifier: Apache-2.0
// Biases: what the ops accept, and the sizes that follow. For the
// kernels of all devices; pure.
#ifndef KERNELS_NN_BIAS_PLAN_H_
#define KERNELS_NN_BIAS_PLAN_H_

#include <cstdint>
#include <string_view>

#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// A tensor seen as [outer, channels, inner]; inner is 1 when channels come last.
struct ChannelView {
  int64_t outer = 1, channels = 0, inner = 1;
};
// Around an axis of a tensor.
ChannelView ViewAround(const Shape& shape, int axis);
// InvalidArgument for what has no channels, or other ones than the biases, as below.
StatusOr<ChannelView> ViewChannels(const Shape& shape, bool channels_first);
// BiasAdd: a bias for each channel.
StatusOr<ChannelView> PlanBiasAdd(const Shape& value, const Shape& bias, bool channels_first);
// A bias for each of the columns of a product; `who` is the beginning of the error's text.
Status CheckColumnBiases(const Shape& bias, int64_t columns, std::string_view who = "");

}  // namespace millrace

#endif  // KERNELS_NN_BIAS_PLAN_H_
