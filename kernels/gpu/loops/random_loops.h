// SPDX-License-Identifier: Apache-2.0
// Random numbers with the CPU's bits: Philox 4x32-10, and TensorFlow's distributions over it.
// Normal values differ from the CPU's by what the two libraries' sines and logarithms do.
#ifndef KERNELS_GPU_LOOPS_RANDOM_LOOPS_H_
#define KERNELS_GPU_LOOPS_RANDOM_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

struct PhiloxBlock {
  uint32_t v[4];
};

// As base/random.h, where device code can have it.
struct PhiloxState {
  uint32_t counter[4];
  uint32_t key[2];

  MR_HD void Skip(uint64_t count) {
    const uint64_t low = (static_cast<uint64_t>(counter[1]) << 32) | counter[0];
    const uint64_t sum = low + count;
    counter[0] = static_cast<uint32_t>(sum);
    counter[1] = static_cast<uint32_t>(sum >> 32);
    if (sum < low && ++counter[2] == 0) ++counter[3];
  }
  MR_HD PhiloxBlock Next() {
    PhiloxBlock c{{counter[0], counter[1], counter[2], counter[3]}};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53u} * c.v[0], b = uint64_t{0xCD9E8D57u} * c.v[2];
      c = {{static_cast<uint32_t>(b >> 32) ^ c.v[1] ^ k0, static_cast<uint32_t>(b),
            static_cast<uint32_t>(a >> 32) ^ c.v[3] ^ k1, static_cast<uint32_t>(a)}};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    Skip(1);
    return c;
  }
};

template <typename To, typename From>
MR_HD To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof(to));
  return to;
}

// In [0, 1): the fraction bits of a number in [1, 2), minus 1.
MR_HD inline float UnitFloat(uint32_t x) {
  return BitsAs<float>((uint32_t{127} << 23) | (x & 0x7fffffu)) - 1.0f;
}
MR_HD inline double UnitDouble(uint32_t high, uint32_t low) {
  const uint64_t fraction = (static_cast<uint64_t>(high & 0xfffffu) << 32) | low;
  return BitsAs<double>((uint64_t{1023} << 52) | fraction) - 1.0;
}

// Box and Muller, 1958.
inline constexpr double kTwoPi = 6.283185307179586476925286766559;
MR_HD inline void NormalPair(uint32_t x0, uint32_t x1, float* f0, float* f1) {
  const float u = Larger(UnitFloat(x0), 1.0e-7f);
  const float angle = static_cast<float>(kTwoPi) * UnitFloat(x1);
  const float radius = std::sqrt(-2.0f * std::log(u));
  *f0 = std::sin(angle) * radius;
  *f1 = std::cos(angle) * radius;
}
MR_HD inline void NormalPair(uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3, double* d0,
                             double* d1) {
  const double u = Larger(UnitDouble(x0, x1), 1.0e-7);
  const double angle = kTwoPi * UnitDouble(x2, x3);
  const double radius = std::sqrt(-2.0 * std::log(u));
  *d0 = std::sin(angle) * radius;
  *d1 = std::cos(angle) * radius;
}

// Outputs per block of four words.
template <typename T>
inline constexpr int kRandomGroup = sizeof(T) == 8 ? 2 : 4;

template <typename T>
MR_HD T UniformOf(uint32_t x) {
  T value;
  if constexpr (std::is_same_v<T, Half>) {
    value.bits = static_cast<uint16_t>((15u << 10) | (x & 0x3ffu));
    return Narrow<Half>(Widen(value) - 1.0f);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    value.bits = static_cast<uint16_t>((127u << 7) | (x & 0x7fu));
    return Narrow<BFloat16>(Widen(value) - 1.0f);
  } else {
    value = UnitFloat(x);
    return value;
  }
}

template <RandomKind kKind, typename T>
struct RandomEach {
  static constexpr int kGroup = kRandomGroup<T>;
  PhiloxState start;
  const uint64_t* skipped;  // null: none
  T* out;
  int64_t n;
  int64_t low;
  uint64_t range;

