// SPDX-License-Identifier: Apache-2.0
#include "model/callbacks/weight_images.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::model {
namespace {

// Where pixel (image, y, x) of a weight is.
struct Layout {
  int64_t count, height, width;
  int64_t image_stride, y_stride, x_stride;
};

bool LayoutOf(const Shape& shape, Layout* layout) {
  const auto dim = [&shape](int i) { return shape.dim(i); };
  switch (shape.rank()) {
    case 1:
      *layout = {1, dim(0), 1, 0, 1, 0};
      return true;
    case 2:
      *layout = dim(0) > dim(1) ? Layout{1, dim(1), dim(0), 0, 1, dim(1)}
                                : Layout{1, dim(0), dim(1), 0, dim(1), 1};
      return true;
    case 3:  // width, in, out
      *layout = {dim(2), dim(0), dim(1), 1, dim(1) * dim(2), dim(2)};
      return true;
    case 4: {
      const int64_t x = dim(2) * dim(3);
      *layout = {dim(3), dim(0), dim(1), 1, dim(1) * x, x};
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

Tensor ImagesOf(const Tensor& weight) {
  Layout l;
  if (weight.dtype() != kFloat || weight.num_elements() == 0 || !LayoutOf(weight.shape(), &l)) {
    return Tensor();
  }
  const std::span<const float> values = weight.flat<float>();
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const float v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  const float range = high > low ? high - low : 1;
  Tensor images(kFloat, Shape({l.count, l.height, l.width, 1}));
  float* out = images.data<float>();
  for (int64_t i = 0; i < l.count; ++i) {
    for (int64_t y = 0; y < l.height; ++y) {
      for (int64_t x = 0; x < l.width; ++x) {
        *out++ = (values[i * l.image_stride + y * l.y_stride + x * l.x_stride] - low) / range;
      }
    }
  }
  return images;
}

}  // namespace millrace::model
