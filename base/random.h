// SPDX-License-Identifier: Apache-2.0
// Random bits: Philox 4x32-10 as TensorFlow's kernels use it, and ids.
#ifndef BASE_RANDOM_H_
#define BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace millrace {

// Counter-based generator (Salmon et al., SC'11). Each call gives four 32-bit words and
// advances the 128-bit counter by one. A plain value: copy it freely.
class Philox {
 public:
  using Result = std::array<uint32_t, 4>;

  Philox() = default;
  // TensorFlow's layout: the key holds `seed_lo`, the upper half of the counter `seed_hi`.
  Philox(uint64_t seed_lo, uint64_t seed_hi);

  // Advances the counter by `count` without computing.
  void Skip(uint64_t count);
  Result operator()();

 private:
  std::array<uint32_t, 4> counter_{};
  std::array<uint32_t, 2> key_{};
};

// A random number from the operating system: handles, incarnations, step ids. Never 0.
uint64_t RandomId();

}  // namespace millrace

#endif  // BASE_RANDOM_H_