  MR_HD void operator()(int64_t group) const {
    PhiloxState state = start;
    if (skipped != nullptr) state.Skip(*skipped);
    state.Skip(static_cast<uint64_t>(group));
    const PhiloxBlock r = state.Next();
    T made[4];
    if constexpr (kKind == RandomKind::kUniformInt) {
      for (int i = 0; i < kGroup; ++i) {
        if constexpr (sizeof(T) == 8) {
          const uint64_t bits = r.v[2 * i] | (static_cast<uint64_t>(r.v[2 * i + 1]) << 32);
          made[i] = static_cast<T>(static_cast<uint64_t>(low) + bits % range);
        } else {
          const auto part = static_cast<uint32_t>(r.v[i] % static_cast<uint32_t>(range));
          made[i] = static_cast<T>(static_cast<uint32_t>(low) + part);
        }
      }
    } else if constexpr (kKind == RandomKind::kUniform) {
      if constexpr (std::is_same_v<T, double>) {
        made[0] = UnitDouble(r.v[0], r.v[1]);
        made[1] = UnitDouble(r.v[2], r.v[3]);
      } else {
        for (int i = 0; i < 4; ++i) made[i] = UniformOf<T>(r.v[i]);
      }
    } else if constexpr (std::is_same_v<T, double>) {
      NormalPair(r.v[0], r.v[1], r.v[2], r.v[3], &made[0], &made[1]);
    } else {
      for (int i = 0; i < 4; i += 2) {
        float f0, f1;
        NormalPair(r.v[i], r.v[i + 1], &f0, &f1);
        made[i] = Narrow<T>(f0);
        made[i + 1] = Narrow<T>(f1);
      }
    }
    const int64_t first = group * kGroup;
    for (int i = 0; i < kGroup && first + i < n; ++i) out[first + i] = made[i];
  }
};

// Drawn again while beyond two standard deviations; a group has a stretch of words of its own.
template <typename T>
struct TruncatedEach {
  static constexpr int kGroup = kRandomGroup<T>;
  static constexpr int64_t kBlocksPerOutput = 256;
  PhiloxState start;
  const uint64_t* skipped;  // null: none
  T* out;
  int64_t n;

  MR_HD void operator()(int64_t group) const {
    using C = ComputeType<T>;
    PhiloxState state = start;
    if (skipped != nullptr) state.Skip(*skipped);
    state.Skip(static_cast<uint64_t>(group * (kGroup * kBlocksPerOutput / 4)));
    C made[kGroup];
    int filled = 0, used = 4;
    PhiloxBlock block{};
    while (filled < kGroup) {
      uint32_t x[4];
      for (int i = 0; i < (sizeof(C) == 8 ? 4 : 2); ++i) {
        if (used == 4) {
          block = state.Next();
          used = 0;
        }
        x[i] = block.v[used++];
      }
      C pair[2];
      if constexpr (sizeof(C) == 8) {
        NormalPair(x[0], x[1], x[2], x[3], &pair[0], &pair[1]);
      } else {
        NormalPair(x[0], x[1], &pair[0], &pair[1]);
      }
      for (int i = 0; i < 2; ++i) {
        if (std::fabs(pair[i]) < C(2) && filled < kGroup) made[filled++] = pair[i];
      }
    }
    const int64_t first = group * kGroup;
    for (int i = 0; i < kGroup && first + i < n; ++i) out[first + i] = Narrow<T>(made[i]);
  }
};

template <typename Launcher>
Outcome RunRandom(Queue queue, const RandomParams& p) {
  const PhiloxState start{{p.counter[0], p.counter[1], p.counter[2], p.counter[3]},
                          {p.key[0], p.key[1]}};
  const Launcher launcher(queue);
  const auto groups = [&](int size) { return (p.n + size - 1) / size; };
  switch (p.kind) {
    case RandomKind::kUniform:
      return Dispatch(Floats(), p.type, [&]<typename T>() {
        return launcher.ForEach(groups(kRandomGroup<T>),
                                RandomEach<RandomKind::kUniform, T>{
                                    start, p.skipped, static_cast<T*>(p.out), p.n, p.low, p.range});
      });
    case RandomKind::kNormal:
      return Dispatch(Floats(), p.type, [&]<typename T>() {
        return launcher.ForEach(groups(kRandomGroup<T>),
                                RandomEach<RandomKind::kNormal, T>{
                                    start, p.skipped, static_cast<T*>(p.out), p.n, p.low, p.range});
      });
    case RandomKind::kTruncatedNormal:
      return Dispatch(Floats(), p.type, [&]<typename T>() {
        return launcher.ForEach(groups(kRandomGroup<T>),
                                TruncatedEach<T>{start, p.skipped, static_cast<T*>(p.out), p.n});
      });
    case RandomKind::kUniformInt:
      return Dispatch(Types<int32_t, int64_t>(), p.type, [&]<typename T>() {
        return launcher.ForEach(groups(kRandomGroup<T>),
                                RandomEach<RandomKind::kUniformInt, T>{
                                    start, p.skipped, static_cast<T*>(p.out), p.n, p.low, p.range});
      });
  }
  return kNoLoop;
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_RANDOM_LOOPS_H_
