// SPDX-License-Identifier: Apache-2.0
// Batch normalization of images with channels last.
//
// Neighbouring threads take neighbouring channels. Each takes a chunk of its channel's elements;
// one thread for each channel puts the chunks together; then come the elements, in groups.
#ifndef KERNELS_GPU_LOOPS_BATCH_NORM_LAST_LOOPS_H_
#define KERNELS_GPU_LOOPS_BATCH_NORM_LAST_LOOPS_H_

#include "kernels/gpu/loops/batch_norm_chunks.h"
#include "kernels/gpu/loops/elementwise_loops.h"

namespace millrace::gpu {

// Groups of neighbouring channels; f(element, channel) makes each output.
template <typename T>
struct ChannelGroups {
  static constexpr int kGroup = kPackSize<T>;
  int64_t n, channels;
  bool packs;  // addresses are aligned, and groups are of one row
  template <typename F>
  MR_HD void ForEach(int64_t group, F&& f) const {
    const int64_t first = group * kGroup;
    int64_t c = n < (int64_t{1} << 31)
                    ? static_cast<uint32_t>(first) % static_cast<uint32_t>(channels)
                    : first % channels;
    for (int i = 0; i < kGroup && first + i < n; ++i) {
      f(i, first + i, c);
      if (++c == channels) c = 0;
    }
  }
};

template <typename T>
struct NormalizeEach : ChannelGroups<T> {
  BatchNormParams p;
  BatchNormScratch scratch;
  static constexpr int kGroup = ChannelGroups<T>::kGroup;
  MR_HD void operator()(int64_t group) const {
    const T* x = static_cast<const T*>(p.x);
    T* y = static_cast<T*>(p.y);
    const auto one = [&](T value, int64_t c) {
      return Narrow<T>((Widen(value) - scratch.shift[c]) * scratch.scale[c] + p.offset[c]);
    };
    if (!this->packs) {
      this->ForEach(group, [&](int, int64_t at, int64_t c) { y[at] = one(x[at], c); });
      return;
    }
    Pack<T, kGroup> from, to;
    LoadPack(x + group * kGroup, &from);
    this->ForEach(group, [&](int i, int64_t, int64_t c) { to.v[i] = one(from.v[i], c); });
    StorePack(to, y + group * kGroup);
  }
};

template <typename T>
struct BackwardEach : ChannelGroups<T> {
  BatchNormParams p;
  BatchNormScratch scratch;
  static constexpr int kGroup = ChannelGroups<T>::kGroup;
  MR_HD void operator()(int64_t group) const {
    const T* x = static_cast<const T*>(p.x);
    const T* dy = static_cast<const T*>(p.dy);
    T* dx = static_cast<T*>(p.dx);
    const auto one = [&](T value, T gradient, int64_t c) {
      const float centred = Widen(value) - p.old_mean[c];
      return Narrow<T>((Widen(gradient) - scratch.shift[c] - centred * scratch.slope[c]) *
                       scratch.scale[c]);
    };
    if (!this->packs) {
      this->ForEach(group, [&](int, int64_t at, int64_t c) { dx[at] = one(x[at], dy[at], c); });
      return;
    }
    Pack<T, kGroup> from, gradient, to;
    LoadPack(x + group * kGroup, &from);
    LoadPack(dy + group * kGroup, &gradient);
    this->ForEach(group,
                  [&](int i, int64_t, int64_t c) { to.v[i] = one(from.v[i], gradient.v[i], c); });
    StorePack(to, dx + group * kGroup);
  }
};

template <typename T>
ChannelGroups<T> MakeGroups(const BatchNormParams& p, const void* out) {
  constexpr int kGroup = ChannelGroups<T>::kGroup;
  const int64_t n = p.outer * p.channels;
  return {n, p.channels,
          p.channels % kGroup == 0 && IsAligned(p.x, 16) && IsAligned(out, 16) &&
              (p.dy == nullptr || IsAligned(p.dy, 16))};
}

// Sums of the first `chunks` chunks, put together, and then the elements.
template <typename J, typename F, typename Each, typename Launcher>
Outcome RunLast(const Launcher& launcher, const BatchNormParams& p, int64_t chunks,
                const F& sums_of, const Each& each) {
  const ChunkRange range{p.outer, p.chunks};
  Outcome outcome = launcher.ForEach(chunks * p.channels,
                                     OverChunks<F>{sums_of, p.channels, range, each.scratch});
  if (outcome != nullptr) return outcome;
  outcome = launcher.ForEach(p.channels, JoinChunks<J>{p, chunks, range, each.scratch});
  if (outcome != nullptr) return outcome;
  return launcher.ForEach((each.n + each.kGroup - 1) / each.kGroup, each);
}

template <typename Launcher, typename T>
Outcome NormalizeLast(const Launcher& launcher, const BatchNormParams& p) {
  // Given statistics need no sums.
  return RunLast<JoinedMoments>(launcher, p, p.training ? p.chunks : 0,
                                ChunkMoments<T>{static_cast<const T*>(p.x), p.channels},
                                NormalizeEach<T>{MakeGroups<T>(p, p.y), p, MakeScratch(p)});
}

template <typename Launcher, typename T>
Outcome BackwardLast(const Launcher& launcher, const BatchNormParams& p) {
  return RunLast<JoinedProducts>(
      launcher, p, p.chunks,
      ChunkProducts<T>{static_cast<const T*>(p.x), static_cast<const T*>(p.dy), p.old_mean,
                       p.channels},
      BackwardEach<T>{MakeGroups<T>(p, p.dx), p, MakeScratch(p)});
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_BATCH_NORM_LAST_LOOPS_H_
