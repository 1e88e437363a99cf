// Windows that slide over images: the geometry shared by convolutions and pools.
#ifndef KERNELS_WINDOW_H_
#define KERNELS_WINDOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "millrace/status.h"

namespace millrace {

// One spatial axis: output o sees inputs o * stride - pad_before + t * dilation for t in
// [0, size), where they exist.
struct WindowAxis {
  int64_t input = 0, size = 0, stride = 1, dilation = 1;
  int64_t output = 0, pad_before = 0;
};

// The attributes strides, dilations, padding, explicit_paddings and data_format of a node.
// Only NHWC is computed.
class WindowAttrs {
 public:
  // Records an error in `c` if an attribute is not valid.
  explicit WindowAttrs(KernelConstruction& c);

  // The axis `height` (1) or width (2) for an input of `input` and a window of `size`.
  // InvalidArgument if the output size would be negative.
  StatusOr<WindowAxis> Axis(int axis, int64_t input, int64_t size) const;
  int64_t stride(int axis) const { return strides_[axis]; }

 private:
  std::vector<int64_t> strides_, dilations_, explicit_paddings_;
  std::string padding_;
};

}  // namespace millrace

#endif  // KERNELS_WINDOW_H_
