// SPDX-License-Identifier: Apache-2.0
// Runs loops on the thread that asks for them: for tests on machines without a GPU.
#ifndef KERNELS_GPU_HOST_HOST_LAUNCHER_H_
#define KERNELS_GPU_HOST_HOST_LAUNCHER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// A launcher has
//   ForEach(n, f): f(i) for i in [0, n), all at once as far as f can tell;
//   ForTeams(rows, width, f): f(team, row) for each row, by a team of threads that share work
//     of about `width` elements: member team.rank() of team.size() takes elements rank,
//     rank + size, ...; team.Reduce(value, identity, op) gives all members the combination of
//     their values, team.Scan(value, identity, op) what lies before each, and all (Scanned);
//   ForTiles<T, kSize>(n, f): f(team, i, tile) for i in [0, n), each by a team whose members share
//     `tile`, an array of kSize elements of T; team.Sync() waits until all have come to it;
//   SortPairs(n, keys, values, ...): a stable sort.
class HostLauncher {
 public:
  explicit HostLauncher(Queue) {}

  class Team {
   public:
    static constexpr int64_t rank() { return 0; }
    static constexpr int64_t size() { return 1; }
    template <typename T, typename Op>
    T Reduce(T value, T, Op) const {
      return value;
    }
    template <typename T, typename Op>
    Scanned<T> Scan(T value, T identity, Op) const {
      return {identity, value};
    }
    static void Sync() {}
  };

  template <typename F>
  Outcome ForEach(int64_t n, const F& f) const {
    for (int64_t i = 0; i < n; ++i) f(i);
    return nullptr;
  }
  template <typename F>
  Outcome ForTeams(int64_t rows, int64_t, const F& f) const {
    const Team team;
    for (int64_t row = 0; row < rows; ++row) f(team, row);
    return nullptr;
  }

  template <typename T, int kSize, typename F>
  Outcome ForTiles(int64_t n, const F& f) const {
    const auto tile = std::make_unique<T[]>(kSize);
    for (int64_t i = 0; i < n; ++i) f(Team(), i, tile.get());
    return nullptr;
  }

  static int64_t SortScratchBytes(int64_t) { return 0; }
  static Outcome SortPairs(int64_t n, const int64_t* keys, int64_t* sorted_keys,
                           const int32_t* values, int32_t* sorted_values, void*, int64_t, int64_t) {
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [keys](int64_t a, int64_t b) { return keys[a] < keys[b]; });
    for (int64_t i = 0; i < n; ++i) {
      sorted_keys[i] = keys[order[i]];
      sorted_values[i] = values[order[i]];
    }
    return nullptr;
  }
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_HOST_HOST_LAUNCHER_H_
