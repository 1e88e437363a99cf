// SPDX-License-Identifier: Apache-2.0
#include "millrace/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/tensor.h"

namespace millrace {
namespace {

TEST(DataTypeTest, NamesReadBackInBothForms) {
  for (int i = 1; i <= 33; ++i) {
    for (const DataType dtype : {static_cast<DataType>(i), static_cast<DataType>(i + 100)}) {
      DataType parsed = DataType::kInvalid;
      ASSERT_TRUE(DataTypeFromName(DataTypeName(dtype), &parsed)) << i;
      EXPECT_EQ(parsed, dtype);
    }
  }
  DataType dtype = DataType::kInvalid;
  EXPECT_TRUE(DataTypeFromName("DT_FLOAT_REF", &dtype));
  EXPECT_EQ(dtype, MakeRefType(kFloat));
  EXPECT_TRUE(DataTypeFromName("DT_BFLOAT16", &dtype));
  EXPECT_EQ(dtype, kBfloat16);
}

TEST(DataTypeTest, RefusesUnknownNames) {
  DataType dtype = kFloat;
  for (const char* bad : {"", "INVALID", "Float", "DT_float", "DT_", "float_ref_ref", "FLOAT"}) {
    EXPECT_FALSE(DataTypeFromName(bad, &dtype)) << bad;
  }
  EXPECT_EQ(DataTypeName(static_cast<DataType>(99)), "INVALID");
  EXPECT_EQ(DataTypeName(static_cast<DataType>(-7)), "INVALID");
  EXPECT_EQ(DataTypeSize(static_cast<DataType>(1000)), 0u);
}

TEST(DataTypeTest, KnowsSizesAndKinds) {
  EXPECT_EQ(DataTypeSize(kFloat), 4u);
  EXPECT_EQ(DataTypeSize(MakeRefType(kDouble)), 8u);
  EXPECT_EQ(DataTypeSize(kComplex128), 16u);
  EXPECT_EQ(DataTypeSize(kString), sizeof(std::string));
  EXPECT_EQ(DataTypeSize(kResource), sizeof(ResourceHandle));
  EXPECT_TRUE(IsMemcpyable(kBool));
  EXPECT_TRUE(IsMemcpyable(DataType::kQint8));
  EXPECT_FALSE(IsMemcpyable(kString));
  EXPECT_FALSE(IsMemcpyable(kResource));
  EXPECT_FALSE(IsMemcpyable(kVariant));
  EXPECT_TRUE(IsFloating(kHalf));
  EXPECT_FALSE(IsFloating(kInt32));
  EXPECT_TRUE(IsInteger(kUint64));
  EXPECT_FALSE(IsInteger(kBool));
  EXPECT_TRUE(IsComplex(kComplex64));
}

// Compares with all patterns of the format, one by one.
template <typename T>
void ExpectNearest(double value) {
  const T got(value);
  if (float(got) != float(got)) return;  // beyond the largest number: looked at below
  double best = std::numeric_limits<double>::infinity();
  for (int bits = 0; bits < 256; ++bits) {
    const auto candidate = static_cast<double>(float(T::FromBits(static_cast<uint8_t>(bits))));
    if (std::isfinite(candidate)) best = std::min(best, std::fabs(candidate - value));
  }
  if (std::isinf(float(got))) return;
  EXPECT_EQ(std::fabs(static_cast<double>(float(got)) - value), best) << value;
}

template <typename T>
void ExpectRoundTrips() {
  for (int bits = 0; bits < 256; ++bits) {
    const float value(T::FromBits(static_cast<uint8_t>(bits)));
    if (value != value) {
      EXPECT_NE(float(T(value)), float(T(value))) << bits;
      continue;
    }
    EXPECT_EQ(T(value).bits, bits);
  }
  for (double value = 1e-7; value < 1e5; value *= 1.037) {
    ExpectNearest<T>(value);
    ExpectNearest<T>(-value);
  }
}

TEST(Float8Test, EveryPatternSurvivesAndOtherNumbersGoToTheNearest) {
  ExpectRoundTrips<Float8E5m2>();
  ExpectRoundTrips<Float8E4m3fn>();
  ExpectRoundTrips<Float8E4m3fnuz>();
  ExpectRoundTrips<Float8E4m3b11fnuz>();
  ExpectRoundTrips<Float8E5m2fnuz>();
}

// Numbers of ml_dtypes, whose types TensorFlow's are.
TEST(Float8Test, HasTheLimitsOfItsFormats) {
  EXPECT_EQ(float(Float8E5m2::FromBits(0x7b)), 57344.0f);
  EXPECT_EQ(float(Float8E4m3fn::FromBits(0x7e)), 448.0f);
  EXPECT_EQ(float(Float8E4m3fnuz::FromBits(0x7f)), 240.0f);
  EXPECT_EQ(float(Float8E4m3b11fnuz::FromBits(0x7f)), 30.0f);
  EXPECT_EQ(float(Float8E5m2fnuz::FromBits(0x7f)), 57344.0f);
  EXPECT_EQ(float(Float8E5m2::FromBits(0x01)), std::ldexp(1.0f, -16));
  EXPECT_EQ(float(Float8E4m3fn::FromBits(0x01)), std::ldexp(1.0f, -9));
  // Half way goes to the even pattern; from there on it is too large.
  EXPECT_EQ(Float8E4m3fn(464.0f).bits, 0x7e);
  EXPECT_EQ(Float8E4m3fn(464.01f).bits, 0x7f);
  EXPECT_EQ(Float8E5m2(61439.0f).bits, 0x7b);
  EXPECT_EQ(Float8E5m2(61440.0f).bits, 0x7c);
  EXPECT_EQ(Float8E4m3fnuz(1e9f).bits, 0x80);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Float8E5m2(-infinity).bits, 0xfc);
  EXPECT_EQ(Float8E4m3fn(-infinity).bits, 0xff);
  EXPECT_EQ(Float8E5m2fnuz(infinity).bits, 0x80);
  EXPECT_EQ(Float8E4m3fn(-0.0f).bits, 0x80);
  EXPECT_EQ(Float8E4m3fnuz(-0.0f).bits, 0x00);
  EXPECT_EQ(Float8E4m3fnuz(-1e-9f).bits, 0x00);
  // Rounded once: by way of a float it would be a tie, which goes down.
  EXPECT_EQ(Float8E5m2(1.125 + 1e-12).bits, Float8E5m2(1.25f).bits);
}

// The upper four bits are whatever a peer has sent: TensorFlow 2.21 reads 0x17 as 7.
TEST(DataTypeTest, OnlyTheLowerFourBitsOfSmallIntegersCount) {
  const Tensor sent = Tensor::FromValues<uint8_t>({0x0f, 0xff, 0x17, 0xf8});
  DataType dtype = DataType::kInvalid;
  ASSERT_TRUE(DataTypeFromName("int4", &dtype));
  EXPECT_EQ(sent.BitcastTo(dtype).DebugString(), "Tensor<int4 [4]: -1 -1 7 -8>");
  EXPECT_FALSE(IsInteger(dtype)) << "nothing calculates with it";
  ASSERT_TRUE(DataTypeFromName("uint4", &dtype));
  EXPECT_EQ(sent.BitcastTo(dtype).DebugString(), "Tensor<uint4 [4]: 15 15 7 8>");
}

TEST(Float16Test, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half = Half::FromBits(static_cast<uint16_t>(bits));
    const float value(half);
    if (value != value) continue;
    EXPECT_EQ(Half(value).bits, bits);
  }
}

TEST(Float16Test, RoundsToNearestEven) {
  EXPECT_EQ(Half(1.0f + 1.0f / 2048).bits, Half(1.0f).bits);
  EXPECT_EQ(Half(1.0f + 3.0f / 2048).bits, Half(1.0f).bits + 2);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(BFloat16(1.0f + 1.0f / 256).bits, BFloat16(1.0f).bits);
  EXPECT_EQ(BFloat16(1.0f + 3.0f / 256).bits, BFloat16(1.0f).bits + 2);
}

}  // namespace
}  // namespace millrace
