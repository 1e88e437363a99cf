// SPDX-License-Identifier: Apache-2.0
// A coordinator that leads the workers of a parameter_server strategy: what the strategy is within
// functions, where its variables lie, and data that each worker reads for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/millrace.h"
#include "millrace/partitioners.h"
#include "tests/coordinator/coordinated_program.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Led : public ::testing::Test {
 protected:
  Led() : cluster_(LocalCluster::Start({.workers = 2, .ps = 2}).value()) {
    options_.connect_timeout = kPatience;
    options_.join_timeout = kPatience;
    options_.fetch_timeout = kPatience;
  }

  std::shared_ptr<Strategy> MakeIt(const Partitioner& partitioner = nullptr) const {
    StrategyOptions options;
    options.task.cluster = cluster_->spec();
    options.target = cluster_->target("worker", 0);
    options.variable_partitioner = partitioner;
    return MakeStrategy("parameter_server", options).value();
  }

  const std::unique_ptr<LocalCluster> cluster_;
  CoordinatorOptions options_;
};

// Numbers, and whether they are more than four.
Dataset Numbers(int64_t batch_size) {
  constexpr int64_t kCount = 40;
  Tensor ids(kInt64, Shape({kCount})), labels(kFloat, Shape({kCount, 1}));
  for (int64_t i = 0; i < kCount; ++i) {
    ids.data<int64_t>()[i] = (i * 7) % 10;
    labels.data<float>()[i] = ids.data<int64_t>()[i] > 4 ? 1.0f : 0.0f;
  }
  return Dataset::FromTensorSlices({ids, labels})
      .Shuffle(kCount, {.seed = 3})
      .Repeat()
      .Batch(batch_size);
}

// The tutorial's program: an embedding of words that are numbers here, in parts on the parameter
// servers, and a dense layer.
TEST_F(Led, TrainsAModelWithAStepFunctionThatRunsOnItsReplica) {
  const auto strategy = MakeIt(FixedShards(2));
  EXPECT_EQ(strategy->num_replicas_in_sync(), 2);
  Graph graph;
  const auto made = ClusterCoordinator::Create(graph, strategy, options_);
  ASSERT_TRUE(made.ok()) << made.status();
  ClusterCoordinator& coordinator = **made;
  EXPECT_EQ(strategy->num_replicas_in_sync(), 1);

  const auto batch = coordinator.CreatePerWorkerDataset("data", [](const InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    return Numbers(*context.PerReplicaBatchSize(8));
  });
  ASSERT_TRUE(batch.ok()) << batch.status();
  const auto net = layers::Sequential(
      {layers::Embedding(10, 4,
                         {.embeddings_initializer = initializers::RandomUniform({.seed = 1})}),
       layers::Dense(
           1, {.activation = "sigmoid", .kernel_initializer = initializers::GlorotUniform(2)})});
  const auto optimizer = optimizers::RmsProp({.learning_rate = 0.05});
  const auto loss = losses::BinaryCrossentropy();
  int replicas = 0;
  const auto step = coordinator.AddFunction("step", [&](const Scope& worker) -> FunctionParts {
    std::vector<Operation> applied;
    const auto losses = strategy->Run(worker, [&](ReplicaContext& context) {
      ++replicas;
      EXPECT_EQ(context.num_replicas_in_sync(), 1);
      const Scope& scope = context.scope();
      Pass pass(scope, strategy->VariableScope(graph.root()), /*training=*/true);
      pass.SetPartitioner(strategy->variable_partitioner());
      const Output predicted = (*net)(pass, (*batch)[0]);
      const Output value = loss(scope, (*batch)[1], predicted);
      const auto gradients = optimizer->ComputeGradients(scope, value, net->trainable_weights());
      if (gradients.ok()) {
        const auto done = optimizer->ApplyGradients(scope, *gradients, nullptr);
        EXPECT_TRUE(done.ok()) << done.status();
        if (done.ok()) applied.push_back(*done);
      }
      return std::vector<Output>{value};
    });
    EXPECT_TRUE(losses.ok()) << losses.status();
    if (!losses.ok()) return {};
    return {{}, {strategy->Reduce(worker, ReduceOp::kMean, losses->at(0))}, applied};
  });
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(replicas, 1);
  std::set<std::string> places;
  for (const Variable& v : net->weights()) places.insert(v.handle.op().device());
  EXPECT_EQ(places.size(), 2u);
  EXPECT_THAT(places, Each(StartsWith("/job:ps")));
  EXPECT_EQ(net->weights()[0].name(), "sequential/embedding/embeddings/part_0");

  const Operation init = InitializeVariables(strategy->RootScope(graph.root()));
  const auto ready = coordinator.Run({}, {}, std::span(&init, 1));
  ASSERT_TRUE(ready.ok()) << ready.status();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 300; ++i) {
    const auto value = coordinator.Schedule(*step);
    ASSERT_TRUE(value.ok()) << value.status();
    values.push_back(*value);
  }
  const Status joined = coordinator.Join();
  ASSERT_TRUE(joined.ok()) << joined;
  const auto results = coordinator.Fetch(values);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_GT(results->front()[0].scalar<float>(), 0.5f);
  EXPECT_LT(results->back()[0].scalar<float>(), 0.2f);
}

