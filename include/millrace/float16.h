// SPDX-License-Identifier: Apache-2.0
// Floating point values of 16 and of 8 bits, stored as their bit patterns. Arithmetic goes through
// float: `Half(float(a) + float(b))`.
#ifndef MILLRACE_FLOAT16_H_
#define MILLRACE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace millrace {

// The upper half of a float: 8 exponent bits, 7 fraction bits. Rounds to nearest even.
struct BFloat16 {
  uint16_t bits = 0;  // the pattern: sign, exponent, fraction

  // Zero.
  BFloat16() = default;
  // The nearest value; a NaN stays one.
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
  // The value with this pattern.
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
  uint16_t bits = 0;  // the pattern: sign, exponent, fraction

  // Zero.
  Half() = default;
  // The nearest value, infinity from 65520 on; a NaN stays one.
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
  // The value with this pattern.
  static Half FromBits(uint16_t bits) {
    Half v;
    v.bits = bits;
    return v;
  }
  friend bool operator==(Half a, Half b) { return float(a) == float(b); }
  friend bool operator<(Half a, Half b) { return float(a) < float(b); }
};

// The ways to read eight bits as a number: how many of them are exponent, and what the highest
// exponent means. They are those of the DataTypes of the same names.
enum class Float8Format : uint8_t {
  kE5m2,         // as IEEE 754 has it: infinities and NaNs
  kE4m3fn,       // no infinities: one NaN of each sign
  kE4m3fnuz,     // no infinities, no negative zero: its pattern is the only NaN
  kE4m3b11fnuz,  // the same with an exponent bias of 11
  kE5m2fnuz,     // five exponent bits, bias 16, no infinities, no negative zero
};

namespace internal {
// The nearest pattern, ties to even. What is too large is an infinity, or a NaN where the format
// has no infinities.
uint8_t Float8FromDouble(Float8Format format, double value);
float Float8ToFloat(Float8Format format, uint8_t bits);
}  // namespace internal

// A value of one byte. There are no kernels that calculate with it: it is stored, moved and cast.
template <Float8Format kFormat>
struct Float8 {
  uint8_t bits = 0;  // the pattern: sign, exponent, fraction

  // Zero.
  Float8() = default;
  // The nearest value, ties to even; beyond the largest an infinity, or a NaN without infinities.
  explicit Float8(float value) : bits(internal::Float8FromDouble(kFormat, value)) {}
  // The same, rounded once.
  explicit Float8(double value) : bits(internal::Float8FromDouble(kFormat, value)) {}
  explicit operator float() const { return internal::Float8ToFloat(kFormat, bits); }
  // The value with this pattern.
  static Float8 FromBits(uint8_t bits) {
    Float8 v;
    v.bits = bits;
    return v;
  }
  friend bool operator==(Float8 a, Float8 b) { return float(a) == float(b); }
  friend bool operator<(Float8 a, Float8 b) { return float(a) < float(b); }
};

using Float8E5m2 = Float8<Float8Format::kE5m2>;                // of DT_FLOAT8_E5M2
using Float8E4m3fn = Float8<Float8Format::kE4m3fn>;            // of DT_FLOAT8_E4M3FN
using Float8E4m3fnuz = Float8<Float8Format::kE4m3fnuz>;        // of DT_FLOAT8_E4M3FNUZ
using Float8E4m3b11fnuz = Float8<Float8Format::kE4m3b11fnuz>;  // of DT_FLOAT8_E4M3B11FNUZ
using Float8E5m2fnuz = Float8<Float8Format::kE5m2fnuz>;        // of DT_FLOAT8_E5M2FNUZ

}  // namespace millrace

#endif  // MILLRACE_FLOAT16_H_
