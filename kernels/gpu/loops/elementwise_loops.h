// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic. A functor takes a group of neighbours: loads and stores are 16 bytes
// wide where addresses allow it.
#ifndef KERNELS_GPU_LOOPS_ELEMENTWISE_LOOPS_H_
#define KERNELS_GPU_LOOPS_ELEMENTWISE_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// --- Groups of elements ----------------------------------------------------------------------

template <typename T, int kSize>
struct alignas(sizeof(T) * kSize) Pack {
  T v[kSize];
};
// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

template <typename T, int kSize>
MR_HD void LoadPack(const T* from, Pack<T, kSize>* to) {
#if defined(__CUDA_ARCH__)
  *to = *reinterpret_cast<const Pack<T, kSize>*>(from);
#else
  std::memcpy(static_cast<void*>(to), from, sizeof(*to));
#endif
}
template <typename T, int kSize>
MR_HD void StorePack(const Pack<T, kSize>& from, T* to) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<Pack<T, kSize>*>(to) = from;
#else
  std::memcpy(static_cast<void*>(to), &from, sizeof(from));
#endif
}
inline bool IsAligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

// --- One operand -----------------------------------------------------------------------------

template <typename Op, typename T>
struct UnaryEach {
  using C = ComputeType<T>;
  using R = decltype(Op::Do(C(), C()));
  using Out = std::conditional_t<std::is_same_v<R, C>, T, R>;
  static constexpr int kGroup = kPackSize<T>;

  const T* in;
  Out* out;
  int64_t n;
  float alpha;
  bool packs;

  MR_HD Out One(T x) const { return Narrow<Out>(Op::Do(Widen(x), static_cast<C>(alpha))); }
  MR_HD void operator()(int64_t group) const {
    const int64_t first = group * kGroup;
    if (packs && first + kGroup <= n) {
      Pack<T, kGroup> from;
      Pack<Out, kGroup> to;
      LoadPack(in + first, &from);
      for (int i = 0; i < kGroup; ++i) to.v[i] = One(from.v[i]);
      StorePack(to, out + first);
      return;
    }
    for (int64_t i = first; i < first + kGroup && i < n; ++i) out[i] = One(in[i]);
  }
};

template <typename Launcher, typename Op, typename T>
Outcome UnaryOf(Queue queue, const UnaryParams& p) {
  using Each = UnaryEach<Op, T>;
  using Out = typename Each::Out;
  const bool packs = IsAligned(p.in, 16) && IsAligned(p.out, sizeof(Out) * Each::kGroup);
  const Each each{static_cast<const T*>(p.in), static_cast<Out*>(p.out), p.n, p.alpha, packs};
  return Launcher(queue).ForEach((p.n + Each::kGroup - 1) / Each::kGroup, each);
}

// --- Two operands ----------------------------------------------------------------------------

template <typename Op, typename T>
struct BinaryBase {
  using C = ComputeType<T>;
  using R = decltype(Op::Do(C(), C(), C()));
  using Out = std::conditional_t<std::is_same_v<R, C>, T, R>;
  static constexpr int kGroup = kPackSize<T>;

  const T *a, *b;
  Out* out;
  int64_t n;
  float alpha;

  MR_HD Out One(T x, T y) const {
    if constexpr (kIsSmallFloat<T> && requires { Op::template DoSmall<T>(0.0f, 0.0f); }) {
      return Narrow<Out>(Op::template DoSmall<T>(Widen(x), Widen(y)));
    } else {
      return Narrow<Out>(Op::Do(Widen(x), Widen(y), static_cast<C>(alpha)));
    }
  }
};

template <typename Op, typename T>
struct BinaryFlat : BinaryBase<Op, T> {
  using Base = BinaryBase<Op, T>;
  using Out = typename Base::Out;
  static constexpr int kGroup = Base::kGroup;
  int a_step, b_step;
  bool packs;

  MR_HD void operator()(int64_t group) const {
    const int64_t first = group * kGroup;
    if (!packs || first + kGroup > this->n) {
      for (int64_t i = first; i < first + kGroup && i < this->n; ++i) {
        this->out[i] = this->One(this->a[i * a_step], this->b[i * b_step]);
      }
      return;
    }
    Pack<T, kGroup> x, y;
    Pack<Out, kGroup> to;
    if (a_step != 0) {
      LoadPack(this->a + first, &x);
    } else {
      for (int i = 0; i < kGroup; ++i) x.v[i] = this->a[0];
    }
    if (b_step != 0) {
      LoadPack(this->b + first, &y);
    } else {
      for (int i = 0; i < kGroup; ++i) y.v[i] = this->b[0];
    }
    for (int i = 0; i < kGroup; ++i) to.v[i] = this->One(x.v[i], y.v[i]);
    StorePack(to, this->out + first);
  }
};

template <typename Op, typename T>
struct BinaryMapped : BinaryBase<Op, T> {
  IndexMap<2> map;
  MR_HD void operator()(int64_t i) const {
    const auto at = map.At(i);
    this->out[i] = this->One(this->a[at.offset[0]], this->b[at.offset[1]]);
  }
};

template <typename Launcher, typename Op, typename T>
Outcome BinaryOf(Queue queue, const BinaryParams& p) {
  using Flat = BinaryFlat<Op, T>;
  using Out = typename Flat::Out;
  const BinaryBase<Op, T> base{static_cast<const T*>(p.a), static_cast<const T*>(p.b),
                               static_cast<Out*>(p.out), p.n, p.alpha};
  if (!p.flat) return Launcher(queue).ForEach(p.n, BinaryMapped<Op, T>{base, p.map});
  const bool packs = IsAligned(p.out, sizeof(Out) * Flat::kGroup) &&
                     (p.a_step == 0 || IsAligned(p.a, 16)) && (p.b_step == 0 || IsAligned(p.b, 16));
  return Launcher(queue).ForEach((p.n + Flat::kGroup - 1) / Flat::kGroup,
                                 Flat{base, p.a_step, p.b_step, packs});
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_ELEMENTWISE_LOOPS_H_
