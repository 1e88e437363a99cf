// SPDX-License-Identifier: Apache-2.0
// What is no number, or no finite one.
#ifndef KERNELS_GPU_LOOPS_CHECK_LOOPS_H_
#define KERNELS_GPU_LOOPS_CHECK_LOOPS_H_

#include "kernels/gpu/loops/elementwise_loops.h"

namespace millrace::gpu {

struct ClearReport {
  CheckReport* found;
  MR_HD void operator()(int64_t) const { *found = {}; }
};

// Threads that find the same write the same: their order does not matter.
template <typename T>
struct CheckEach {
  static constexpr int kGroup = kPackSize<T>;
  const T* in;
  int64_t n;
  CheckReport* found;
  bool packs;

  MR_HD void One(T element) const {
    using C = ComputeType<T>;
    const C x = Widen(element), infinity = std::numeric_limits<C>::infinity();
    if (x != x) found->nan = 1;
    if (x == -infinity) found->below = 1;
    if (x == infinity) found->above = 1;
  }
  MR_HD void operator()(int64_t group) const {
    const int64_t first = group * kGroup;
    if (packs && first + kGroup <= n) {
      Pack<T, kGroup> pack;
      LoadPack(in + first, &pack);
      for (int i = 0; i < kGroup; ++i) One(pack.v[i]);
      return;
    }
    for (int64_t i = first; i < first + kGroup && i < n; ++i) One(in[i]);
  }
};

template <typename Launcher>
Outcome RunCheck(Queue queue, const CheckParams& p) {
  const Launcher launcher(queue);
  const Outcome outcome = launcher.ForEach(1, ClearReport{p.found});
  if (outcome != nullptr) return outcome;
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    constexpr int kGroup = CheckEach<T>::kGroup;
    return launcher.ForEach(
        (p.n + kGroup - 1) / kGroup,
        CheckEach<T>{static_cast<const T*>(p.in), p.n, p.found, IsAligned(p.in, 16)});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_CHECK_LOOPS_H_
