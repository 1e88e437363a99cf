#include "kernels/window.h"

#include <algorithm>

#include "base/errors.h"

namespace millrace {

WindowAttrs::WindowAttrs(KernelConstruction& c)
    : strides_(c.attr<std::vector<int64_t>>("strides")),
      dilations_(c.attrs().GetOr<std::vector<int64_t>>("dilations", {1, 1, 1, 1})),
      explicit_paddings_(c.attrs().GetOr<std::vector<int64_t>>("explicit_paddings", {})),
      padding_(c.attr<std::string>("padding")) {
  const std::string format = c.attrs().GetOr<std::string>("data_format", "NHWC");
  if (format != "NHWC") {
    c.SetError(errors::Unimplemented(c.def().name(), " is computed for data_format NHWC only, got ",
                                     format));
  }
  if (dilations_.empty()) dilations_ = {1, 1, 1, 1};
  if (strides_.size() != 4 || dilations_.size() != 4) {
    c.SetError(errors::InvalidArgument("strides and dilations must have 4 elements"));
    strides_ = dilations_ = {1, 1, 1, 1};
  }
  for (int i = 0; i < 4; ++i) {
    if (strides_[i] < 1 || dilations_[i] < 1) {
      c.SetError(errors::InvalidArgument("strides and dilations must be positive"));
    }
  }
  if (strides_[0] != 1 || dilations_[0] != 1) {
    c.SetError(errors::InvalidArgument("strides and dilations in the batch are not supported"));
  }
  if (padding_ == "EXPLICIT" && explicit_paddings_.size() != 8) {
    c.SetError(errors::InvalidArgument("explicit_paddings must have 8 elements, got ",
                                       explicit_paddings_.size()));
    explicit_paddings_.assign(8, 0);
  }
}

StatusOr<WindowAxis> WindowAttrs::Axis(int axis, int64_t input, int64_t size) const {
  WindowAxis a{input, size, strides_[axis], dilations_[axis]};
  const int64_t effective = (size - 1) * a.dilation + 1;
  if (padding_ == "SAME") {
    a.output = (input + a.stride - 1) / a.stride;
    a.pad_before = std::max<int64_t>(0, (a.output - 1) * a.stride + effective - input) / 2;
    return a;
  }
  int64_t padded = input;
  if (padding_ == "EXPLICIT") {
    a.pad_before = explicit_paddings_[2 * axis];
    padded += a.pad_before + explicit_paddings_[2 * axis + 1];
  }
  const int64_t room = padded - effective + a.stride;
  if (room < 0) {
    return errors::InvalidArgument("Computed output size would be negative: input size ", input,
                                   ", effective filter size ", effective, ", stride ", a.stride);
  }
  a.output = room / a.stride;
  return a;
}

}  // namespace millrace
