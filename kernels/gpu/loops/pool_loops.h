// SPDX-License-Identifier: Apache-2.0
// Pools. What they do is bound by memory, so threads follow it: with channels last one takes 16
// bytes of neighbouring channels, with channels first neighbours take neighbouring columns.
#ifndef KERNELS_GPU_LOOPS_POOL_LOOPS_H_
#define KERNELS_GPU_LOOPS_POOL_LOOPS_H_

#include "kernels/gpu/loops/pool_places.h"

namespace millrace::gpu {

// --- Forwards --------------------------------------------------------------------------------

template <typename T, int kGroup>
struct MaxPoolEach : PoolPlaces<kGroup> {
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const T* in = static_cast<const T*>(this->p.in);
    const auto at = this->grid.At(i);
    const Span ys = InputsOf(this->p.rows, at.y), xs = InputsOf(this->p.cols, at.x);
    C best[kGroup];
    for (int k = 0; k < kGroup; ++k) best[k] = LowestOf<T>();
    for (int64_t y = ys.begin; y < ys.end; ++y) {
      for (int64_t x = xs.begin; x < xs.end; ++x) {
        Pack<T, kGroup> from;
        LoadPack(in + this->Image(at, y, x), &from);
        // A NaN is larger than nothing.
        for (int k = 0; k < kGroup; ++k) best[k] = Larger<C>(best[k], Widen(from.v[k]));
      }
    }
    Pack<T, kGroup> to;
    for (int k = 0; k < kGroup; ++k) to.v[k] = Narrow<T>(best[k]);
    StorePack(to, static_cast<T*>(this->p.out) + this->Pooled(at, at.y, at.x));
  }
};

template <typename T, int kGroup>
struct AveragePoolEach : PoolPlaces<kGroup> {
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const T* in = static_cast<const T*>(this->p.in);
    const auto at = this->grid.At(i);
    const Span ys = InputsOf(this->p.rows, at.y), xs = InputsOf(this->p.cols, at.x);
    C sum[kGroup] = {};
    for (int64_t y = ys.begin; y < ys.end; ++y) {
      for (int64_t x = xs.begin; x < xs.end; ++x) {
        Pack<T, kGroup> from;
        LoadPack(in + this->Image(at, y, x), &from);
        for (int k = 0; k < kGroup; ++k) sum[k] += Widen(from.v[k]);
      }
    }
    const C count = static_cast<C>(ys.size() * xs.size());  // padding does not count
    Pack<T, kGroup> to;
    for (int k = 0; k < kGroup; ++k) to.v[k] = Narrow<T>(sum[k] / count);
    StorePack(to, static_cast<T*>(this->p.out) + this->Pooled(at, at.y, at.x));
  }
};

// --- Backwards -------------------------------------------------------------------------------

// The tap of each window's largest input, of equal ones the first, as the CPU has it. Were it
// found by each input anew, every element would be read as often as a window has taps, times the
// windows that see it.
template <typename T, int kGroup, typename Winner>
struct FindWinnersEach : PoolPlaces<kGroup> {
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const T* in = static_cast<const T*>(this->p.in);
    const auto at = this->grid.At(i);
    const Span ys = InputsOf(this->p.rows, at.y), xs = InputsOf(this->p.cols, at.x);
    C best[kGroup] = {};
    Pack<Winner, kGroup> winner = {};
    bool first = true;
    for (int64_t y = ys.begin; y < ys.end; ++y) {
      for (int64_t x = xs.begin; x < xs.end; ++x) {
        Pack<T, kGroup> from;
        LoadPack(in + this->Image(at, y, x), &from);
        const auto tap = static_cast<Winner>(this->Tap(at.y, at.x, y, x));
        for (int k = 0; k < kGroup; ++k) {
          const C value = Widen(from.v[k]);
          const bool larger = first || best[k] < value;
          best[k] = larger ? value : best[k];
          winner.v[k] = larger ? tap : winner.v[k];
        }
        first = false;
      }
    }
    StorePack(winner, static_cast<Winner*>(this->p.scratch) + this->Pooled(at, at.y, at.x));
  }
};

