#include "base/random.h"

#include <gtest/gtest.h>

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

TEST(RandomIdTest, IsNeverZeroAndDiffers) {
  const uint64_t a = RandomId();
  const uint64_t b = RandomId();
  EXPECT_NE(a, 0u);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace millrace
