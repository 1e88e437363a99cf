// SPDX-License-Identifier: Apache-2.0
// Batch normalization, forwards and backwards: a team of threads for each channel; with channels
// last as in batch_norm_last_loops.h.
#ifndef KERNELS_GPU_LOOPS_BATCH_NORM_LOOPS_H_
#define KERNELS_GPU_LOOPS_BATCH_NORM_LOOPS_H_

#include "kernels/gpu/loops/batch_norm_last_loops.h"
#include "kernels/gpu/loops/batch_norm_statistics.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

// Element i of a channel of images [outer, channels, inner].
struct ChannelView {
  int64_t outer, channels, inner;
  MR_HD int64_t count() const { return outer * inner; }
  MR_HD int64_t At(int64_t channel, int64_t i) const {
    if (inner == 1) return i * channels + channel;
    const int64_t o = i / inner;
    return (o * channels + channel) * inner + (i - o * inner);
  }
};

template <typename T>
struct BatchNormChannel {
  ChannelView view;
  BatchNormParams p;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t c) const {
    const T* x = static_cast<const T*>(p.x);
    T* y = static_cast<T*>(p.y);
    const int64_t n = view.count();
    float mean, variance;
    if (p.training) {
      const double count = static_cast<double>(n);  // 0: statistics are NaN
      double sum = 0;
      for (int64_t i = team.rank(); i < n; i += team.size()) {
        sum += static_cast<double>(Widen(x[view.At(c, i)]));
      }
      mean = static_cast<float>(team.Reduce(sum, 0.0, SumCombine()) / count);
      double squares = 0;
      for (int64_t i = team.rank(); i < n; i += team.size()) {
        const float d = Widen(x[view.At(c, i)]) - mean;
        squares += static_cast<double>(d * d);
      }
      variance = static_cast<float>(team.Reduce(squares, 0.0, SumCombine()) / count);
    } else {
      mean = p.old_mean[c];
      variance = p.old_variance[c];
    }
    const float scale = p.scale[c] / std::sqrt(variance + p.epsilon), offset = p.offset[c];
    for (int64_t i = team.rank(); i < n; i += team.size()) {
      const int64_t at = view.At(c, i);
      y[at] = Narrow<T>((Widen(x[at]) - mean) * scale + offset);
    }
    if (team.rank() == 0) KeepStatistics(p, c, n, mean, variance);
  }
};

template <typename T>
struct BatchNormGradChannel {
  ChannelView view;
  BatchNormParams p;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t c) const {
    const T* x = static_cast<const T*>(p.x);
    const T* dy = static_cast<const T*>(p.dy);
    T* dx = static_cast<T*>(p.dx);
    const int64_t n = view.count();
    const float mean = p.old_mean[c];
    double sum = 0, product = 0;
    for (int64_t i = team.rank(); i < n; i += team.size()) {
      const int64_t at = view.At(c, i);
      const float g = Widen(dy[at]);
      sum += static_cast<double>(g);
      product += static_cast<double>(g * (Widen(x[at]) - mean));
    }
    sum = team.Reduce(sum, 0.0, SumCombine());
    product = team.Reduce(product, 0.0, SumCombine());
    const ChannelGradient made(p, c, n, sum, product);
    for (int64_t i = team.rank(); i < n; i += team.size()) {
      const int64_t at = view.At(c, i);
      const float centred = Widen(x[at]) - mean;
      dx[at] = Narrow<T>((Widen(dy[at]) - made.shift - centred * made.slope) * made.scale);
    }
    if (team.rank() != 0) return;
    p.d_scale[c] = made.d_scale;
    p.d_offset[c] = made.d_offset;
  }
};

// One channel of one image, by statistics that were given: no element needs a division.
template <typename T>
struct NormalizeRow {
  BatchNormParams p;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const int64_t c = row % p.channels;
    const T* x = static_cast<const T*>(p.x) + row * p.inner;
    T* y = static_cast<T*>(p.y) + row * p.inner;
    const float mean = p.old_mean[c], variance = p.old_variance[c];
    const float scale = p.scale[c] / std::sqrt(variance + p.epsilon), offset = p.offset[c];
    for (int64_t i = team.rank(); i < p.inner; i += team.size()) {
      y[i] = Narrow<T>((Widen(x[i]) - mean) * scale + offset);
    }
    if (row == c && team.rank() == 0) KeepStatistics(p, c, p.outer * p.inner, mean, variance);
  }
};

template <typename Launcher>
Outcome RunBatchNorm(Queue queue, const BatchNormParams& p) {
  const ChannelView view{p.outer, p.channels, p.inner};
  const Launcher launcher(queue);
  return Dispatch(Types<float, Half, BFloat16>(), p.type, [&]<typename T>() {
    if (p.inner == 1) return NormalizeLast<Launcher, T>(launcher, p);
    if (!p.training && p.outer > 0) {
      return launcher.ForTeams(p.outer * p.channels, p.inner, NormalizeRow<T>{p});
    }
    return launcher.ForTeams(p.channels, view.count(), BatchNormChannel<T>{view, p});
  });
}
template <typename Launcher>
Outcome RunBatchNormGrad(Queue queue, const BatchNormParams& p) {
  const ChannelView view{p.outer, p.channels, p.inner};
  const Launcher launcher(queue);
  return Dispatch(Types<float, Half, BFloat16>(), p.type, [&]<typename T>() {
    if (p.inner == 1) return BackwardLast<Launcher, T>(launcher, p);
    return launcher.ForTeams(p.channels, view.count(), BatchNormGradChannel<T>{view, p});
  });
}

struct SpreadEach {
  SpreadParams p;
  MR_HD void operator()(int64_t i) const {
    const auto value = static_cast<double>(p.in[i]), epsilon = static_cast<double>(p.epsilon);
    p.out[i] = static_cast<float>(p.to_inverse ? 1 / std::sqrt(value + epsilon)
                                               : Larger<double>(1 / (value * value) - epsilon, 0));
  }
};
template <typename Launcher>
Outcome RunSpread(Queue queue, const SpreadParams& p) {
  return Launcher(queue).ForEach(p.n, SpreadEach{p});
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_BATCH_NORM_LOOPS_H_