// Each input collects what its outputs have for it, in their order: results repeat.
template <typename T, int kGroup, typename Winner>
struct MaxPoolGradEach : PoolPlaces<kGroup> {
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const T* gradient = static_cast<const T*>(this->p.gradient);
    const Winner* winners = static_cast<const Winner*>(this->p.scratch);
    const auto at = this->grid.At(i);
    const Span oys = OutputsOf(this->p.rows, at.y), oxs = OutputsOf(this->p.cols, at.x);
    C sum[kGroup] = {};
    for (int64_t oy = oys.begin; oy < oys.end; ++oy) {
      for (int64_t ox = oxs.begin; ox < oxs.end; ++ox) {
        const int64_t pooled = this->Pooled(at, oy, ox);
        const auto tap = static_cast<Winner>(this->Tap(oy, ox, at.y, at.x));
        Pack<Winner, kGroup> winner;
        Pack<T, kGroup> from;
        LoadPack(winners + pooled, &winner);
        LoadPack(gradient + pooled, &from);
        for (int k = 0; k < kGroup; ++k) {
          if (winner.v[k] == tap) sum[k] += Widen(from.v[k]);
        }
      }
    }
    Pack<T, kGroup> to;
    for (int k = 0; k < kGroup; ++k) to.v[k] = Narrow<T>(sum[k]);
    StorePack(to, static_cast<T*>(this->p.out) + this->Image(at, at.y, at.x));
  }
};

template <typename T, int kGroup>
struct AveragePoolGradEach : PoolPlaces<kGroup> {
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const T* gradient = static_cast<const T*>(this->p.gradient);
    const auto at = this->grid.At(i);
    const Span oys = OutputsOf(this->p.rows, at.y), oxs = OutputsOf(this->p.cols, at.x);
    C sum[kGroup] = {};
    for (int64_t oy = oys.begin; oy < oys.end; ++oy) {
      const int64_t rows = InputsOf(this->p.rows, oy).size();
      for (int64_t ox = oxs.begin; ox < oxs.end; ++ox) {
        const C count = static_cast<C>(rows * InputsOf(this->p.cols, ox).size());
        Pack<T, kGroup> from;
        LoadPack(gradient + this->Pooled(at, oy, ox), &from);
        for (int k = 0; k < kGroup; ++k) sum[k] += Widen(from.v[k]) / count;
      }
    }
    Pack<T, kGroup> to;
    for (int k = 0; k < kGroup; ++k) to.v[k] = Narrow<T>(sum[k]);
    StorePack(to, static_cast<T*>(this->p.out) + this->Image(at, at.y, at.x));
  }
};

// --- Which of them ---------------------------------------------------------------------------

template <typename Launcher, typename T, int kGroup>
Outcome PoolGroups(const Launcher& launcher, const PoolParams& p) {
  const int64_t groups = p.channels / kGroup;
  const PoolGrid pooled(p.batch, p.rows.output, p.cols.output, groups);
  const PoolGrid images(p.batch, p.rows.input, p.cols.input, groups);
  const auto max_grad = [&]<typename Winner>(Winner) {
    const Outcome outcome =
        launcher.ForEach(pooled.count(), FindWinnersEach<T, kGroup, Winner>{{p, pooled}});
    if (outcome != nullptr) return outcome;
    return launcher.ForEach(images.count(), MaxPoolGradEach<T, kGroup, Winner>{{p, images}});
  };
  switch (p.kind) {
    case PoolKind::kMax:
      return launcher.ForEach(pooled.count(), MaxPoolEach<T, kGroup>{{p, pooled}});
    case PoolKind::kMaxGrad:
      return p.has_small_windows() ? max_grad(uint8_t{}) : max_grad(int32_t{});
    case PoolKind::kAverage:
      return launcher.ForEach(pooled.count(), AveragePoolEach<T, kGroup>{{p, pooled}});
    case PoolKind::kAverageGrad:
      return launcher.ForEach(images.count(), AveragePoolGradEach<T, kGroup>{{p, images}});
  }
  return kNoLoop;
}

template <typename Launcher>
Outcome RunPool(Queue queue, const PoolParams& given) {
  PoolParams p = given;
  if (p.image.channel != 1 || p.pooled.channel != 1) {
    // With channels first, each channel is an image of its own.
    p.batch *= p.channels;
    p.channels = 1;
    p.image.batch = p.image.channel;
    p.pooled.batch = p.pooled.channel;
  }
  const Launcher launcher(queue);
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    constexpr int kGroup = kPackSize<T>;
    // Where there is no channel at all, nothing is launched.
    const bool packs = p.channels % kGroup == 0 && IsAligned(p.in, 16) &&
                       IsAligned(p.gradient, 16) && IsAligned(p.out, 16);
    return packs ? PoolGroups<Launcher, T, kGroup>(launcher, p)
                 : PoolGroups<Launcher, T, 1>(launcher, p);
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_POOL_LOOPS_H_
