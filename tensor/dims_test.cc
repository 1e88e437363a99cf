// SPDX-License-Identifier: Apache-2.0
// Dims beside std::vector: random calls, the same values.
#include "millrace/dims.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace millrace {
namespace {

void ExpectSame(const Dims& dims, const std::vector<int64_t>& vector) {
  ASSERT_EQ(dims.size(), vector.size());
  EXPECT_TRUE(std::equal(dims.begin(), dims.end(), vector.begin()));
  EXPECT_TRUE(std::equal(dims.rbegin(), dims.rend(), vector.rbegin()));
  EXPECT_EQ(dims.empty(), vector.empty());
}

TEST(DimsTest, ConstructsAsAVectorDoes) {
  ExpectSame({}, {});
  ExpectSame({1, 2}, {1, 2});
  ExpectSame(Dims(3, 7), {7, 7, 7});
  ExpectSame(Dims(6), std::vector<int64_t>(6));
  const std::vector<int> ints = {1, 2, 3, 4, 5};
  ExpectSame(Dims(ints.begin(), ints.end()), {1, 2, 3, 4, 5});
}

TEST(DimsTest, FourAreStoredWithoutAnAllocation) {
  const Dims four = {1, 2, 3, 4};
  const auto* const begin = reinterpret_cast<const char*>(&four);
  const auto* const data = reinterpret_cast<const char*>(four.data());
  EXPECT_TRUE(data >= begin && data < begin + sizeof(four));
  EXPECT_EQ(sizeof(Dims), 40u);
}

TEST(DimsTest, CopiesAndMoves) {
  for (std::size_t size = 0; size < 9; ++size) {
    const Dims original(size, 5);
    Dims copy = original;
    EXPECT_EQ(copy, original);
    Dims moved = std::move(copy);
    EXPECT_EQ(moved, original);
    EXPECT_TRUE(copy.empty());  // NOLINT(bugprone-use-after-move): it can be used again
    copy.push_back(1);
    EXPECT_EQ(copy, Dims{1});
    copy = moved;
    EXPECT_EQ(copy, original);
    Dims& self = copy;
    copy = self;
    EXPECT_EQ(copy, original);
    copy = Dims(2, 9);
    EXPECT_EQ(copy, Dims(2, 9));
  }
}

TEST(DimsTest, OrdersAsVectorsDo) {
  EXPECT_LT((Dims{1, 2}), (Dims{1, 3}));
  EXPECT_LT((Dims{1}), (Dims{1, 0}));
  EXPECT_NE((Dims{1}), (Dims{1, 1}));
}

TEST(DimsTest, RandomCallsLeaveTheSameValues) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    Dims dims;
    std::vector<int64_t> vector;
    for (int call = 0; call < 60; ++call) {
      const auto value = static_cast<int64_t>(random());
      const std::size_t at = below(vector.size() + 1), count = below(4);
      switch (below(8)) {
        case 0:
          dims.push_back(value);
          vector.push_back(value);
          break;
        case 1:
          if (vector.empty()) break;
          dims.pop_back();
          vector.pop_back();
          break;
        case 2:
          EXPECT_EQ(dims.insert(dims.begin() + at, value) - dims.begin(),
                    static_cast<std::ptrdiff_t>(at));
          vector.insert(vector.begin() + static_cast<std::ptrdiff_t>(at), value);
          break;
        case 3: {
          const std::vector<int64_t> more(count, value);
          dims.insert(dims.begin() + at, more.begin(), more.end());
          vector.insert(vector.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
          break;
        }
        case 4: {
          const std::size_t end = std::min(vector.size(), at + count);
          dims.erase(dims.begin() + at, dims.begin() + end);
          vector.erase(vector.begin() + static_cast<std::ptrdiff_t>(at),
                       vector.begin() + static_cast<std::ptrdiff_t>(end));
          break;
        }
        case 5:
          dims.resize(at + count, value);
          vector.resize(at + count, value);
          break;
        case 6:
          if (at < vector.size()) dims[at] = vector[at] = value;
          break;
        default:
          dims.reserve(at);
          if (count == 0) {
            dims.assign(at, value);
            vector.assign(at, value);
          }
      }
      ExpectSame(dims, vector);
    }
  }
}

}  // namespace
}  // namespace millrace
