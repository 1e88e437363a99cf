// SPDX-License-Identifier: Apache-2.0
// The generator of a stateful random op.
#ifndef KERNELS_COMMON_SHARED_PHILOX_H_
#define KERNELS_COMMON_SHARED_PHILOX_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "base/random.h"
#include "kernels/kernel_context.h"

namespace millrace {

// Seeded by the op's `seed` and `seed2`, or at random where both are 0. Each call of a kernel
// takes a part of its sequence. Thread-safe.
class SharedPhilox {
 public:
  explicit SharedPhilox(KernelConstruction& c) {
    auto seed = static_cast<uint64_t>(c.attrs().GetOr<int64_t>("seed", 0));
    auto seed2 = static_cast<uint64_t>(c.attrs().GetOr<int64_t>("seed2", 0));
    if (seed == 0 && seed2 == 0) {
      seed = RandomId();
      seed2 = RandomId();
    }
    generator_ = Philox(seed, seed2);
  }
  // A generator at the current position; the own one moves on by `blocks` of four words.
  Philox Reserve(uint64_t blocks) {
    MutexLock lock(&mu_);
    const Philox reserved = generator_;
    generator_.Skip(blocks);
    return reserved;
  }

 private:
  Mutex mu_;
  Philox generator_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_COMMON_SHARED_PHILOX_H_
