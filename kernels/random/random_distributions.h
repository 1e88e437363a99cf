// SPDX-License-Identifier: Apache-2.0
// From Philox's words to numbers: TensorFlow's distributions, bit by bit. Each takes blocks of
// four words; which words make which output is part of the definition and never changes.
#ifndef KERNELS_RANDOM_RANDOM_DISTRIBUTIONS_H_
#define KERNELS_RANDOM_RANDOM_DISTRIBUTIONS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/random.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel_context.h"

namespace millrace {

// Blocks of random words reserved per output, and skipped per group by rejection sampling.
inline constexpr int64_t kReservedPerOutput = 256;

// Outputs per block of four words: two for 8-byte types, four for the others.
template <typename T>
inline constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;

// In [0, 1): the fraction bits of a float in [1, 2), minus 1.
inline float UniformFloat(uint32_t x) {
  return std::bit_cast<float>((uint32_t{127} << 23) | (x & 0x7fffffu)) - 1.0f;
}
inline double UniformDouble(uint32_t high, uint32_t low) {
  const uint64_t fraction = (static_cast<uint64_t>(high & 0xfffffu) << 32) | low;
  return std::bit_cast<double>((uint64_t{1023} << 52) | fraction) - 1.0;
}
inline Half UniformHalf(uint32_t x) {
  const Half h = Half::FromBits(static_cast<uint16_t>((15u << 10) | (x & 0x3ffu)));
  return Half(static_cast<float>(h) - 1.0f);
}
inline BFloat16 UniformBfloat16(uint32_t x) {
  const BFloat16 b = BFloat16::FromBits(static_cast<uint16_t>((127u << 7) | (x & 0x7fu)));
  return BFloat16(static_cast<float>(b) - 1.0f);
}

// Two independent normal values from two uniform ones (Box and Muller, 1958).
inline void BoxMuller(uint32_t x0, uint32_t x1, float* f0, float* f1) {
  const float u = std::max(UniformFloat(x0), 1.0e-7f);
  const float angle = static_cast<float>(2.0 * M_PI) * UniformFloat(x1);
  const float radius = std::sqrt(-2.0f * std::log(u));
  *f0 = std::sin(angle) * radius;
  *f1 = std::cos(angle) * radius;
}
inline void BoxMuller(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, double* d0, double* d1) {
  const double u = std::max(UniformDouble(x0, x1), 1.0e-7);
  const double angle = 2.0 * M_PI * UniformDouble(x2, x3);
  const double radius = std::sqrt(-2.0 * std::log(u));
  *d0 = std::sin(angle) * radius;
  *d1 = std::cos(angle) * radius;
}

// --- Distributions: a group of outputs from one block ---------------------------------------
struct UniformDistribution {
  static constexpr double kCost = 2;
  template <typename T>
  void operator()(const Philox::Result& r, T* out) const {
    if constexpr (std::is_same_v<T, double>) {
      out[0] = UniformDouble(r[0], r[1]);
      out[1] = UniformDouble(r[2], r[3]);
    } else {
      for (int i = 0; i < 4; ++i) {
        if constexpr (std::is_same_v<T, Half>) {
          out[i] = UniformHalf(r[i]);
        } else if constexpr (std::is_same_v<T, BFloat16>) {
          out[i] = UniformBfloat16(r[i]);
        } else {
          out[i] = UniformFloat(r[i]);
        }
      }
    }
  }
};

struct NormalDistribution {
  static constexpr double kCost = 10;
  template <typename T>
  void operator()(const Philox::Result& r, T* out) const {
    if constexpr (std::is_same_v<T, double>) {
      BoxMuller(r[0], r[1], r[2], r[3], &out[0], &out[1]);
    } else {
      for (int i = 0; i < 4; i += 2) {
        float f0, f1;
        BoxMuller(r[i], r[i + 1], &f0, &f1);
        out[i] = static_cast<T>(f0);
        out[i + 1] = static_cast<T>(f1);
      }
    }
  }
};

// All values of an integer type.
struct FullIntDistribution {
  static constexpr double kCost = 2;
  template <typename T>
  void operator()(const Philox::Result& r, T* out) const {
    for (int i = 0; i < kGroup<T>; ++i) {
      if constexpr (sizeof(T) == 8) {
        out[i] = static_cast<T>(r[2 * i] | (static_cast<uint64_t>(r[2 * i + 1]) << 32));
      } else {
        out[i] = static_cast<T>(r[i]);
      }
    }
  }
};

// Integers in [low, low + range).
template <typename T>
struct UniformIntDistribution {
  static constexpr double kCost = 4;
  using U = std::make_unsigned_t<T>;
  T low;
  U range;
  void operator()(const Philox::Result& r, T* out) const {
    U bits[4];
    FullIntDistribution()(r, bits);
    for (int i = 0; i < kGroup<T>; ++i) {
      out[i] = static_cast<T>(static_cast<U>(low) + bits[i] % range);
    }
  }
};

// One word after another from blocks of four.
class PhiloxWords {
 public:
  explicit PhiloxWords(const Philox& generator) : generator_(generator) {}
  uint32_t operator()() {
    if (used_ == 4) {
      block_ = generator_();
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  Philox generator_;
  Philox::Result block_{};
  int used_ = 4;
};

// --- Filling tensors: group g of outputs from block g, whatever the threads -----------------
template <typename T, typename Distribution>
void FillRandom(const KernelContext& ctx, const Distribution& distribution, const Philox& base,
                T* out, int64_t n) {
  constexpr int kSize = kGroup<T>;
  const int64_t groups = (n + kSize - 1) / kSize;
  ctx.ParallelFor(groups, Distribution::kCost * kSize, [&](int64_t begin, int64_t end) {
    Philox generator = base;
    generator.Skip(begin);
    for (int64_t g = begin; g < end; ++g) {
      T group[4];
      distribution(generator(), group);
      const int64_t at = g * kSize;
      std::copy_n(group, std::min<int64_t>(kSize, n - at), out + at);
    }
  });
}

// Normal values, drawn again while beyond two standard deviations. A group takes as many
// words as it needs from a stretch of its own.
template <typename T>
void FillTruncatedNormal(const KernelContext& ctx, const Philox& base, T* out, int64_t n) {
  constexpr int kSize = kGroup<T>;
  constexpr int64_t kSkip = kSize * kReservedPerOutput / 4;
  const int64_t groups = (n + kSize - 1) / kSize;
  ctx.ParallelFor(groups, 15.0 * kSize, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      Philox generator = base;
      generator.Skip(g * kSkip);
      PhiloxWords words(generator);
      ComputeType<T> group[4];
      for (int filled = 0; filled < kSize;) {
        ComputeType<T> pair[2];
        const uint32_t x0 = words(), x1 = words();
        if constexpr (std::is_same_v<T, double>) {
          const uint32_t x2 = words(), x3 = words();
          BoxMuller(x0, x1, x2, x3, &pair[0], &pair[1]);
        } else {
          BoxMuller(x0, x1, &pair[0], &pair[1]);
        }
        for (const auto v : pair) {
          if (std::abs(v) < 2 && filled < kSize) group[filled++] = v;
        }
      }
      const int64_t at = g * kSize;
      const int count = static_cast<int>(std::min<int64_t>(kSize, n - at));
      for (int i = 0; i < count; ++i) out[at + i] = static_cast<T>(group[i]);
    }
  });
}

}  // namespace millrace

#endif  // KERNELS_RANDOM_RANDOM_DISTRIBUTIONS_H_
