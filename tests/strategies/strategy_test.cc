// SPDX-License-Identifier: Apache-2.0
// What strategies promise and refuse.
#include "millrace/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const Status& status) { return status.ToString(); }

std::shared_ptr<Strategy> Mirrored(int replicas) {
  return MirroredStrategy({.replicas = replicas}).value();
}

StatusOr<std::vector<Tensor>> Values(Graph& graph, const Strategy& strategy,
                                     const std::vector<Output>& fetches,
                                     const std::vector<Operation>& before = {}) {
  if (!graph.status().ok()) return graph.status();
  SessionOptions options;
  if (Status s = strategy.ConfigureSession(&options); !s.ok()) return s;
  auto session = Session::Create(graph, options);
  if (!session.ok()) return session.status();
  for (const Operation& op : before) {
    if (Status s = session->RunTargets({op}); !s.ok()) return s;
  }
  return session->Run({}, fetches);
}

TEST(MakeStrategy, SaysWhichNamesThereAre) {
  const auto unknown = MakeStrategy("mirored");
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(unknown.status()), HasSubstr("choose one of default, one_device, mirrored"));
  const auto tpu = MakeStrategy("tpu");
  EXPECT_EQ(tpu.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(TextOf(tpu.status()), HasSubstr("PJRT"));
}

TEST(MakeStrategy, RefusesWhatCannotBe) {
  EXPECT_THAT(TextOf(MakeStrategy("mirrored", {.replicas = -1}).status()),
              HasSubstr("StrategyOptions.replicas must not be negative, and is -1"));
  EXPECT_THAT(
      TextOf(MakeStrategy("mirrored", {.devices = {"/device:CPU:0", "/device:CPU:0"}}).status()),
      HasSubstr("names /device:CPU:0 twice"));
  EXPECT_THAT(TextOf(MakeStrategy("one_device", {.replicas = 2}).status()),
              HasSubstr("one_device has one replica"));
  EXPECT_THAT(TextOf(MakeStrategy("mirrored", {.communication = {.bytes_per_pack = -1}}).status()),
              HasSubstr("bytes_per_pack must not be negative"));
}

TEST(MakeStrategy, OfParameterServersNeedsBothKindsOfTasks) {
  ClusterSpec spec;
  ASSERT_TRUE(spec.AddTask("worker", 0, "127.0.0.1:1").ok());
  EXPECT_THAT(TextOf(MakeStrategy("parameter_server", {.task = {.cluster = spec}}).status()),
              HasSubstr("There must be at least one ps."));
}

TEST(Strategies, NameTheirDevices) {
  EXPECT_EQ(Mirrored(2)->Description(), "mirrored with devices [/device:CPU:0, /device:CPU:1]");
  EXPECT_EQ(DefaultStrategy()->num_replicas_in_sync(), 1);
  EXPECT_EQ(Mirrored(4)->num_replicas_in_sync(), 4);
  EXPECT_EQ(Mirrored(4)->num_workers(), 1);
}

TEST(Run, GivesEveryReplicaItsNumberAndItsDevice) {
  const auto strategy = Mirrored(3);
  Graph graph;
  std::vector<std::string> devices;
  const auto results = strategy->Run(graph.root(), [&](ReplicaContext& context) {
    const Output id =
        Constant(context.scope(), Tensor::Scalar<int32_t>(context.replica_id_in_sync_group()));
    devices.push_back(id.op().device());
    return std::vector{id};
  });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(devices, strategy->replica_devices());
  const auto values = Values(graph, *strategy, results->at(0).values);
  ASSERT_TRUE(values.ok()) << values.status();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(values->at(static_cast<std::size_t>(i)).scalar<int32_t>(), i);
}

