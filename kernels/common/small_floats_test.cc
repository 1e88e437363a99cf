// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/small_floats.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

template <typename T>
std::vector<T> AllOf() {
  std::vector<T> all;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    all.push_back(T::FromBits(static_cast<uint16_t>(bits)));
  }
  return all;
}

// Floats of all sizes, those halfway between two 16-bit ones and beside those, and NaNs.
std::vector<float> Floats() {
  std::vector<float> floats;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 2039) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (uint64_t high = 0; high < (uint64_t{1} << 32); high += 0x1000) {
    for (const int32_t step : {-1, 0, 1}) {
      floats.push_back(
          std::bit_cast<float>(static_cast<uint32_t>(high) + static_cast<uint32_t>(step)));
    }
  }
  return floats;
}

template <typename T>
class SmallFloatsTest : public ::testing::Test {};
using SmallTypes = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(SmallFloatsTest, SmallTypes);

TYPED_TEST(SmallFloatsTest, WidensAsOneByOne) {
  const std::vector<TypeParam> in = AllOf<TypeParam>();
  std::vector<float> out(in.size());
  small_floats::Widen(in.data(), out.data(), static_cast<int64_t>(in.size()));
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float want = static_cast<float>(in[i]);
    if (want != want) {
      ASSERT_NE(out[i], out[i]) << in[i].bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want)) << in[i].bits;
    }
  }
}

TYPED_TEST(SmallFloatsTest, NarrowsAsOneByOne) {
  const std::vector<float> in = Floats();
  std::vector<TypeParam> out(in.size());
  small_floats::Narrow(in.data(), out.data(), static_cast<int64_t>(in.size()));
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i].bits, TypeParam(in[i]).bits) << std::bit_cast<uint32_t>(in[i]);
  }
}

TYPED_TEST(SmallFloatsTest, AddsIntoAnOperand) {
  const std::vector<TypeParam> a = AllOf<TypeParam>();
  std::vector<TypeParam> b;
  for (std::size_t i = 0; i < a.size(); ++i) b.push_back(a[(i * 37 + 11) % a.size()]);
  const std::vector<TypeParam> before = b;
  small_floats::Add(a.data(), b.data(), b.data(), static_cast<int64_t>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float sum = static_cast<float>(a[i]) + static_cast<float>(before[i]);
    if (sum != sum) {
      ASSERT_NE(static_cast<float>(b[i]), static_cast<float>(b[i])) << i;
    } else {
      ASSERT_EQ(b[i].bits, TypeParam(sum).bits) << i;
    }
  }
}

}  // namespace
}  // namespace millrace
