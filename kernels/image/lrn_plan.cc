// SPDX-License-Identifier: Apache-2.0
#include "kernels/image/lrn_plan.h"

#include "base/errors.h"

namespace millrace {

LrnAttrs::LrnAttrs(KernelConstruction& c)
    : radius(c.attr<int64_t>("depth_radius")),
      bias(c.attr<float>("bias")),
      alpha(c.attr<float>("alpha")),
      beta(c.attr<float>("beta")) {
  if (radius < 0) c.SetError(errors::InvalidArgument("depth_radius must not be negative"));
}

Status CheckLrnImages(const Shape& images) {
  if (images.rank() == 4) return OkStatus();
  return errors::InvalidArgument("in must be 4-dimensional, got ", images.DebugString());
}

Status CheckLrnInput(const Shape& images, const Shape& input) {
  if (input == images) return OkStatus();
  return errors::InvalidArgument("input_grads, input_image, and out_image should have the ",
                                 "same shape, got ", input.DebugString(), " and ",
                                 images.DebugString());
}

}  // namespace millrace
