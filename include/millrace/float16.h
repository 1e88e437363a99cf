// SPDX-License-Identifier: Apache-2.0
// 16-bit floating point values, stored as their bit patterns. Arithmetic goes through
// float: `Half(float(a) + float(b))`.
#ifndef MILLRACE_FLOAT16_H_
#define MILLRACE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace millrace {

// The upper half of a float: 8 exponent bits, 7 fraction bits. Rounds to nearest even.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);  // stays a NaN
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static BFloat16 FromBits(uint16_t bits) {
    BFloat16 v;
    v.bits = bits;
    return v;
  }
  friend bool operator==(BFloat16 a, BFloat16 b) { return float(a) == float(b); }
  friend bool operator<(BFloat16 a, BFloat16 b) { return float(a) < float(b); }
};

// IEEE 754 binary16: 5 exponent bits, 10 fraction bits. Rounds to nearest even.
struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    } else if (magnitude >= 0x477ff000u) {  // rounds to infinity
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // subnormal or zero: let the FPU round
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    } else {
      const uint32_t rebased = magnitude - 0x38000000u;
      bits = static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
    }
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    const uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu) {
      return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) {  // zero and subnormals: fraction * 2^-24
      const float value = static_cast<float>(fraction) * 5.9604644775390625e-8f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  }
  static Half FromBits(uint16_t bits) {
    Half v;
    v.bits = bits;
    return v;
  }
  friend bool operator==(Half a, Half b) { return float(a) == float(b); }
  friend bool operator<(Half a, Half b) { return float(a) < float(b); }
};

}  // namespace millrace

#endif  // MILLRACE_FLOAT16_H_
