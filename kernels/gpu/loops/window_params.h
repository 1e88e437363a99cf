// SPDX-License-Identifier: Apache-2.0
// What loops over images, and products, are asked for: see loops.h.
#ifndef KERNELS_GPU_LOOPS_WINDOW_PARAMS_H_
#define KERNELS_GPU_LOOPS_WINDOW_PARAMS_H_

#include <cstdint>

#include "kernels/gpu/loops/index_map.h"
#include "kernels/gpu/loops/numbers.h"

namespace millrace::gpu {

// A spatial axis: output o sees inputs o * stride - pad + t * dilation for t in [0, size).
struct WindowParams {
  int64_t input = 0, output = 0, size = 1, stride = 1, dilation = 1, pad = 0;
};
// Where element (batch, y, x, channel) of images lies.
struct ImageStrides {
  int64_t batch = 0, y = 0, x = 0, channel = 0;
};

enum class PoolKind { kMax, kMaxGrad, kAverage, kAverageGrad };

// `in` are the images that the windows slide over (not used by kAverageGrad), `gradient` is of
// the pooled ones; the output is pooled images, or, for gradients, images.
struct PoolParams {
  PoolKind kind{};
  DataType type = DataType::kInvalid;
  const void *in = nullptr, *gradient = nullptr;
  void* out = nullptr;
  int64_t batch = 0, channels = 0;
  WindowParams rows, cols;
  ImageStrides image, pooled;
  // For kMaxGrad: scratch_bytes() of memory, aligned to 32: each window's largest input.
  void* scratch = nullptr;

  // Taps of a window are counted row by row; in one byte where that is enough.
  bool has_small_windows() const { return rows.size * cols.size <= 256; }
  int64_t scratch_bytes() const {
    if (kind != PoolKind::kMaxGrad) return 0;
    return batch * channels * rows.output * cols.output * (has_small_windows() ? 1 : 4);
  }
};

enum class ConvKind { kForward, kInput, kFilter };

// A convolution in groups, element by element: for what the vendor's library does not do. The
// filter is [rows, columns, channels / groups, outputs].
struct ConvParams {
  ConvKind kind{};
  DataType type = DataType::kInvalid;
  const void *images = nullptr, *filter = nullptr, *made = nullptr;
  void* out = nullptr;  // what `kind` says
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  WindowParams rows, cols;
  ImageStrides image, output;
};

// c[i, j] = sum over q of a[i, q] * b[q, j], for each of count matrices; element by element, for
// what the vendor's library does not do.
struct MatMulParams {
  DataType type = DataType::kInvalid;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  int64_t count = 1;
  IndexMap<2> batches;  // offsets of a and b, in elements
};

// Images as [outer, channels, inner]. Statistics are floats.
struct BatchNormParams {
  DataType type = DataType::kInvalid;
  int64_t outer = 0, channels = 0, inner = 0;
  bool training = true;
  float epsilon = 0, factor = 1;
  const void* x = nullptr;
  const float *scale = nullptr, *offset = nullptr;
  const float *old_mean = nullptr, *old_variance = nullptr;
  void* y = nullptr;
  float *mean = nullptr, *variance = nullptr;              // the running ones
  float *batch_mean = nullptr, *batch_variance = nullptr;  // those that were used
  // Gradient: x, scale, old_mean and old_variance as used by the step forwards.
  const void* dy = nullptr;
  void* dx = nullptr;
  float *d_scale = nullptr, *d_offset = nullptr;
  // Where inner is 1: parts of a channel that are summed up apart, and (2 * chunks + 3) * channels
  // floats for them.
  int64_t chunks = 1;
  void* scratch = nullptr;
};

// Between variances and 1 / sqrt(variance + epsilon), which vendors' libraries keep instead.
struct SpreadParams {
  bool to_inverse = false;
  const float* in = nullptr;
  float* out = nullptr;
  int64_t n = 0;
  float epsilon = 0;
};

// Local response normalization of pixels of `depth` channels, or its gradient `dx`.
struct LrnParams {
  DataType type = DataType::kInvalid;
  const void *in = nullptr, *out_image = nullptr, *gradient = nullptr;
  void* out = nullptr;
  int64_t pixels = 0, depth = 0, radius = 0;
  float bias = 0, alpha = 0, beta = 0;
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_WINDOW_PARAMS_H_
