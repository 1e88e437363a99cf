// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/batch_norm_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

Status CheckChannels(const Shape& vector, const char* name, int64_t channels) {
  if (vector.rank() != 1) {
    return errors::InvalidArgument(name, " must be 1-dimensional", vector.DebugString());
  }
  if (vector.dim(0) != channels) {
    return errors::InvalidArgument(name, " must have the same number of elements as the ",
                                   "channels of x, got ", vector.dim(0), " and ", channels);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ChannelView> ViewImages(const Shape& x, bool channels_first) {
  if (x.rank() != 4 && x.rank() != 5) {
    return errors::InvalidArgument("input must be 4 or 5-dimensional", x.DebugString());
  }
  return ViewAround(x, channels_first ? 1 : x.rank() - 1);
}

StatusOr<ChannelView> PlanNormalization(const Shape& x, bool channels_first,
                                        const std::array<const Shape*, 4>& vectors,
                                        bool needs_estimates) {
  MR_ASSIGN_OR_RETURN(const ChannelView view, ViewImages(x, channels_first));
  static constexpr const char* kNames[] = {"scale", "offset", "estimated_mean",
                                           "estimated_variance"};
  for (int i = 0; i < (needs_estimates ? 4 : 2); ++i) {
    MR_RETURN_IF_ERROR(CheckChannels(*vectors[i], kNames[i], view.channels));
  }
  return view;
}

StatusOr<ChannelView> PlanNormalizationGrad(const Shape& dy, const Shape& x, bool channels_first,
                                            const std::array<const Shape*, 3>& vectors) {
  MR_ASSIGN_OR_RETURN(const ChannelView view, ViewImages(x, channels_first));
  if (!(dy == x)) {
    return errors::InvalidArgument("x and y_backprop must have the same shape, got ",
                                   x.DebugString(), " and ", dy.DebugString());
  }
  static constexpr const char* kNames[] = {"scale", "saved mean", "saved variance"};
  for (int i = 0; i < 3; ++i) {
    MR_RETURN_IF_ERROR(CheckChannels(*vectors[i], kNames[i], view.channels));
  }
  return view;
}

}  // namespace millrace