TEST(Run, MergesWhatAllReplicasBring) {
  const auto strategy = Mirrored(3);
  Graph graph;
  int merges = 0;
  const auto results = strategy->Run(graph.root(), [&](ReplicaContext& context) {
    const Output own = Constant(context.scope(),
                                Tensor::Scalar<float>(static_cast<float>(context.local_replica())));
    // Each gets its neighbour's value, twice over.
    const auto turn = [&](const Scope&, const PerReplica& all) {
      ++merges;
      return std::vector{all.values[1], all.values[2], all.values[0]};
    };
    return std::vector{context.MergeCall(context.MergeCall(own, turn), turn)};
  });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(merges, 2);
  const auto values = Values(graph, *strategy, results->at(0).values);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 2);
  EXPECT_EQ(values->at(1).scalar<float>(), 0);
  EXPECT_EQ(values->at(2).scalar<float>(), 1);
}

TEST(Run, NamesTheReplicaThatDidNotCome) {
  const auto strategy = Mirrored(2);
  Graph graph;
  const auto results = strategy->Run(graph.root(), [&](ReplicaContext& context) {
    const Output one = Constant(context.scope(), Tensor::Scalar<float>(1));
    if (context.local_replica() == 1) return std::vector{one};
    return std::vector{context.AllReduce(ReduceOp::kSum, one)};
  });
  EXPECT_EQ(results.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      TextOf(results.status()),
      HasSubstr("replica 1 has ended, and replica 0 waits for it in MergeCall or AllReduce"));
}

TEST(Run, RefusesReplicasThatMakeDifferentNumbersOfValues) {
  const auto strategy = Mirrored(2);
  Graph graph;
  const auto results = strategy->Run(graph.root(), [&](ReplicaContext& context) {
    const Output one = Constant(context.scope(), Tensor::Scalar<float>(1));
    return std::vector<Output>(static_cast<std::size_t>(1 + context.local_replica()), one);
  });
  EXPECT_THAT(TextOf(results.status()), HasSubstr("replica 0 returned 1 values, and replica 1 2"));
}

TEST(Split, GivesTheFirstReplicasMoreAndTheLastNone) {
  const auto strategy = Mirrored(4);
  for (const auto& [rows, want] : std::vector<std::pair<int64_t, std::vector<int64_t>>>{
           {8, {2, 2, 2, 2}}, {7, {2, 2, 2, 1}}, {5, {2, 2, 1, 0}}, {1, {1, 0, 0, 0}}}) {
    Graph graph;
    const PerReplica parts =
        strategy->Split(graph.root(), Constant(graph.root(), Tensor(kFloat, Shape({rows, 3}))));
    const auto values = Values(graph, *strategy, parts.values);
    ASSERT_TRUE(values.ok()) << values.status();
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(values->at(i).shape(), Shape({want[i], 3})) << rows << " rows, replica " << i;
    }
  }
}

TEST(DistributedVariables, HaveACopyForEachReplicaThatBeginsAsTheFirst) {
  const auto strategy = Mirrored(2);
  Graph graph;
  const DistributedVariable v =
      strategy->MakeVariable(graph.root(), "v", RandomNormal(graph.root(), Shape({4})), {});
  ASSERT_EQ(v.copies().size(), 2u);
  EXPECT_EQ(v.copies()[1].name(), "v/replica_1");
  EXPECT_EQ(v.copies()[1].handle.op().device(), "/device:CPU:1");
  const Operation init =
      Group(graph.root(), {v.copies()[0].initializer, v.copies()[1].initializer});
  const auto values = Values(graph, *strategy, {v.copies()[0].read, v.copies()[1].read}, {init});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(TensorsEqual(values->at(0), values->at(1)));
  // Checkpoints keep the first alone.
  EXPECT_EQ(Variables(graph).size(), 1u);
}

TEST(DistributedVariables, AreNotAssignedInReplicasWithoutAnAggregation) {
  const auto strategy = Mirrored(2);
  Graph graph;
  const DistributedVariable v =
      strategy->MakeVariable(graph.root(), "v", Constant(graph.root(), Tensor::Scalar<float>(1)));
  const auto results = strategy->Run(graph.root(), [&](ReplicaContext& context) {
    (void)v.Apply(context, DistributedVariable::Update::kAssign,
                  Constant(context.scope(), Tensor::Scalar<float>(2)));
    return std::vector<Output>();
  });
  EXPECT_THAT(TextOf(results.status()),
              HasSubstr("You must specify an aggregation method to update a variable in Replica"));
}

