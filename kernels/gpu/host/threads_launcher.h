// SPDX-License-Identifier: Apache-2.0
// Runs loops on several threads, for tests: teams have members, as on a GPU.
#ifndef KERNELS_GPU_HOST_THREADS_LAUNCHER_H_
#define KERNELS_GPU_HOST_THREADS_LAUNCHER_H_

#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// Teams of several threads, as a GPU's: members share a row.
class ThreadsLauncher {
 public:
  static constexpr int kThreads = 3;
  explicit ThreadsLauncher(Queue) {}

  struct Shared {
    std::barrier<> barrier{kThreads};
    double slots[kThreads];
  };
  class Team {
   public:
    Team(Shared* shared, int rank) : shared_(shared), rank_(rank) {}
    int64_t rank() const { return rank_; }
    static constexpr int64_t size() { return kThreads; }
    template <typename T, typename Op>
    T Reduce(T value, T identity, Op op) const {
      std::memcpy(&shared_->slots[rank_], &value, sizeof(value));
      shared_->barrier.arrive_and_wait();
      T total = identity;
      for (const double& slot : shared_->slots) {
        T other;
        std::memcpy(&other, &slot, sizeof(other));
        total = op(total, other);
      }
      shared_->barrier.arrive_and_wait();
      return total;
    }
    template <typename T, typename Op>
    Scanned<T> Scan(T value, T identity, Op op) const {
      std::memcpy(&shared_->slots[rank_], &value, sizeof(value));
      shared_->barrier.arrive_and_wait();
      Scanned<T> scanned{identity, identity};
      for (int rank = 0; rank < kThreads; ++rank) {
        if (rank == rank_) scanned.before = scanned.all;
        T other;
        std::memcpy(&other, &shared_->slots[rank], sizeof(other));
        scanned.all = op(scanned.all, other);
      }
      shared_->barrier.arrive_and_wait();
      return scanned;
    }

   private:
    Shared* const shared_;
    const int rank_;
  };

  template <typename F>
  Outcome ForEach(int64_t n, const F& f) const {
    for (int64_t i = n; i-- > 0;) f(i);  // in another order
    return nullptr;
  }
  template <typename F>
  Outcome ForTeams(int64_t rows, int64_t, const F& f) const {
    Shared shared;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kThreads; ++rank) {
      threads.emplace_back([&, rank] {
        const Team team(&shared, rank);
        for (int64_t row = 0; row < rows; ++row) f(team, row);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return nullptr;
  }
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_HOST_THREADS_LAUNCHER_H_
