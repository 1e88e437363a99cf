// Windows that slide over images: pools, and convolutions and products element by element.
#ifndef KERNELS_GPU_WINDOW_LOOPS_H_
#define KERNELS_GPU_WINDOW_LOOPS_H_

#include "kernels/gpu/loops.h"

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

// The inputs of output o that exist, without dilation.
struct Span {
  int64_t begin, end;
};
MR_HD inline Span InputsOf(const WindowParams& w, int64_t o) {
  const int64_t first = o * w.stride - w.pad;
  return {Larger<int64_t>(0, first), Smaller<int64_t>(w.input, first + w.size)};
}
// The outputs that see input i, without dilation.
MR_HD inline Span OutputsOf(const WindowParams& w, int64_t i) {
  const int64_t at = i + w.pad;
  const int64_t begin = at < w.size ? 0 : (at - w.size) / w.stride + 1;
  return {begin, Smaller<int64_t>(w.output, at / w.stride + 1)};
}

template <typename T>
MR_HD T LowestOf() {
  if constexpr (kIsSmallFloat<T>) {
    return Narrow<T>(-std::numeric_limits<float>::infinity());
  } else if constexpr (std::is_floating_point_v<T>) {
    return -std::numeric_limits<T>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

template <PoolKind kKind, typename T>
struct PoolEach {
  PoolParams p;
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const T* in = static_cast<const T*>(p.in);
    const T* gradient = static_cast<const T*>(p.gradient);
    T* out = static_cast<T*>(p.out);
    constexpr bool kBackward = kKind == PoolKind::kMaxGrad || kKind == PoolKind::kAverageGrad;
    const Position at = PositionOf(i, p.channels, kBackward ? p.cols.input : p.cols.output,
                                   kBackward ? p.rows.input : p.rows.output);
    if constexpr (!kBackward) {
      const Span ys = InputsOf(p.rows, at.y), xs = InputsOf(p.cols, at.x);
      T best = LowestOf<T>();
      C sum = C(0);
      for (int64_t y = ys.begin; y < ys.end; ++y) {
        for (int64_t x = xs.begin; x < xs.end; ++x) {
          const T value = in[OffsetOf(p.image, at.batch, y, x, at.channel)];
          if constexpr (kKind == PoolKind::kMax) {
            if (Widen(best) < Widen(value)) best = value;
          } else {
            sum += Widen(value);
          }
        }
      }
      const int64_t to = OffsetOf(p.pooled, at.batch, at.y, at.x, at.channel);
      if constexpr (kKind == PoolKind::kMax) {
        out[to] = best;
      } else {
        // Padding does not count.
        out[to] = Narrow<T>(sum / static_cast<C>((ys.end - ys.begin) * (xs.end - xs.begin)));
      }
    } else {
      const int64_t here = OffsetOf(p.image, at.batch, at.y, at.x, at.channel);
      const Span oys = OutputsOf(p.rows, at.y), oxs = OutputsOf(p.cols, at.x);
      C sum = C(0);
      for (int64_t oy = oys.begin; oy < oys.end; ++oy) {
        const Span ys = InputsOf(p.rows, oy);
        for (int64_t ox = oxs.begin; ox < oxs.end; ++ox) {
          const Span xs = InputsOf(p.cols, ox);
          const C from = Widen(gradient[OffsetOf(p.pooled, at.batch, oy, ox, at.channel)]);
          if constexpr (kKind == PoolKind::kAverageGrad) {
            sum += from / static_cast<C>((ys.end - ys.begin) * (xs.end - xs.begin));
          } else if (IsFirstLargest(in, at, here, ys, xs)) {
            sum += from;
          }
        }
      }
      out[here] = Narrow<T>(sum);
    }
  }

  // The gradient of an output goes to the first of the largest inputs it saw.
  MR_HD bool IsFirstLargest(const T* in, const Position& at, int64_t here, Span ys, Span xs) const {
    int64_t winner = -1;
    ComputeType<T> best{};
    for (int64_t y = ys.begin; y < ys.end; ++y) {
      for (int64_t x = xs.begin; x < xs.end; ++x) {
        const int64_t offset = OffsetOf(p.image, at.batch, y, x, at.channel);
        const auto value = Widen(in[offset]);
        if (winner < 0 || best < value) {
          winner = offset;
          best = value;
        }
      }
    }
    return winner == here;
  }
};

template <typename Launcher>
Outcome RunPool(Queue queue, const PoolParams& p) {
  const int64_t pooled = p.batch * p.rows.output * p.cols.output * p.channels;
  const int64_t images = p.batch * p.rows.input * p.cols.input * p.channels;
  const Launcher launcher(queue);
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    switch (p.kind) {
      case PoolKind::kMax:
        return launcher.ForEach(pooled, PoolEach<PoolKind::kMax, T>{p});
      case PoolKind::kMaxGrad:
        return launcher.ForEach(images, PoolEach<PoolKind::kMaxGrad, T>{p});
      case PoolKind::kAverage:
        return launcher.ForEach(pooled, PoolEach<PoolKind::kAverage, T>{p});
      case PoolKind::kAverageGrad:
        return launcher.ForEach(images, PoolEach<PoolKind::kAverageGrad, T>{p});
    }
    return kNoLoop;
  });
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

#endif  // KERNELS_GPU_WINDOW_LOOPS_H_