TEST_F(Led, IsLedByOneCoordinator) {
  const auto strategy = MakeIt();
  Graph graph, other;
  auto first = ClusterCoordinator::Create(graph, strategy, options_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = ClusterCoordinator::Create(graph, strategy, options_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(first->get(), again->get());
  const auto another = ClusterCoordinator::Create(other, strategy, options_);
  EXPECT_TRUE(errors::IsFailedPrecondition(another.status())) << another.status();
  EXPECT_THAT(Text(another.status()), HasSubstr("one coordinator for a strategy"));
  SessionOptions session;
  const Status configured = strategy->ConfigureSession(&session);
  EXPECT_TRUE(errors::IsFailedPrecondition(configured)) << configured;
}

TEST_F(Led, IsAParameterServerStrategyOfTheSameCluster) {
  Graph graph;
  const auto mirrored = MakeStrategy("mirrored", {.replicas = 2}).value();
  const Status kind = ClusterCoordinator::Create(graph, mirrored, options_).status();
  EXPECT_TRUE(errors::IsInvalidArgument(kind)) << kind;
  EXPECT_THAT(Text(kind), AllOf(HasSubstr("parameter_server"), HasSubstr("'mirrored'")));
  EXPECT_TRUE(errors::IsInvalidArgument(
      ClusterCoordinator::Create(graph, std::shared_ptr<Strategy>(), options_).status()));
  options_.cluster = *ClusterSpec::Parse("ps|h0:2222,worker|h1:2222");
  const Status cluster = ClusterCoordinator::Create(graph, MakeIt(), options_).status();
  EXPECT_TRUE(errors::IsInvalidArgument(cluster)) << cluster;
  EXPECT_THAT(Text(cluster), HasSubstr("h1:2222"));
}

// Each worker goes through all of the data, in its own time, and the end is an error.
TEST_F(Led, GivesEachWorkerAllOfTheData) {
  Graph graph;
  const auto made = ClusterCoordinator::Create(graph, MakeIt(), options_);
  ASSERT_TRUE(made.ok()) << made.status();
  ClusterCoordinator& coordinator = **made;
  const auto next = coordinator.CreatePerWorkerDataset(
      "data", [](const InputContext&) { return Dataset::Range(5); });
  ASSERT_TRUE(next.ok()) << next.status();
  const auto take = coordinator.AddFunction("take", [&](const Scope& worker) {
    return FunctionParts{{}, {ops::Identity(worker, (*next)[0])}, {}};
  });
  ASSERT_TRUE(take.ok()) << take.status();
  std::vector<std::vector<int64_t>> seen(2);
  Status end;
  for (int i = 0; i < 11 && end.ok(); ++i) {
    const auto value = coordinator.Schedule(*take);
    ASSERT_TRUE(value.ok()) << value.status();
    const auto result = value->Fetch();
    end = result.status();
    if (!end.ok()) break;
    seen[static_cast<std::size_t>(value->worker())].push_back((*result)[0].scalar<int64_t>());
  }
  EXPECT_TRUE(errors::IsOutOfRange(end)) << end;
  EXPECT_TRUE(errors::IsOutOfRange(coordinator.Join()));
  for (const std::vector<int64_t>& numbers : seen) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(numbers[i], static_cast<int64_t>(i));
    }
  }
  const Status bad = coordinator
                         .CreatePerWorkerDataset(
                             "bad", [](const InputContext&) { return Dataset::Range(5).Batch(0); })
                         .status();
  EXPECT_TRUE(errors::IsInvalidArgument(bad)) << bad;
}

}  // namespace
}  // namespace millrace::testing
