// SPDX-License-Identifier: Apache-2.0
// Gradients and variables of all ranks, and what calls say before Init.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/core.h"
#include "millrace/data_parallel.h"
#include "tests/ranks/ranks_in_process.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RanksInProcess;

constexpr int kRanks = 3;

RanksInProcess& Three() {
  static auto* const three = new RanksInProcess(kRanks, {.timeout_seconds = 60});
  return *three;
}

// What each rank fetches of the graph that it builds, after `init`.
std::vector<StatusOr<std::vector<Tensor>>> Evaluate(
    const std::function<StatusOr<std::vector<Output>>(
        int rank, const Scope& scope, const std::shared_ptr<ProcessGroup>& group)>& build) {
  std::vector<StatusOr<std::vector<Tensor>>> all(kRanks, std::vector<Tensor>());
  for (const Status& status : Three().statuses()) EXPECT_TRUE(status.ok()) << status;
  Three().All([&](int rank) -> Status {
    auto& result = all[static_cast<std::size_t>(rank)];
    Graph graph;
    const auto& group = Three().group(rank);
    const StatusOr<std::vector<Output>> outputs = build(rank, graph.root(), group);
    SessionOptions options;
    Status status = outputs.status();
    if (status.ok()) status = graph.status();
    if (status.ok()) status = group->ConfigureSession(&options);
    if (!status.ok()) {
      result = status;
      return status;
    }
    const Operation init = InitializeVariables(graph.root());
    auto session = Session::Create(graph, options);
    if (!session.ok()) {
      result = session.status();
      return OkStatus();
    }
    status = session->RunTargets({init});
    if (status.ok()) {
      result = session->Run({}, *outputs);
    } else {
      result = status;
    }
    return OkStatus();
  });
  return all;
}

TEST(DataParallel, AsksForInitFirst) {
  EXPECT_FALSE(dp::IsInitialized());
  Graph graph;
  const Output x = Constant(graph.root(), Tensor::Scalar(1.0f));
  const Status before[] = {
      dp::Rank().status(),
      dp::Size().status(),
      dp::LocalRank().status(),
      dp::LocalSize().status(),
      dp::Barrier(),
      dp::Shutdown(),
      dp::Join().status(),
      dp::AllReduce(Tensor::Scalar(1.0f)).status(),
      dp::BroadcastVariables(graph.root(), {}).status(),
      dp::DistributedGradients(graph.root(), std::vector{x}, std::vector{x}).status()};
  for (const Status& status : before) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.ToString(), HasSubstr("call millrace::dp::Init() first"));
  }
  ASSERT_TRUE(dp::Init().ok());
  EXPECT_TRUE(dp::Init().ok());
  EXPECT_EQ(*dp::Rank(), 0);
  EXPECT_EQ(*dp::Size(), 1);
  EXPECT_EQ(dp::AllReduce(Tensor::Scalar(3.0f))->scalar<float>(), 3.0f);
  EXPECT_EQ(*dp::Join(), 0);
  EXPECT_TRUE(dp::Shutdown().ok());
  EXPECT_FALSE(dp::IsInitialized());
}

TEST(DistributedGradients, AreMeansUnlessSumsAreAskedFor) {
  for (const auto& [op, wanted] : {std::pair(ReduceOp::kMean, 2.0f), {ReduceOp::kSum, 6.0f}}) {
    for (const auto& result : Evaluate([op = op](int rank, const Scope& scope, const auto& group) {
           const Output x = Constant(scope, Tensor::FromValues<float>({1, 1}));
           const Output y = Constant(scope, Tensor::Scalar(5.0));
           const Output factor = Constant(scope, Tensor::Scalar(rank + 1.0f));
           const Output loss = ReduceSum(scope, x * factor);
           const Output other = ops::Cast(scope, y * y, kFloat);
           return dp::DistributedGradients(scope, std::vector{loss, other}, std::vector{x, y},
                                           {.op = op, .group = group});
         })) {
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->at(0).data<float>()[1], wanted);
      EXPECT_EQ(result->at(1).scalar<double>(), op == ReduceOp::kMean ? 10.0 : 30.0);
    }
  }
}

TEST(DistributedGradients, TravelInSixteenBitsIfTheyMay) {
  for (const auto& result : Evaluate([](int rank, const Scope& scope, const auto& group) {
         const Output x = Constant(scope, Tensor::FromValues<float>({1, 1}));
         // Three times as much is more than 16 bits hold.
         const Output loss =
             ReduceSum(scope, x * Constant(scope, Tensor::FromValues<float>({60000, 1.0f + rank})));
         auto gradients = dp::DistributedGradients(
             scope, std::vector{loss}, std::vector{x},
             {.compression = dp::GradientCompression::kFp16, .group = group});
         int reduced = 0;
         const Operation op = gradients.ok() ? gradients->at(0).op().input(0).op() : Operation();
         reduced += op.valid() && op.type() == "CollectiveReduce" && op.output(0).dtype() == kHalf;
         EXPECT_EQ(reduced, 1) << (op.valid() ? op.type() : "nothing");
         return gradients;
       })) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->at(0).dtype(), kFloat);
    EXPECT_NEAR(result->at(0).data<float>()[0], 60000, 100);
    EXPECT_NEAR(result->at(0).data<float>()[1], 2, 0.01);
  }
}

