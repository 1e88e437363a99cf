// SPDX-License-Identifier: Apache-2.0
#include "millrace/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

TEST(ShapeTest, DefaultIsAScalar) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().DebugString(), "[]");
}

TEST(ShapeTest, CountsItsElementsThroughEveryChange) {
  Shape shape({2, 3});
  EXPECT_EQ(shape.num_elements(), 6);
  shape.AddDim(4);
  EXPECT_EQ(shape.num_elements(), 24);
  shape.SetDim(0, 0);
  EXPECT_EQ(shape.num_elements(), 0);
  shape.RemoveDim(0);
  EXPECT_EQ(shape, Shape({3, 4}));
  EXPECT_EQ(shape.num_elements(), 12);
  shape.InsertDim(1, 5);
  EXPECT_EQ(shape, Shape({3, 5, 4}));
  EXPECT_EQ(shape.num_elements(), 60);
}

// Two sizes that a tensor without elements may have each, and none together.
TEST(ShapeTest, WhatDoesNotFitIsNotValidHoweverItCameToBe) {
  const int64_t big = int64_t{1} << 32;
  EXPECT_EQ(Shape({big, big}).num_elements(), -1);
  EXPECT_FALSE(Shape({big, 0, big}).is_valid()) << "a reshape or a loop would overflow";
  EXPECT_FALSE(Shape({-1, 0}).is_valid());
  EXPECT_FALSE(Shape(std::vector<int64_t>(255, 1)).is_valid());
  EXPECT_TRUE(Shape({big, 0}).is_valid());
  Shape added({big});
  added.AddDim(big);
  EXPECT_FALSE(added.is_valid());
  added.AddDim(0);
  EXPECT_FALSE(added.is_valid());
  added.RemoveDim(0);
  EXPECT_EQ(added.num_elements(), 0);
  Shape inserted({0, big});
  inserted.InsertDim(1, big);
  EXPECT_FALSE(inserted.is_valid());
  inserted.SetDim(2, 2);
  EXPECT_EQ(inserted.num_elements(), 0);
  Shape set({3, big});
  set.SetDim(0, big);
  EXPECT_FALSE(set.is_valid());
  set.SetDim(0, -2);
  EXPECT_FALSE(set.is_valid());
  set.SetDim(0, 2);
  EXPECT_EQ(set.num_elements(), 2 * big);
}

TEST(ShapeTest, SizesFromOutsideAreChecked) {
  EXPECT_TRUE(MakeShape(std::vector<int64_t>{2, 0, 3}).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(MakeShape(std::vector<int64_t>{2, -1}).status()));
  const int64_t big = int64_t{1} << 32;
  EXPECT_TRUE(errors::IsInvalidArgument(MakeShape(std::vector<int64_t>{big, big}).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(MakeShape(std::vector<int64_t>{0, big, big}).status()));
  EXPECT_TRUE(MakeShape(std::vector<int64_t>(254, 1)).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(MakeShape(std::vector<int64_t>(255, 1)).status()));
}

TEST(PartialShapeTest, TellsWhatIsKnown) {
  EXPECT_EQ(PartialShape().DebugString(), "<unknown>");
  EXPECT_EQ(PartialShape().rank(), -1);
  EXPECT_EQ(PartialShape({-1, 784}).DebugString(), "[?,784]");
  EXPECT_FALSE(PartialShape({-1, 784}).AsShape().has_value());
  EXPECT_EQ(PartialShape({2, 3}).AsShape(), Shape({2, 3}));
  EXPECT_FALSE(PartialShape().IsFullyDefined());
  EXPECT_FALSE(PartialShape({int64_t{1} << 62, 20}).AsShape().has_value());
}

TEST(PartialShapeTest, MergesWhatBothKnow) {
  const PartialShape a({-1, 3});
  EXPECT_EQ(*a.MergeWith(PartialShape({2, -1})), PartialShape({2, 3}));
  EXPECT_EQ(*a.MergeWith(PartialShape()), a);
  EXPECT_EQ(*PartialShape().MergeWith(a), a);
  EXPECT_TRUE(a.IsCompatibleWith(PartialShape({7, 3})));
  EXPECT_FALSE(a.IsCompatibleWith(PartialShape({7, 4})));
  EXPECT_FALSE(a.IsCompatibleWith(PartialShape({3})));
  EXPECT_TRUE(errors::IsInvalidArgument(a.MergeWith(PartialShape({3})).status()));
}

}  // namespace
}  // namespace millrace
