// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/move_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {
namespace {

alignas(16) char memory[64];

std::vector<MoveAxis> Transposed(const std::vector<int64_t>& dims, const std::vector<int>& perm) {
  const int rank = static_cast<int>(dims.size());
  std::vector<int64_t> from(rank, 1);
  for (int i = rank - 2; i >= 0; --i) from[i] = from[i + 1] * dims[i + 1];
  std::vector<MoveAxis> axes(rank);
  int64_t to = 1;
  for (int i = rank - 1; i >= 0; --i) {
    axes[i] = {dims[perm[i]], from[perm[i]], to};
    to *= dims[perm[i]];
  }
  return axes;
}

using Axes = std::vector<MoveAxis>;

TEST(PlanMove, JoinsWhatIsOneAxisInBoth) {
  const MovePlan plan = PlanMove(16, memory, memory, Transposed({2, 1, 3, 4}, {0, 1, 2, 3}));
  EXPECT_EQ(plan.axes, (Axes{{24, 1, 1}}));
  EXPECT_FALSE(plan.is_swap());
  EXPECT_EQ(PlanMove(4, memory, memory, {{1, 5, 7}}).axes, Axes());
}

TEST(PlanMove, OrdersAxesAsTheyAreWritten) {
  const MovePlan plan = PlanMove(4, memory, memory, {{3, 1, 1}, {5, 7, 3}});
  EXPECT_EQ(plan.axes, (Axes{{5, 7, 3}, {3, 1, 1}}));
}

TEST(PlanMove, MovesNeighboursThatStayTogetherAsOne) {
  // [6, 10, 8] of two bytes to [10, 6, 8]: 16 bytes each, and then a matrix is transposed.
  MovePlan plan = PlanMove(2, memory, memory, Transposed({16, 10, 8}, {1, 0, 2}));
  EXPECT_EQ(plan.size, 16);
  EXPECT_EQ(plan.axes, (Axes{{10, 1, 16}, {16, 10, 1}}));
  EXPECT_EQ(plan.row, 1);
  EXPECT_EQ(plan.column, 0);
  // Twelve elements are three groups of four, on both sides.
  plan = PlanMove(2, memory, memory, Transposed({6, 10, 12}, {1, 0, 2}));
  EXPECT_EQ(plan.size, 8);
  EXPECT_EQ(plan.axes, (Axes{{10, 3, 18}, {6, 30, 3}, {3, 1, 1}}));
  EXPECT_FALSE(plan.is_swap());
  // Addresses and strides that do not allow it.
  plan = PlanMove(2, memory + 4, memory, Transposed({6, 10, 12}, {1, 0, 2}));
  EXPECT_EQ(plan.size, 4);
  plan = PlanMove(2, memory, memory, {{3, 13, 12}, {12, 1, 1}});
  EXPECT_EQ(plan.size, 2);
}

TEST(PlanMove, SwapsWhereNeighboursDoNotStayNeighbours) {
  // Channels last to channels first, and back: images are batches.
  MovePlan plan = PlanMove(4, memory, memory, Transposed({5, 9, 11, 16}, {0, 3, 1, 2}));
  EXPECT_EQ(plan.axes, (Axes{{5, 1584, 1584}, {16, 1, 99}, {99, 16, 1}}));
  EXPECT_EQ(plan.row, 2);
  EXPECT_EQ(plan.column, 1);
  // A side that is too short for tiles.
  plan = PlanMove(4, memory, memory, Transposed({5, 9, 11, 3}, {0, 3, 1, 2}));
  EXPECT_FALSE(plan.is_swap());
  // What is repeated, or reversed, has no neighbours that are read.
  EXPECT_FALSE(PlanMove(4, memory, memory, {{40, 0, 50}, {50, 3, 1}}).is_swap());
  EXPECT_FALSE(PlanMove(4, memory, memory, {{40, -1, 50}, {50, 40, 1}}).is_swap());
}

// --- Carried out -------------------------------------------------------------------------------

class MoveTest : public ::testing::TestWithParam<int> {};

// Tensors of all ranks, transposed, sliced, with steps, reversed and repeated, at all addresses.
TEST_P(MoveTest, PutsEveryElementInItsPlace) {
  const int size = GetParam();
  std::mt19937 random(static_cast<uint32_t>(size));
  int swaps = 0, wide = 0;
  for (int round = 0; round < 400; ++round) {
    const int rank = 1 + static_cast<int>(random() % 5);
    std::vector<int64_t> dims(rank), count(rank), step(rank);
    std::vector<int> perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random);
    int64_t elements = 1;
    for (int k = 0; k < rank; ++k) {
      dims[k] = 1 + random() % (rank > 3 ? 9 : 40);
      const bool plain = random() % 3 != 0;
      count[k] = plain ? dims[k] : 1 + static_cast<int64_t>(random() % dims[k]);
      step[k] = plain ? 1 : static_cast<int64_t>(random() % 4) - 2;
      elements *= dims[k];
    }
    std::vector<int64_t> stride(rank, 1);
    for (int k = rank - 2; k >= 0; --k) stride[k] = stride[k + 1] * dims[k + 1];
    int64_t first = 0, moved = 1;
    for (int k = 0; k < rank; ++k) {
      if (step[k] == -2) count[k] = (count[k] + 1) / 2;
      if (step[k] < 0) first += (count[k] - 1) * -step[k] * stride[k];
      moved *= count[k];
    }
    std::vector<MoveAxis> axes(rank);
    int64_t to_stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      const int k = perm[i];
      axes[i] = {count[k], step[k] * stride[k], to_stride};
      to_stride *= count[k];
    }
    const int64_t from_shift = random() % 3, to_shift = random() % 2;
    std::vector<char> source((elements + from_shift) * size + 16), target((moved + 2) * size + 16);
    for (char& c : source) c = static_cast<char>(random());
    const auto aligned = [](std::vector<char>& bytes) {
      return bytes.data() + (16 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 16) % 16;
    };
    const char* from = aligned(source) + (from_shift + first) * size;
    char* to = aligned(target) + to_shift * size;
    const MovePlan plan = PlanMove(size, from, to, axes);
    swaps += plan.is_swap();
    wide += plan.size > size;
    ASSERT_TRUE(Move(HostLoops(), {}, size, from, to, axes).ok());
    for (int64_t i = 0; i < moved; ++i) {
      int64_t rest = i, at = 0;
      for (int k = rank - 1; k >= 0; --k) {
        at += rest % axes[k].size * axes[k].from_stride;
        rest /= axes[k].size;
      }
      ASSERT_EQ(std::memcmp(to + i * size, from + at * size, size), 0) << round << " " << i;
    }
  }
  EXPECT_GT(swaps, 10);
  EXPECT_TRUE(wide > 10 || size == 16) << wide;
}

INSTANTIATE_TEST_SUITE_P(Sizes, MoveTest, ::testing::Values(1, 2, 4, 8, 16),
                         [](const auto& size) { return std::to_string(size.param) + "Bytes"; });

}  // namespace
}  // namespace millrace::gpu