TEST(DistributedGradients, OfRowsAreTheRowsOfAllRanks) {
  for (const bool dense : {false, true}) {
    for (const auto& result : Evaluate([dense](int rank, const Scope& scope,
                                               const auto& group) -> StatusOr<std::vector<Output>> {
           const Variable table =
               MakeVariable(scope, "table", Zeros(scope, Shape({5, 2})), {.use_resource = true});
           const Tensor ids(kInt32, Shape({rank}));
           std::fill_n(const_cast<Tensor&>(ids).data<int32_t>(), rank, rank);
           const Output rows = ops::ResourceGather(scope, table.handle, ids, kFloat);
           auto optimizer = dp::DistributedOptimizer(GradientDescent({.learning_rate = 3.0f}),
                                                     {.sparse_as_dense = dense, .group = group});
           auto gradients = optimizer->ComputeGradients(scope, ReduceSum(scope, rows));
           if (!gradients.ok()) return gradients.status();
           EXPECT_EQ(gradients->at(0).is_sparse(), !dense);
           auto train = optimizer->ApplyGradients(scope, *gradients, nullptr);
           if (!train.ok()) return train.status();
           const Scope behind = scope.WithControlDependencies({*train});
           return std::vector{ops::ReadVariableOp(behind, table.handle, kFloat)};
         })) {
      ASSERT_TRUE(result.ok()) << result.status();
      const auto flat = result->at(0).flat<float>();
      EXPECT_THAT(std::vector(flat.begin(), flat.end()),
                  ElementsAre(0, 0, -1, -1, -2, -2, 0, 0, 0, 0));
    }
  }
}

TEST(BroadcastVariables, GivesModelAndOptimizerTheValuesOfTheRoot) {
  for (const auto& result : Evaluate([](int rank, const Scope& scope,
                                        const auto& group) -> StatusOr<std::vector<Output>> {
         const Variable w =
             MakeVariable(scope, "w", Constant(scope, Tensor::FromValues<float>({1.0f * rank, 7})));
         const auto optimizer =
             dp::DistributedOptimizer(Momentum({.learning_rate = 1.0f + rank}), {.group = group});
         auto train = optimizer->Minimize(scope, ReduceSum(scope, w.read), nullptr);
         if (!train.ok()) return train.status();
         std::vector<Variable> all = Variables(scope);
         EXPECT_EQ(all.size(), 2u);
         EXPECT_EQ(optimizer->variables().size(), 1u);
         auto begin =
             dp::BroadcastVariables(scope.WithControlDependencies({*train}), all, 2, group);
         if (!begin.ok()) return begin.status();
         const Scope behind = scope.WithControlDependencies({*begin});
         return std::vector{ops::Identity(behind, w.handle), ops::Identity(behind, all[1].handle)};
       })) {
    ASSERT_TRUE(result.ok()) << result.status();
    // Rank 2 has moved by 3.
    EXPECT_TRUE(TensorsEqual(result->at(0), Tensor::FromValues<float>({-1, 4})));
    EXPECT_TRUE(TensorsEqual(result->at(1), Tensor::FromValues<float>({1, 1})));
  }
}

TEST(BroadcastVariables, NamesAVariableWithoutAValueAtAllRanks) {
  for (const Status& status : Three().All([](int rank) -> Status {
         Graph graph;
         const Scope scope = graph.root();
         const auto& group = Three().group(rank);
         MakeVariable(scope, "nothing", Constant(scope, Tensor::Scalar(1.0f)),
                      {.container = "of_this_test"});
         const auto begin = dp::BroadcastVariables(scope, Variables(scope), 1, group);
         SessionOptions options;
         Status made = begin.status();
         if (made.ok()) made = group->ConfigureSession(&options);
         if (!made.ok()) return made;
         auto session = Session::Create(graph, options);
         return session.ok() ? session->RunTargets({*begin}) : session.status();
       })) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr("variables without a value at rank 1"));
    EXPECT_THAT(status.ToString(), HasSubstr("nothing"));
  }
}

TEST(BroadcastVariables, NamesAVariableThatTheOthersDoNotHave) {
  for (const auto& result : Evaluate(
           [](int rank, const Scope& scope, const auto& group) -> StatusOr<std::vector<Output>> {
             MakeVariable(scope, rank == 1 ? "other" : "w", Constant(scope, Tensor::Scalar(1.0f)));
             auto begin = dp::BroadcastVariables(scope, Variables(scope), 0, group);
             if (!begin.ok()) return begin.status();
             return std::vector<Output>();
           })) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument) << result.status();
    EXPECT_THAT(result.status().ToString(), HasSubstr("rank 1 (/job:worker/replica:0/task:1)"));
    EXPECT_THAT(result.status().ToString(), HasSubstr("float[] other"));
  }
}

}  // namespace
}  // namespace millrace
