// SPDX-License-Identifier: Apache-2.0
// Plans of gathers and scatters: rules of TensorFlow that the kernels of all devices keep, and
// sizes that nobody could hold.

#include "kernels/array/gather_plan.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "kernels/array/scatter_plan.h"

namespace millrace {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

template <typename T>
std::string TextOf(const StatusOr<T>& plan) {
  return plan.ok() ? "" : plan.status().ToString();
}

TEST(GatherPlanTest, RowsAreCountedAroundTheAxis) {
  const GatherPlan plan = *PlanGather({2, 3, 4, 5}, {2, 7}, -2, 1);
  EXPECT_EQ(plan.out, Shape({2, 3, 7, 5}));
  EXPECT_EQ(plan.batches, 2);
  EXPECT_EQ(plan.outer, 3);
  EXPECT_EQ(plan.per_batch, 7);
  EXPECT_EQ(plan.limit, 4);
  EXPECT_EQ(plan.inner, 5);
  EXPECT_EQ(PlanGather({2, 3}, {2}, 1, -1)->out, Shape({2, 2}));
}

TEST(GatherPlanTest, WhatDoesNotGoTogetherIsAnError) {
  EXPECT_NE(TextOf(PlanGather({}, {2}, 0, 0)).find("params must be at least 1 dimensional"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanGather({2, 3}, {3}, 2, 0)).find("Expected axis must be in the range"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanGather({2, 3}, {2, 2}, 0, 1)).find("must be at most rank(indices) (2)"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanGather({2, 3}, {3, 2}, 1, 1)).find("should be equal to indices.shape[0]: 3"),
            std::string::npos);
}

TEST(GatherPlanTest, AnOutputThatDoesNotFitIsAnError) {
  EXPECT_FALSE(PlanGather({0, kHuge}, {int64_t{1} << 30}, 0, 0).ok());
  EXPECT_FALSE(PlanGatherNd({0, kHuge}, {int64_t{1} << 30, 1}).ok());
}

TEST(GatherPlanTest, NothingIsTakenOfATensorWithoutElements) {
  EXPECT_NE(TextOf(PlanGatherNd({0, 2}, {3, 1})).find("Requested more than 0 entries"),
            std::string::npos);
  EXPECT_EQ(PlanGatherNd({0, 2}, {0, 1})->out, Shape({0, 2}));
  EXPECT_NE(TextOf(PlanGatherNd({}, {3, 0})).find("params must be at least a vector"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanGatherNd({2}, {})).find("indices must be at least a vector"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanGatherNd({2}, {3, 2})).find("<= params rank; saw: 2 vs. 1"),
            std::string::npos);
}

TEST(GatherPlanTest, AVariablesRowsAreTakenBehindTheBatch) {
  const GatherPlan plan = *PlanResourceGather({2, 3, 4}, {2, 5}, 1);
  EXPECT_EQ(plan.out, Shape({2, 5, 4}));
  EXPECT_EQ(plan.limit, 3);
  EXPECT_FALSE(PlanResourceGather({2, 3}, {2}, -1).ok());
  EXPECT_FALSE(PlanResourceGather({2}, {2}, 1).ok());
  EXPECT_FALSE(PlanResourceGather({2, 3}, {3, 1}, 1).ok());
}

TEST(ScatterPlanTest, UpdatesHaveASliceForEachRowOfIndices) {
  const SlicesPlan plan = *PlanScatterNd({2, 3, 4}, {7, 2}, {7, 4});
  EXPECT_EQ(plan.depth, 2);
  EXPECT_EQ(plan.count, 7);
  EXPECT_EQ(plan.inner, 4);
  EXPECT_FALSE(PlanScatterNd({2, 3, 4}, {7, 4}, {7}).ok());
  EXPECT_FALSE(PlanScatterNd({2, 3, 4}, {}, {4}).ok());
  EXPECT_FALSE(PlanScatterNd({2, 3, 4}, {7, 2}, {4, 7}).ok());
  EXPECT_TRUE(PlanTensorScatter({2, 3, 4}, {7, 2}, {7, 4}).ok());
  EXPECT_NE(TextOf(PlanTensorScatter({2, 3}, {7, 1}, {6, 3})).find("Outer dimensions of indices"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanTensorScatter({2, 3}, {7, 1}, {7, 2})).find("The inner 1 dimensions"),
            std::string::npos);
  EXPECT_NE(TextOf(PlanTensorScatter({2, 3}, {7, 1}, {7})).find("Inner dimensions of output"),
            std::string::npos);
}

TEST(ScatterPlanTest, StitchedRowsHaveOneShape) {
  Tensor indices(kInt32, Shape({2}));
  indices.data<int32_t>()[0] = 0;
  indices.data<int32_t>()[1] = 3;
  EXPECT_TRUE(CheckStitched(1, indices, {2, 4}, {}, {4}).ok());
  EXPECT_FALSE(CheckStitched(1, indices, {3, 4}, {}, {4}).ok());
  EXPECT_FALSE(CheckStitched(1, indices, {2, 5}, {}, {4}).ok());
  indices.data<int32_t>()[1] = -1;
  EXPECT_NE(
      CheckStitched(1, indices, {2, 4}, {}, {4}).ToString().find("indices[1] is out of range"),
      std::string::npos);
}

}  // namespace
}  // namespace millrace
