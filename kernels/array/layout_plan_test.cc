// SPDX-License-Identifier: Apache-2.0
// Plans of ops that put elements in another place: what goldens of both devices cannot show, sizes
// that nobody could hold.

#include "kernels/array/layout_plan.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/errors.h"

namespace millrace {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

Tensor Vector(const std::vector<int64_t>& values) {
  Tensor t(kInt64, Shape({static_cast<int64_t>(values.size())}));
  for (std::size_t i = 0; i < values.size(); ++i) t.data<int64_t>()[i] = values[i];
  return t;
}

Tensor Paddings(const std::vector<int64_t>& values) {
  const auto rows = static_cast<int64_t>(values.size()) / 2;
  return *Vector(values).Reshaped(Shape({rows, 2}));
}

// Where each element of the output comes from, by its place in the input; -1 for none.
std::vector<int64_t> SourcesOf(const LayoutPlan& plan) {
  std::vector<int64_t> sources(static_cast<std::size_t>(plan.out.num_elements()), -1);
  std::vector<int64_t> at(plan.dims.size(), 0);
  for (const CopyDim& dim : plan.dims) {
    if (dim.size == 0) return sources;
  }
  while (true) {
    int64_t from = plan.src_offset, to = plan.dst_offset;
    for (std::size_t i = 0; i < at.size(); ++i) {
      from += at[i] * plan.dims[i].src_stride;
      to += at[i] * plan.dims[i].dst_stride;
    }
    sources.at(static_cast<std::size_t>(to)) = from;
    std::size_t axis = at.size();
    while (axis > 0 && ++at[axis - 1] == plan.dims[axis - 1].size) at[--axis] = 0;
    if (axis == 0) return sources;
  }
}

std::string TextOf(const StatusOr<LayoutPlan>& plan) {
  return plan.ok() ? "" : plan.status().ToString();
}

TEST(LayoutPlanTest, EveryOutputComesFromItsPlace) {
  using Sources = std::vector<int64_t>;
  EXPECT_EQ(SourcesOf(*PlanTranspose({2, 3}, Vector({1, 0}))), (Sources{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(SourcesOf(*PlanTile({2}, Vector({2}))), (Sources{0, 1, 0, 1}));
  EXPECT_EQ(SourcesOf(*PlanBroadcastTo({2, 1}, Vector({2, 2}))), (Sources{0, 0, 1, 1}));
  EXPECT_EQ(SourcesOf(*PlanReverse({2, 2}, Vector({1}))), (Sources{1, 0, 3, 2}));
  EXPECT_EQ(SourcesOf(*PlanPad({2}, Paddings({1, 2}))), (Sources{-1, 0, 1, -1, -1}));
  EXPECT_EQ(SourcesOf(*PlanSlice({2, 3}, Vector({0, 1}), Vector({-1, 2}))), (Sources{1, 2, 4, 5}));
}

TEST(LayoutPlanTest, AStridedSliceAndItsGradientAreEachOthersReverse) {
  const Tensor begin = Vector({3}), end = Vector({0}), strides = Vector({-2});
  const StridedSliceOperands operands{begin, end, strides};
  const LayoutPlan slice = *PlanStridedSlice({5}, operands, {});
  EXPECT_EQ(SourcesOf(slice), (std::vector<int64_t>{3, 1}));
  const LayoutPlan gradient = *PlanStridedSliceGrad({5}, operands, {}, {2});
  EXPECT_EQ(SourcesOf(gradient), (std::vector<int64_t>{-1, 1, -1, 0, -1}));
  EXPECT_NE(TextOf(PlanStridedSliceGrad({5}, operands, {}, {3})).find("shape of dy was [3]"),
            std::string::npos);
}

TEST(LayoutPlanTest, WhatMovesNothingSaysSo) {
  EXPECT_TRUE(PlanTranspose({2, 3}, Vector({0, 1}))->same);
  EXPECT_TRUE(PlanSlice({2, 3}, Vector({0, 0}), Vector({-1, 3}))->same);
  EXPECT_TRUE(PlanBroadcastTo({2, 3}, Vector({2, 3}))->same);
  EXPECT_FALSE(PlanBroadcastTo({2, 3}, Vector({1, 2, 3}))->same);
  EXPECT_FALSE(PlanTranspose({1, 3}, Vector({1, 0}))->same);
}

TEST(LayoutPlanTest, SizesThatDoNotFitAreErrors) {
  EXPECT_TRUE(errors::IsInvalidArgument(PlanTile({kHuge, 0}, Vector({4, 1})).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(PlanTile({3, 5}, Vector({kHuge, kHuge})).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(PlanPad({kHuge, 0}, Paddings({kHuge, 0, 0, 0})).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(PlanPad({1}, Paddings({INT64_MAX, 1})).status()));
  EXPECT_TRUE(errors::IsInvalidArgument(
      PlanMirrorPad({kHuge, 0}, Paddings({kHuge, kHuge, 0, 0}), 0).status()));
}

TEST(LayoutPlanTest, AxesOfAnySizeAreFineWithoutElements) {
  EXPECT_EQ(PlanTranspose({kHuge, 0}, Vector({1, 0}))->out, Shape({0, kHuge}));
  EXPECT_EQ(PlanReverse({kHuge, 0}, Vector({0, 1}))->out, Shape({kHuge, 0}));
  EXPECT_EQ(PlanPad({kHuge, 0}, Paddings({5, 5, 0, 0}))->out, Shape({kHuge + 10, 0}));
  EXPECT_EQ(PlanSlice({kHuge, 0}, Vector({kHuge - 1, 0}), Vector({-1, 0}))->out, Shape({1, 0}));
}

TEST(LayoutPlanTest, OperandsThatDoNotFitTheInputAreErrors) {
  EXPECT_NE(TextOf(PlanTranspose({2, 3}, Vector({0}))).find("transpose expects a vector of size 2"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanTranspose({2, 3}, Vector({0, 2}))).find("2 is out of range"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanTranspose({2, 3}, Vector({1, -1}))).find("0 is missing from"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanTile({2}, Vector({-1}))).find("multiples[0] >= 0"), std::string::npos);
  EXPECT_NE(TextOf(PlanReverse({2}, Vector({0, -1}))).find("axis 0 specified more than once"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanPad({2}, Paddings({-1, 0}))).find("Paddings must be non-negative"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanPad({2}, Vector({1, 1}))).find("paddings must be a matrix of shape [1,2]"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanSlice({2}, Vector({1}), Vector({2}))).find("Expected size[0] in [0, 1]"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanSlice({2}, Vector({3}), Vector({0}))).find("Expected begin[0] in [0, 2]"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanBroadcastTo({2, 3}, Vector({3}))).find("Incompatible shapes"),
            std::string::npos);
}

TEST(LayoutPlanTest, MirrorsHoldNoMoreThanThereIs) {
  const MirrorPlan reflected = *PlanMirrorPad({3}, Paddings({2, 1}), 1);
  EXPECT_EQ(reflected.out, Shape({6}));
  EXPECT_EQ(PlanMirrorPadGrad(reflected.out, Paddings({2, 1}), 1)->out, Shape({3}));
  EXPECT_FALSE(PlanMirrorPad({3}, Paddings({3, 0}), 1).ok());
  EXPECT_TRUE(PlanMirrorPad({3}, Paddings({3, 0}), 0).ok());
  EXPECT_FALSE(PlanMirrorPadGrad({4}, Paddings({2, 1}), 0).ok());
  EXPECT_FALSE(PlanMirrorPadGrad({4}, Paddings({kHuge, kHuge}), 0).ok());
  // Nothing is repeated of nothing.
  EXPECT_TRUE(PlanMirrorPad({0}, Paddings({0, 0}), 1).ok());
  EXPECT_TRUE(PlanMirrorPadGrad({0}, Paddings({0, 0}), 1).ok());
}

}  // namespace
}  // namespace millrace
