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
