// SPDX-License-Identifier: Apache-2.0
// Random ops: what they accept, and where in Philox' sequence they begin. For the kernels of all
// devices; pure.
#ifndef KERNELS_RANDOM_RANDOM_PLAN_H_
#define KERNELS_RANDOM_RANDOM_PLAN_H_

#include <cstdint>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"

namespace millrace {

// A generator at `counter` (low and high half) under `key`.
inline Philox PhiloxAt(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  Philox philox(key, counter_high);
  philox.Skip(counter_low);
  return philox;
}

struct KeyCounter {
  uint64_t key = 0;
  uint64_t counter_low = 0, counter_high = 0;

  Philox Generator() const { return PhiloxAt(key, counter_low, counter_high); }
};

// The two numbers of `seed`, int32 or int64 [2], stirred into a key and a counter, so that weak
// seeds do as well as strong ones. InvalidArgument for any other shape.
inline StatusOr<KeyCounter> KeyFromSeed(const Tensor& seed) {
  MR_ASSIGN_OR_RETURN(const Dims seeds, IntVector(seed, "seed", /*vector_only=*/true));
  if (seeds.size() != 2) {
    return errors::InvalidArgument("seed must have shape [2], not ", seed.shape().DebugString());
  }
  constexpr uint64_t kStirringKey = 0x02461e293ec8f720u;
  const Philox::Result mix =
      PhiloxAt(kStirringKey, static_cast<uint64_t>(seeds[0]), static_cast<uint64_t>(seeds[1]))();
  const auto join = [](uint32_t low, uint32_t high) {
    return low | (static_cast<uint64_t>(high) << 32);
  };
  return KeyCounter{join(mix[0], mix[1]), 0, join(mix[2], mix[3])};
}

// What the attribute or input `alg` of the ops that are given a key and a counter may be.
constexpr int32_t kPhiloxAlgorithm = 1;
constexpr int32_t kAutoAlgorithm = 3;

// From inputs on the host, uint64 but for `alg`. InvalidArgument for other shapes, Unimplemented
// for another algorithm.
StatusOr<KeyCounter> ReadKeyCounter(const Tensor& key, const Tensor& counter, const Tensor& alg);

// The bounds of uniform integers. InvalidArgument for tensors that are no scalars, or an empty
// range.
Status CheckBoundShapes(const Shape& minval, const Shape& maxval);
template <typename T>
Status CheckIntRange(T low, T high) {
  if (low < high) return OkStatus();
  return errors::InvalidArgument("Need minval < maxval, got ", low, " >= ", high);
}

}  // namespace millrace

#endif  // KERNELS_RANDOM_RANDOM_PLAN_H_
