// SPDX-License-Identifier: Apache-2.0
// Elements in other places, chosen, filled in, and a few sums and sequences.
#ifndef KERNELS_GPU_LOOPS_MOVE_LOOPS_H_
#define KERNELS_GPU_LOOPS_MOVE_LOOPS_H_

#include "kernels/gpu/loops/elementwise_loops.h"

namespace millrace::gpu {

template <typename T>
struct SelectEach {
  const bool* cond;
  const T *a, *b;
  T* out;
  IndexMap<3> map;
  MR_HD void operator()(int64_t i) const {
    const auto at = map.At(i);
    out[i] = cond[at.offset[0]] ? a[at.offset[1]] : b[at.offset[2]];
  }
};

template <typename Launcher>
Outcome RunSelect(Queue queue, const SelectParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    return Launcher(queue).ForEach(
        p.map.count(), SelectEach<T>{p.cond, static_cast<const T*>(p.a), static_cast<const T*>(p.b),
                                     static_cast<T*>(p.out), p.map});
  });
}

template <typename T>
struct CopyEach {
  const T* from;
  T* to;
  IndexMap<2> map;
  MR_HD void operator()(int64_t i) const {
    const auto at = map.At(i);
    to[at.offset[1]] = from[at.offset[0]];
  }
};
// Both sides dense: groups of 16 bytes.
template <typename T>
struct CopyDense {
  static constexpr int kGroup = kPackSize<T>;
  const T* from;
  T* to;
  int64_t n;
  bool packs;
  MR_HD void operator()(int64_t group) const {
    const int64_t first = group * kGroup;
    if (packs && first + kGroup <= n) {
      Pack<T, kGroup> pack;
      LoadPack(from + first, &pack);
      StorePack(pack, to + first);
      return;
    }
    for (int64_t i = first; i < first + kGroup && i < n; ++i) to[i] = from[i];
  }
};

template <typename Launcher>
Outcome RunCopy(Queue queue, const CopyParams& p) {
  const int64_t n = p.map.count();
  return DispatchSize(p.size, [&]<typename T>() {
    const T* from = static_cast<const T*>(p.from);
    T* to = static_cast<T*>(p.to);
    const bool dense = p.map.rank() == 0 ||
                       (p.map.rank() == 1 && p.map.stride(0, 0) == 1 && p.map.stride(1, 0) == 1);
    if (!dense) return Launcher(queue).ForEach(n, CopyEach<T>{from, to, p.map});
    const bool packs = IsAligned(from, 16) && IsAligned(to, 16);
    constexpr int kGroup = CopyDense<T>::kGroup;
    return Launcher(queue).ForEach((n + kGroup - 1) / kGroup, CopyDense<T>{from, to, n, packs});
  });
}

template <typename T>
struct FillEach {
  T* to;
  T value;
  const T* from;
  MR_HD void operator()(int64_t i) const { to[i] = from != nullptr ? from[0] : value; }
};

template <typename Launcher>
Outcome RunFill(Queue queue, const FillParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    T value;
    std::memcpy(static_cast<void*>(&value), p.value, sizeof(value));
    return Launcher(queue).ForEach(
        p.n, FillEach<T>{static_cast<T*>(p.to), value, static_cast<const T*>(p.from)});
  });
}

template <typename T>
struct SumEach {
  const T* in[SumOfParams::kMost];
  int count;
  T* out;
  MR_HD void operator()(int64_t i) const {
    auto sum = Widen(in[0][i]);
    for (int k = 1; k < count; ++k) {
      if constexpr (std::is_integral_v<T>) {
        sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(in[k][i]));
      } else {
        sum = sum + Widen(in[k][i]);
      }
    }
    out[i] = Narrow<T>(sum);
  }
};

template <typename Launcher>
Outcome RunSumOf(Queue queue, const SumOfParams& p) {
  return Dispatch(FloatsAndInt64(), p.type, [&]<typename T>() {
    SumEach<T> each{{}, p.count, static_cast<T*>(p.out)};
    for (int k = 0; k < p.count; ++k) each.in[k] = static_cast<const T*>(p.in[k]);
    return Launcher(queue).ForEach(p.n, each);
  });
}

template <typename T>
struct ClipEach {
  const T *in, *low, *high;
  int low_step, high_step;
  T* out;
  MR_HD void operator()(int64_t i) const {
    const auto x = Widen(in[i]), least = Widen(low[i * low_step]),
               most = Widen(high[i * high_step]);
    const auto below = x > most ? most : x;
    out[i] = Narrow<T>(below < least ? least : below);
  }
};

template <typename Launcher>
Outcome RunClip(Queue queue, const ClipParams& p) {
  return Dispatch(FloatsAndInt64(), p.type, [&]<typename T>() {
    return Launcher(queue).ForEach(
        p.n, ClipEach<T>{static_cast<const T*>(p.in), static_cast<const T*>(p.low),
                         static_cast<const T*>(p.high), p.low_step, p.high_step,
                         static_cast<T*>(p.out)});
  });
}

template <typename T>
struct LinSpaceEach {
  using C = ComputeType<T>;
  C start, stop, step;
  T* out;
  int64_t n;
  MR_HD void operator()(int64_t i) const {
    out[i] = Narrow<T>(i > 0 && i == n - 1 ? stop : start + step * static_cast<C>(i));
  }
};

template <typename Launcher>
Outcome RunLinSpace(Queue queue, const LinSpaceParams& p) {
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    using C = ComputeType<T>;
    const C start = static_cast<C>(p.start), stop = static_cast<C>(p.stop);
    const C step = p.n > 1 ? (stop - start) / static_cast<C>(p.n - 1) : C(0);
    return Launcher(queue).ForEach(p.n,
                                   LinSpaceEach<T>{start, stop, step, static_cast<T*>(p.out), p.n});
  });
}

template <typename T, typename I>
struct OneHotEach {
  const I* indices;
  const T *on, *off;
  T* out;
  int64_t depth, inner;
  MR_HD void operator()(int64_t i) const {
    const int64_t k = i % inner, at = i / inner % depth, o = i / inner / depth;
    out[i] = static_cast<int64_t>(indices[o * inner + k]) == at ? on[0] : off[0];
  }
};

template <typename Launcher>
Outcome RunOneHot(Queue queue, const OneHotParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    return Dispatch(Types<uint8_t, int32_t, int64_t>(), p.index_type, [&]<typename I>() {
      return Launcher(queue).ForEach(
          p.outer * p.depth * p.inner,
          OneHotEach<T, I>{static_cast<const I*>(p.indices), static_cast<const T*>(p.on),
                           static_cast<const T*>(p.off), static_cast<T*>(p.out), p.depth, p.inner});
    });
  });
}

template <typename T>
struct BandEach {
  const T* in;
  T* out;
  int64_t rows, columns, lower, upper;
  MR_HD void operator()(int64_t i) const {
    const int64_t column = i % columns, row = i / columns % rows;
    const bool kept = (lower < 0 || row - column <= lower) && (upper < 0 || column - row <= upper);
    out[i] = kept ? in[i] : T{};
  }
};

template <typename Launcher>
Outcome RunBand(Queue queue, const BandParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    return Launcher(queue).ForEach(p.matrices * p.rows * p.columns,
                                   BandEach<T>{static_cast<const T*>(p.in), static_cast<T*>(p.out),
                                               p.rows, p.columns, p.lower, p.upper});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_MOVE_LOOPS_H_
