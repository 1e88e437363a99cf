// SPDX-License-Identifier: Apache-2.0
// Patterns of eight bits as numbers, and the nearest pattern of a number.
#include <cmath>
#include <cstdint>
#include <limits>

#include "millrace/float16.h"

namespace millrace::internal {
namespace {

// How a format divides its bits, and what it keeps for what is no number.
struct Layout {
  int fraction_bits;
  int bias;
  int largest;       // the pattern of the largest number
  int infinity;      // what a positive number becomes that is too large
  int nan;           // without a sign
  bool signed_zero;  // else 0x80 is the NaN
};

constexpr Layout LayoutOf(Float8Format format) {
  switch (format) {
    case Float8Format::kE5m2:
      return {2, 15, 0x7b, 0x7c, 0x7e, true};
    case Float8Format::kE4m3fn:
      return {3, 7, 0x7e, 0x7f, 0x7f, true};
    case Float8Format::kE4m3fnuz:
      return {3, 8, 0x7f, 0x80, 0x80, false};
    case Float8Format::kE4m3b11fnuz:
      return {3, 11, 0x7f, 0x80, 0x80, false};
    case Float8Format::kE5m2fnuz:
      return {2, 16, 0x7f, 0x80, 0x80, false};
  }
  return {2, 15, 0x7b, 0x7c, 0x7e, true};
}

}  // namespace

uint8_t Float8FromDouble(Float8Format format, double value) {
  const Layout layout = LayoutOf(format);
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<uint8_t>(layout.nan | sign);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<uint8_t>(layout.infinity | sign);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int lowest = 1 - layout.bias;  // what subnormal numbers have
  exponent = magnitude == 0 || exponent - 1 < lowest ? lowest : exponent - 1;
  // In units of the last place: exact before it is rounded.
  const double units = std::nearbyint(std::ldexp(magnitude, layout.fraction_bits - exponent));
  const int pattern =
      ((exponent + layout.bias - 1) << layout.fraction_bits) + static_cast<int>(units);
  if (pattern > layout.largest) return static_cast<uint8_t>(layout.infinity | sign);
  if (pattern == 0 && !layout.signed_zero) return 0;
  return static_cast<uint8_t>(pattern | sign);
}

float Float8ToFloat(Float8Format format, uint8_t bits) {
  const Layout layout = LayoutOf(format);
  const int pattern = bits & 0x7f;
  const bool negative = (bits & 0x80) != 0;
  if (!layout.signed_zero && bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  float value = 0;
  if (pattern > layout.largest) {
    value = format == Float8Format::kE5m2 && pattern == layout.infinity
                ? std::numeric_limits<float>::infinity()
                : std::numeric_limits<float>::quiet_NaN();
  } else {
    const int exponent = pattern >> layout.fraction_bits;
    const int fraction = pattern & ((1 << layout.fraction_bits) - 1);
    const int units = exponent == 0 ? fraction : fraction + (1 << layout.fraction_bits);
    value = std::ldexp(static_cast<float>(units),
                       (exponent == 0 ? 1 : exponent) - layout.bias - layout.fraction_bits);
  }
  return negative ? -value : value;
}

}  // namespace millrace::internal
