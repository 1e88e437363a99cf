// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

#include <bit>

namespace millrace {
namespace {

using Result = Philox::Result;

// Known answers published with the method (Random123, kat_vectors).
TEST(PhiloxTest, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox(0, 0)(), (Result{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));

  Philox ones(~0ull, ~0ull);
  ones.Skip(~0ull);
  EXPECT_EQ(ones(), (Result{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));

  Philox pi(0x299f31d0a4093822ull, 0x0370734413198a2eull);
  pi.Skip(0x85a308d3243f6a88ull);
  EXPECT_EQ(pi(), (Result{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, SkippingEqualsDrawing) {
  Philox drawn(1, 2);
  Philox skipped = drawn;
  for (int i = 0; i < 5; ++i) drawn();
  skipped.Skip(5);
  EXPECT_EQ(drawn(), skipped());
}

TEST(PhiloxTest, SkippingCarriesIntoTheUpperHalf) {
  Philox carried(1, 0);
  carried.Skip(~0ull);
  carried.Skip(1);
  EXPECT_EQ(carried(), Philox(1, 1)());
}

// The first float of two runs of TensorFlow's RandomUniform over 10 elements with seed
// 87654321 and seed2 1: a run takes 256 counters an element, whatever it needs.
TEST(PhiloxTest, KeyIsTheSeedAndTheUpperCounterTheSecondSeed) {
  const auto uniform = [](uint32_t bits) {
    return std::bit_cast<float>((bits & 0x7fffffu) | 0x3f800000u) - 1.0f;
  };
  Philox philox(87654321, 1);
  Philox second_run = philox;
  second_run.Skip(10 * 256);
  const Result first = philox();
  EXPECT_EQ(uniform(first[0]), 0.2390373945236206f);
  EXPECT_EQ(uniform(first[3]), 0.4957444667816162f);
  EXPECT_EQ(uniform(philox()[0]), 0.8355222940444946f);
  EXPECT_EQ(uniform(second_run()[0]), 0.7343506813049316f);
}

TEST(RandomIdTest, IsNeverZeroAndDiffers) {
  const uint64_t a = RandomId();
  const uint64_t b = RandomId();
  EXPECT_NE(a, 0u);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace millrace
