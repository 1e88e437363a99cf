// SPDX-License-Identifier: Apache-2.0
#include "millrace/attr_value.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(AttrValueTest, KnowsItsKind) {
  EXPECT_FALSE(AttrValue().has_value());
  EXPECT_EQ(*AttrValue("x").get_if<std::string>(), "x");
  EXPECT_EQ(*AttrValue(3).get_if<int64_t>(), 3);
  EXPECT_EQ(AttrValue(3).get_if<float>(), nullptr);
  EXPECT_EQ(*AttrValue(true).get_if<bool>(), true);
  EXPECT_EQ(*AttrValue(kFloat).get_if<DataType>(), kFloat);
  EXPECT_NE(AttrValue(Tensor::Scalar(1.0f)).tensor(), nullptr);
  EXPECT_EQ(AttrValue(3).tensor(), nullptr);
  EXPECT_EQ(AttrValue(FunctionName{"f", {}}).function()->name, "f");
}

TEST(AttrValueTest, EmptyListsAreAlikeWhateverTheirType) {
  EXPECT_EQ(AttrValue(std::vector<int64_t>{}), AttrValue(std::vector<std::string>{}));
  EXPECT_EQ(AttrValue(std::vector<float>{}), AttrValue(AttrValue::EmptyList{}));
}

TEST(AttrValueTest, EqualityIsDeep) {
  EXPECT_EQ(AttrValue(Tensor::Scalar(1.0f)), AttrValue(Tensor::Scalar(1.0f)));
  EXPECT_FALSE(AttrValue(Tensor::Scalar(1.0f)) == AttrValue(Tensor::Scalar(2.0f)));
  EXPECT_EQ(AttrValue(std::vector<Tensor>{Tensor::Scalar(1)}),
            AttrValue(std::vector<Tensor>{Tensor::Scalar(1)}));
  const FunctionName f{"f", {{"T", AttrValue(kFloat)}}};
  const FunctionName g{"f", {{"T", AttrValue(kInt32)}}};
  EXPECT_EQ(AttrValue(f), AttrValue(f));
  EXPECT_FALSE(AttrValue(f) == AttrValue(g));
  EXPECT_FALSE(AttrValue(1) == AttrValue(true));
}

TEST(AttrValueTest, TextIsShort) {
  EXPECT_EQ(AttrValue("a\"b").DebugString(), "\"a\\\"b\"");
  EXPECT_EQ(AttrValue(std::vector<int64_t>{1, 2}).DebugString(), "[1, 2]");
  EXPECT_EQ(AttrValue(std::vector<bool>{true, false}).DebugString(), "[true, false]");
  EXPECT_EQ(AttrValue(PartialShape({-1, 2})).DebugString(), "[?,2]");
  EXPECT_EQ(AttrValue(AttrPlaceholder{"T"}).DebugString(), "$T");
  EXPECT_EQ(AttrValue(FunctionName{"f", {{"T", AttrValue(kFloat)}}}).DebugString(), "f[T=float]");
  EXPECT_LT(AttrValue(std::string(10000, 'x')).DebugString().size(), 300u);
  EXPECT_LT(AttrValue(std::vector<int64_t>(10000, 1)).DebugString().size(), 300u);
  EXPECT_LT(AttrValue(Tensor(kString, Shape({10000}))).DebugString().size(), 300u);
}

}  // namespace
}  // namespace millrace
