// SPDX-License-Identifier: Apache-2.0
#include "millrace/dtype.h"

#include <gtest/gtest.h>

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