TEST(DistributedVariables, HaveNoMeanOfIntegersAndNoMissingSynchronization) {
  const auto strategy = Mirrored(2);
  Graph integers;
  (void)strategy->MakeVariable(integers.root(), "steps",
                               Constant(integers.root(), Tensor::Scalar<int64_t>(1)),
                               {.aggregation = VariableAggregation::kMean});
  EXPECT_THAT(TextOf(integers.status()), HasSubstr("'steps' is of type int64"));
  Graph none;
  (void)strategy->MakeVariable(none.root(), "v", Constant(none.root(), Tensor::Scalar<float>(1)),
                               {.synchronization = VariableSynchronization::kNone});
  EXPECT_THAT(TextOf(none.status()), HasSubstr("`NONE` variable synchronization mode"));
}

TEST(Reduce, HasNoMeanOfIntegers) {
  for (const int replicas : {1, 2}) {
    const auto strategy = Mirrored(replicas);
    const auto make = [&](Graph& graph) {
      return strategy->ValuesOf(graph.root(), [](const Scope& scope, int replica) {
        return Constant(scope, Tensor::FromValues<int32_t>({replica, 5}));
      });
    };
    Graph whole, axis, sum;
    (void)strategy->Reduce(whole.root(), ReduceOp::kMean, make(whole));
    (void)strategy->Reduce(axis.root(), ReduceOp::kMean, make(axis), 0);
    EXPECT_THAT(TextOf(whole.status()), HasSubstr("the mean of int32 values would be rounded"));
    EXPECT_THAT(TextOf(axis.status()), HasSubstr("the mean of int32 values would be rounded"));
    (void)strategy->Reduce(sum.root(), ReduceOp::kSum, make(sum));
    EXPECT_TRUE(sum.status().ok()) << sum.status();
  }
}

// Of 2048, 1 and 1 the sum would be rounded, of 60000 and more there would be none.
TEST(Reduce, RoundsTheMeanOfHalvesOnce) {
  const auto strategy = Mirrored(3);
  Graph graph;
  const PerReplica values = strategy->ValuesOf(graph.root(), [](const Scope& scope, int replica) {
    constexpr float kOwn[3][2] = {{2048, 60000}, {1, 10000}, {1, 20000}};
    const Tensor own = Tensor::FromValues<float>({kOwn[replica][0], kOwn[replica][1]});
    return ops::Cast(scope, Constant(scope, own), kHalf);
  });
  const Output whole = strategy->Reduce(graph.root(), ReduceOp::kMean, values);
  EXPECT_EQ(whole.dtype(), kHalf);
  // 7500 ones: so many rows cannot be counted in halves.
  const PerReplica ones = strategy->ValuesOf(graph.root(), [](const Scope& scope, int) {
    return ops::Cast(scope, ops::Fill(scope, {2500}, 1.0f), kHalf);
  });
  const Output axis = strategy->Reduce(graph.root(), ReduceOp::kMean, ones, 0);
  EXPECT_EQ(axis.dtype(), kHalf);
  const auto means =
      Values(graph, *strategy,
             {ops::Cast(graph.root(), whole, kFloat), ops::Cast(graph.root(), axis, kFloat)});
  ASSERT_TRUE(means.ok()) << means.status();
  // 2050 / 3 to the nearest half.
  EXPECT_TRUE(TensorsEqual(means->at(0), Tensor::FromValues<float>({683.5, 30000})));
  EXPECT_TRUE(TensorsEqual(means->at(1), Tensor::Scalar<float>(1)));
}

TEST(ConfigureSession, GivesAProgramItsDevicesAndRefusesAnotherTarget) {
  SessionOptions options;
  ASSERT_TRUE(Mirrored(3)->ConfigureSession(&options).ok());
  EXPECT_EQ(options.num_cpu_devices, 3);
  const auto remote = MirroredStrategy({.replicas = 1, .target = "grpc://127.0.0.1:1"}).value();
  options.target = "grpc://127.0.0.1:2";
  EXPECT_THAT(TextOf(remote->ConfigureSession(&options)),
              HasSubstr("SessionOptions.target is grpc://127.0.0.1:2"));
}

}  // namespace
}  // namespace millrace
