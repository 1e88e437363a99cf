// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// The vectors were computed by TensorFlow.
TEST(HashTest, AgreesWithTensorFlow) {
  EXPECT_EQ(Hash64("a"), 0x29962dc026eac9fcull);
  EXPECT_EQ(Hash64("while_context"), 0x7accd10e21053e7bull);
}

TEST(HashTest, CombinesFrameIdsAsRendezvousKeysHaveThem) {
  EXPECT_EQ(Hash64Combine(0, Hash64Combine(0, Hash64("while_context"))), 0xb73bc4811f9a2e7bull);
  EXPECT_EQ(Hash64Combine(0, Hash64Combine(0, Hash64("lp/while_context"))), 2414045154581136951ull);
}

}  // namespace
}  // namespace millrace
