// SPDX-License-Identifier: Apache-2.0
// Chains of scalars, which a single thread computes without taking memory for each of them.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

class ScalarsTest : public testing::Test {
 protected:
  void Open() {
    auto opened = Session::Create(
        graph_, {.inter_op_threads = -1, .intra_op_threads = -1, .rewrite_graph = false});
    ASSERT_TRUE(opened.ok()) << opened.status();
    session_ = std::make_unique<Session>(*std::move(opened));
  }
  Callable Prepare(std::vector<Output> feeds, std::vector<Output> fetches) {
    auto made = session_->MakeCallable(feeds, fetches);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  Graph graph_;
  Scope root_ = graph_.root();
  std::unique_ptr<Session> session_;
};

TEST_F(ScalarsTest, AWarmChainTakesMemoryForItsFetchesOnly) {
  const Output x = Placeholder(root_, kFloat, PartialShape({}));
  Output y = x;
  for (int i = 0; i < 100; ++i) y = ops::AddV2(root_, ops::Neg(root_, y), x);
  Open();
  const Callable callable = Prepare({x}, {y});
  const Tensor feed = Tensor::Scalar<float>(2);
  std::vector<Tensor> fetched;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(callable.Run({&feed, 1}, &fetched).ok());
  const int64_t before = HostAllocator()->stats().num_allocations;
  ASSERT_TRUE(callable.Run({&feed, 1}, &fetched).ok());
  EXPECT_LE(HostAllocator()->stats().num_allocations - before, 1);
  EXPECT_EQ(fetched[0].scalar<float>(), 2);
}

TEST_F(ScalarsTest, AWarmLoopTakesNoMoreForManyRoundsThanForFew) {
  const Output n = Placeholder(root_, kInt32, PartialShape({}));
  const Output zero = ops::Const(root_, Tensor::Scalar<int32_t>(0), kInt32);
  const Output one = ops::Const(root_, Tensor::Scalar<float>(1), kFloat);
  const auto made = WhileLoop(
      root_, {zero, one},
      [&](const Scope& s, std::span<const Output> v) { return ops::Less(s, v[0], n); },
      [&](const Scope& s, std::span<const Output> v) {
        return std::vector<Output>{ops::AddV2(s, v[0], 1),
                                   ops::AddV2(s, ops::Mul(s, v[1], 0.5f), 1.0f)};
      });
  ASSERT_EQ(made.size(), 2u) << graph_.status();
  Open();
  const Callable callable = Prepare({n}, {made[0], made[1]});
  const auto allocations_of = [&](int32_t rounds) {
    const Tensor feed = Tensor::Scalar<int32_t>(rounds);
    std::vector<Tensor> fetched;
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(callable.Run({&feed, 1}, &fetched).ok());
    const int64_t before = HostAllocator()->stats().num_allocations;
    EXPECT_TRUE(callable.Run({&feed, 1}, &fetched).ok());
    EXPECT_EQ(fetched[0].scalar<int32_t>(), rounds);
    EXPECT_NEAR(fetched[1].scalar<float>(), 2, 1e-2);
    return HostAllocator()->stats().num_allocations - before;
  };
  const int64_t few = allocations_of(10);
  EXPECT_EQ(allocations_of(1000), few);
}

TEST_F(ScalarsTest, WhatWasFetchedOrFedIsNotWrittenAgain) {
  const Output x = Placeholder(root_, kInt64, PartialShape({}));
  const Output square = ops::Mul(root_, x, x);
  const Output more = ops::AddV2(root_, square, x);
  Open();
  const Callable callable = Prepare({x}, {square, more});
  std::vector<std::vector<Tensor>> kept;
  std::vector<Tensor> feeds;
  for (int64_t i = 0; i < 10; ++i) {
    feeds.push_back(Tensor::Scalar<int64_t>(i));
    auto result = callable.Run({&feeds.back(), 1});
    ASSERT_TRUE(result.ok()) << result.status();
    kept.push_back(*std::move(result));
  }
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(feeds[i].scalar<int64_t>(), i);
    EXPECT_EQ(kept[i][0].scalar<int64_t>(), i * i);
    EXPECT_EQ(kept[i][1].scalar<int64_t>(), i * i + i);
  }
}

TEST_F(ScalarsTest, ShapesMayChangeFromRunToRun) {
  const Output x = Placeholder(root_, kFloat, PartialShape());
  const Output y = ops::Mul(root_, ops::AddV2(root_, x, x), ops::Neg(root_, x));
  const Output below = ops::Less(root_, y, x);
  Open();
  const Callable callable = Prepare({x}, {y, below});
  for (int i = 0; i < 12; ++i) {
    const Tensor feed =
        i % 3 == 0 ? Tensor::FromValues<float>({1, 2, 3}) : Tensor::Scalar<float>(1.0f + i);
    auto result = callable.Run({&feed, 1});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ((*result)[0].shape(), feed.shape());
    for (int64_t k = 0; k < feed.num_elements(); ++k) {
      const float v = feed.data<float>()[k];
      EXPECT_EQ((*result)[0].data<float>()[k], -2 * v * v);
      EXPECT_TRUE((*result)[1].data<bool>()[k]);
    }
  }
}

TEST_F(ScalarsTest, AnOperandThatIsRefusedIsNamed) {
  const Output x = Placeholder(root_, kInt32, PartialShape({}));
  const Output y = ops::FloorDiv(root_.WithOpName("share"),
                                 ops::Const(root_, Tensor::Scalar<int32_t>(6), kInt32), x);
  Open();
  const Callable callable = Prepare({x}, {y});
  for (const int32_t by : {2, 0, 3}) {
    const Tensor feed = Tensor::Scalar<int32_t>(by);
    const auto result = callable.Run({&feed, 1});
    if (by != 0) {
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ((*result)[0].scalar<int32_t>(), 6 / by);
    } else {
      EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(result.status().message().find("{{node share}}"), std::string::npos)
          << result.status();
    }
  }
}

TEST_F(ScalarsTest, AStringIsNotKept) {
  const Output x = Placeholder(root_, kString, PartialShape({}));
  const Output y = ops::Add(root_, ops::Add(root_, x, x), x);
  Open();
  const Callable callable = Prepare({x}, {y});
  const int64_t before = HostAllocator()->stats().bytes_in_use;
  for (int i = 0; i < 3; ++i) {
    const Tensor feed = Tensor::String("ab");
    auto result = callable.Run({&feed, 1});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].scalar<std::string>(), "ababab");
  }
  EXPECT_EQ(HostAllocator()->stats().bytes_in_use, before);
}

}  // namespace
}  // namespace millrace
