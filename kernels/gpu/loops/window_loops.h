// SPDX-License-Identifier: Apache-2.0
// Convolutions and products element by element.
#ifndef KERNELS_GPU_LOOPS_WINDOW_LOOPS_H_
#define KERNELS_GPU_LOOPS_WINDOW_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// (batch, y, x, channel) of image element i, channels innermost.
struct Position {
  int64_t batch, y, x, channel;
};
MR_HD inline Position PositionOf(int64_t i, int64_t channels, int64_t width, int64_t height) {
  Position at;
  at.channel = i % channels;
  i /= channels;
  at.x = i % width;
  i /= width;
  at.y = i % height;
  at.batch = i / height;
  return at;
}
MR_HD inline int64_t OffsetOf(const ImageStrides& s, int64_t batch, int64_t y, int64_t x,
                              int64_t channel) {
  return batch * s.batch + y * s.y + x * s.x + channel * s.channel;
}

// --- Convolution -----------------------------------------------------------------------------

template <ConvKind kKind, typename T>
struct ConvEach {
  ConvParams p;
  using C = ComputeType<T>;

  MR_HD int64_t FilterAt(int64_t ky, int64_t kx, int64_t channel, int64_t output) const {
    return ((ky * p.cols.size + kx) * (p.channels / p.groups) + channel) * p.outputs + output;
  }

  MR_HD void operator()(int64_t i) const {
    const T* images = static_cast<const T*>(p.images);
    const T* filter = static_cast<const T*>(p.filter);
    const T* made = static_cast<const T*>(p.made);
    T* out = static_cast<T*>(p.out);
    const int64_t group_channels = p.channels / p.groups, group_outputs = p.outputs / p.groups;
    C sum = C(0);
    if constexpr (kKind == ConvKind::kForward) {
      const Position at = PositionOf(i, p.outputs, p.cols.output, p.rows.output);
      const int64_t first = at.channel / group_outputs * group_channels;
      for (int64_t ky = 0; ky < p.rows.size; ++ky) {
        const int64_t y = at.y * p.rows.stride - p.rows.pad + ky * p.rows.dilation;
        if (y < 0 || y >= p.rows.input) continue;
        for (int64_t kx = 0; kx < p.cols.size; ++kx) {
          const int64_t x = at.x * p.cols.stride - p.cols.pad + kx * p.cols.dilation;
          if (x < 0 || x >= p.cols.input) continue;
          for (int64_t c = 0; c < group_channels; ++c) {
            sum += Widen(images[OffsetOf(p.image, at.batch, y, x, first + c)]) *
                   Widen(filter[FilterAt(ky, kx, c, at.channel)]);
          }
        }
      }
      out[OffsetOf(p.output, at.batch, at.y, at.x, at.channel)] = Narrow<T>(sum);
    } else if constexpr (kKind == ConvKind::kInput) {
      const Position at = PositionOf(i, p.channels, p.cols.input, p.rows.input);
      const int64_t group = at.channel / group_channels, first = group * group_outputs;
      for (int64_t ky = 0; ky < p.rows.size; ++ky) {
        const int64_t y = at.y + p.rows.pad - ky * p.rows.dilation, oy = y / p.rows.stride;
        if (y < 0 || y % p.rows.stride != 0 || oy >= p.rows.output) continue;
        for (int64_t kx = 0; kx < p.cols.size; ++kx) {
          const int64_t x = at.x + p.cols.pad - kx * p.cols.dilation, ox = x / p.cols.stride;
          if (x < 0 || x % p.cols.stride != 0 || ox >= p.cols.output) continue;
          for (int64_t o = first; o < first + group_outputs; ++o) {
            sum += Widen(made[OffsetOf(p.output, at.batch, oy, ox, o)]) *
                   Widen(filter[FilterAt(ky, kx, at.channel - group * group_channels, o)]);
          }
        }
      }
      out[OffsetOf(p.image, at.batch, at.y, at.x, at.channel)] = Narrow<T>(sum);
    } else {
      const int64_t output = i % p.outputs, c = i / p.outputs % group_channels;
      const int64_t kx = i / p.outputs / group_channels % p.cols.size;
      const int64_t ky = i / p.outputs / group_channels / p.cols.size;
      const int64_t channel = output / group_outputs * group_channels + c;
      for (int64_t n = 0; n < p.batch; ++n) {
        for (int64_t oy = 0; oy < p.rows.output; ++oy) {
          const int64_t y = oy * p.rows.stride - p.rows.pad + ky * p.rows.dilation;
          if (y < 0 || y >= p.rows.input) continue;
          for (int64_t ox = 0; ox < p.cols.output; ++ox) {
            const int64_t x = ox * p.cols.stride - p.cols.pad + kx * p.cols.dilation;
            if (x < 0 || x >= p.cols.input) continue;
            sum += Widen(images[OffsetOf(p.image, n, y, x, channel)]) *
                   Widen(made[OffsetOf(p.output, n, oy, ox, output)]);
          }
        }
      }
      out[i] = Narrow<T>(sum);
    }
  }
};

template <typename Launcher>
Outcome RunConv(Queue queue, const ConvParams& p) {
  const Launcher launcher(queue);
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    switch (p.kind) {
      case ConvKind::kForward:
        return launcher.ForEach(p.batch * p.rows.output * p.cols.output * p.outputs,
                                ConvEach<ConvKind::kForward, T>{p});
      case ConvKind::kInput:
        return launcher.ForEach(p.batch * p.rows.input * p.cols.input * p.channels,
                                ConvEach<ConvKind::kInput, T>{p});
      case ConvKind::kFilter:
        return launcher.ForEach(p.rows.size * p.cols.size * (p.channels / p.groups) * p.outputs,
                                ConvEach<ConvKind::kFilter, T>{p});
    }
    return kNoLoop;
  });
}

// --- Products --------------------------------------------------------------------------------

template <typename T>
struct MatMulEach {
  MatMulParams p;
  MR_HD void operator()(int64_t index) const {
    using C = ComputeType<T>;
    const int64_t j = index % p.n, i = index / p.n % p.m, matrix = index / p.n / p.m;
    const auto at = p.batches.At(matrix);
    const T* a = static_cast<const T*>(p.a) + at.offset[0] + i * p.a_row;
    const T* b = static_cast<const T*>(p.b) + at.offset[1] + j * p.b_column;
    C sum = C(0);
    for (int64_t q = 0; q < p.k; ++q) {
      if constexpr (std::is_integral_v<C>) {
        sum =
            static_cast<C>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(a[q * p.a_column]) *
                                                            static_cast<uint64_t>(b[q * p.b_row]));
      } else {
        sum += Widen(a[q * p.a_column]) * Widen(b[q * p.b_row]);
      }
    }
    static_cast<T*>(p.c)[index] = Narrow<T>(sum);
  }
};

template <typename Launcher>
Outcome RunMatMul(Queue queue, const MatMulParams& p) {
  return Dispatch(
      Types<float, double, Half, BFloat16, int64_t, int32_t>(), p.type,
      [&]<typename T>() { return Launcher(queue).ForEach(p.count * p.m * p.n, MatMulEach<T>{p}); });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_WINDOW_LOOPS_H_
