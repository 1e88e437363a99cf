// SPDX-License-Identifier: Apache-2.0
// The k largest of each row, and whether a class is among them.
#ifndef KERNELS_GPU_LOOPS_TOP_K_LOOPS_H_
#define KERNELS_GPU_LOOPS_TOP_K_LOOPS_H_

#include "kernels/gpu/loops/elementwise_loops.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

template <typename I>
struct InTopKRow {
  const float* predictions;
  const I* targets;
  bool* out;
  int64_t classes, k;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const float* x = predictions + row * classes;
    const auto target = static_cast<int64_t>(targets[row]);
    const bool known = target >= 0 && target < classes;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float value = known ? x[target] : kInfinity;
    int64_t larger = std::fabs(value) < kInfinity ? 0 : classes + k;  // as many are not enough
    larger = team.rank() == 0 ? larger : 0;
    for (int64_t j = team.rank(); j < classes; j += team.size()) {
      larger += !(std::fabs(x[j]) < kInfinity) ? classes + k : (x[j] > value ? 1 : 0);
    }
    larger = team.Reduce(larger, int64_t{0}, SumCombine());
    if (team.rank() == 0) out[row] = larger < k;
  }
};

template <typename Launcher>
Outcome RunInTopK(Queue queue, const InTopKParams& p) {
  return Dispatch(Types<int32_t, int64_t>(), p.index_type, [&]<typename I>() {
    return Launcher(queue).ForTeams(
        p.rows, p.classes,
        InTopKRow<I>{p.predictions, static_cast<const I*>(p.targets), p.out, p.classes, p.k});
  });
}

// Whether element a goes before b: larger ones first, NaN before all, then the first.
template <typename T>
MR_HD bool GoesBefore(T x, int64_t a, T y, int64_t b) {
  const auto u = Widen(x), v = Widen(y);
  const bool u_nan = u != u, v_nan = v != v;
  if (u_nan != v_nan) return u_nan;
  if (!u_nan && u != v) return v < u;
  return a < b;
}

// Rounds: the first of those that come after what the last round found. For a small k.
template <typename T, typename I>
struct TopKRow {
  const T* in;
  T* values;
  I* indices;
  int64_t n, k;
  struct First {
    const T* x;
    MR_HD int64_t operator()(int64_t a, int64_t b) const {
      if (a < 0 || b < 0) return a < 0 ? b : a;
      return GoesBefore(x[a], a, x[b], b) ? a : b;
    }
  };
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const T* x = in + row * n;
    const First first{x};
    int64_t last = -1;
    for (int64_t i = 0; i < k; ++i) {
      int64_t found = -1;
      for (int64_t j = team.rank(); j < n; j += team.size()) {
        if (last < 0 || GoesBefore(x[last], last, x[j], j)) found = first(found, j);
      }
      last = team.Reduce(found, int64_t{-1}, first);
      if (team.rank() != 0) continue;
      values[row * k + i] = x[last];
      indices[row * k + i] = static_cast<I>(last);
    }
  }
};

// Every element finds its own place by comparing itself with all others of its row.
template <typename T, typename I>
struct TopKEach {
  const T* in;
  T* values;
  I* indices;
  int64_t n, k;
  MR_HD void operator()(int64_t at) const {
    const int64_t row = at / n, i = at - row * n;
    const T* x = in + row * n;
    int64_t place = 0;
    for (int64_t j = 0; j < n && place < k; ++j) place += GoesBefore(x[j], j, x[i], i) ? 1 : 0;
    if (place >= k) return;
    values[row * k + place] = x[i];
    indices[row * k + place] = static_cast<I>(i);
  }
};

template <typename Launcher>
Outcome RunTopK(Queue queue, const TopKParams& p) {
  constexpr int64_t kFewRounds = 64;
  const Launcher launcher(queue);
  return Dispatch(
      Types<float, double, Half, BFloat16, int64_t, int32_t>(), p.type, [&]<typename T>() {
        return Dispatch(Types<int16_t, int32_t, int64_t>(), p.index_type, [&]<typename I>() {
          const auto* const in = static_cast<const T*>(p.in);
          auto* const values = static_cast<T*>(p.values);
          auto* const indices = static_cast<I*>(p.indices);
          if (p.k > kFewRounds) {
            return launcher.ForEach(p.rows * p.n, TopKEach<T, I>{in, values, indices, p.n, p.k});
          }
          return launcher.ForTeams(p.rows, p.n, TopKRow<T, I>{in, values, indices, p.n, p.k});
        });
      });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_TOP_K_LOOPS_H_
