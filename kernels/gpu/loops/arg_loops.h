// SPDX-License-Identifier: Apache-2.0
// Positions of extremes along an axis.
#ifndef KERNELS_GPU_LOOPS_ARG_LOOPS_H_
#define KERNELS_GPU_LOOPS_ARG_LOOPS_H_

#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

// A NaN is never found, unless nothing else can be: see kernels/math/arg_reduce.cc.
template <typename T>
struct ArgBase {
  using C = ComputeType<T>;
  const T* in;
  void* out;
  int64_t size, inner;
  bool largest, wide;  // `wide`: positions are int64, else int32

  MR_HD bool IsBetter(C x, C best) const { return largest ? x > best : x < best; }
  // What the first element of a line has to be beaten as.
  MR_HD C Start(C first) const {
    if constexpr (std::is_floating_point_v<C>) {
      constexpr C kInfinity = std::numeric_limits<C>::infinity();
      if (first != first) return largest ? -kInfinity : kInfinity;
    }
    return first;
  }
  MR_HD void Store(int64_t output, int64_t position) const {
    if (wide) {
      static_cast<int64_t*>(out)[output] = position;
    } else {
      static_cast<int32_t*>(out)[output] = static_cast<int32_t>(position);
    }
  }
};

// Elements lie apart: neighbouring threads take neighbouring lines.
template <typename T>
struct ArgByThread : ArgBase<T> {
  MR_HD void operator()(int64_t i) const {
    const int64_t base = i / this->inner * this->size * this->inner + i % this->inner;
    auto best = this->Start(Widen(this->in[base]));
    int64_t at = 0;
    for (int64_t k = 1; k < this->size; ++k) {
      const auto x = Widen(this->in[base + k * this->inner]);
      if (this->IsBetter(x, best)) {
        best = x;
        at = k;
      }
    }
    this->Store(i, at);
  }
};

struct LeastIndex {
  MR_HD int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};

// Elements lie together: a team for each line.
template <typename T>
struct ArgByTeam : ArgBase<T> {
  using C = ComputeType<T>;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const T* const line = this->in + row * this->size;
    const C first = this->Start(Widen(line[0]));
    C best = first;  // every member has seen the first
    int64_t at = 0;
    for (int64_t k = team.rank(); k < this->size; k += team.size()) {
      const C x = Widen(line[k]);
      if (this->IsBetter(x, best)) {
        best = x;
        at = k;
      }
    }
    const C found =
        team.Reduce(best, first, [this](C a, C b) { return this->IsBetter(b, a) ? b : a; });
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    at = team.Reduce(best == found ? at : kNone, kNone, LeastIndex());
    if (team.rank() == 0) this->Store(row, at);
  }
};

template <typename Launcher>
Outcome RunArg(Queue queue, const ArgParams& p) {
  using Comparable = Types<float, double, Half, BFloat16, int64_t, int32_t, uint8_t>;
  return Dispatch(Comparable(), p.type, [&]<typename T>() -> Outcome {
    const ArgBase<T> base{static_cast<const T*>(p.in), p.out, p.size, p.inner, p.largest,
                          p.index_type == kInt64};
    const Launcher launcher(queue);
    if (p.inner == 1) return launcher.ForTeams(p.outer, p.size, ArgByTeam<T>{base});
    return launcher.ForEach(p.outer * p.inner, ArgByThread<T>{base});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_ARG_LOOPS_H_
