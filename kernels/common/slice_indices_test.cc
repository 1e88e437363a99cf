// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/slice_indices.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace millrace {
namespace {

TEST(BadSlice, NamesTheRowAndAllOfItsIndices) {
  const Tensor vector = Tensor::FromValues<int64_t>({-1, 0, 5}, {3, 1});
  EXPECT_EQ(BadSlice(vector, 0, "shape", Shape({6})).message(),
            "indices[0] = [-1] does not index into shape [6]");
  const Tensor pairs = Tensor::FromValues<int32_t>({0, 1, 7, 2}, {2, 2});
  EXPECT_EQ(BadSlice(pairs, 1, "param shape", Shape({3, 4})).message(),
            "indices[1] = [7, 2] does not index into param shape [3,4]");
}

TEST(BadSlice, CountsInEachOfTheLeadingAxes) {
  Tensor indices(kInt16, {2, 3, 1});
  for (int16_t i = 0; i < 6; ++i) indices.data<int16_t>()[i] = static_cast<int16_t>(10 * i);
  EXPECT_EQ(BadSlice(indices, 4, "shape", Shape({5})).message(),
            "indices[1,1] = [40] does not index into shape [5]");
}

TEST(BadSlice, ReadsIndicesOfEveryType) {
  Tensor unsigned_ones(kUint16, {2, 1});
  unsigned_ones.data<uint16_t>()[0] = 1;
  unsigned_ones.data<uint16_t>()[1] = 65535;
  EXPECT_EQ(BadSlice(unsigned_ones, 1, "shape", Shape({4})).message(),
            "indices[1] = [65535] does not index into shape [4]");
  for (const DataType type : {kInt16, kUint16, kInt32, kInt64}) {
    Tensor indices(type, {3});
    std::memset(indices.raw_data(), 0, indices.num_bytes());
    static_cast<char*>(indices.raw_data())[2 * indices.num_bytes() / 3] = 7;  // little-endian
    EXPECT_EQ(IndexAt(indices, 1), 0) << DataTypeName(type);
    EXPECT_EQ(IndexAt(indices, 2), 7) << DataTypeName(type);
  }
}

TEST(BadIndex, NamesThePlaceUnlessThereIsOnlyOne) {
  EXPECT_EQ(BadIndex(Shape({2, 3}), 4, 10, 5).message(), "indices[1,1] = 10 is not in [0, 5)");
  EXPECT_EQ(BadIndex(Shape({7}), 4, -1, 5).message(), "indices[4] = -1 is not in [0, 5)");
  EXPECT_EQ(BadIndex(Shape({}), 0, 10, 5).message(), "indices = 10 is not in [0, 5)");
}

TEST(BadSlice, OfOneIndexAloneHasNoPlace) {
  const Tensor index = Tensor::FromValues<int32_t>({9}, {1});
  EXPECT_EQ(BadSlice(index, 0, "shape", Shape({5})).message(),
            "indices[] = [9] does not index into shape [5]");
}

}  // namespace
}  // namespace millrace
