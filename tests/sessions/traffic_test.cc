// SPDX-License-Identifier: Apache-2.0
// What `millrace plan` predicts is what a cluster then counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "millrace/core.h"
#include "placer/placer.h"
#include "planner/traffic.h"
#include "runtime/registries.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";

// Variables on two ps, a step of training on the worker.
struct Program {
  // `batch` is -1 for any number of rows.
  explicit Program(int64_t batch) {
    ReplicaDeviceSetterOptions options;
    options.ps_tasks = 2;
    options.worker_device = "/job:worker/task:0";
    const Scope scope = graph.root().WithDevice(ReplicaDeviceSetter(options));
    x = Placeholder(scope.WithOpName("x"), kFloat, {batch, 6});
    y = Placeholder(scope.WithOpName("y"), kFloat, {batch, 2});
    Output layer = x;
    const int64_t sizes[] = {6, 5, 2};
    for (int i = 0; i < 2; ++i) {
      const Variable w =
          MakeVariable(scope, StrCat("w", i), Zeros(scope, {sizes[i], sizes[i + 1]}));
      const Variable b = MakeVariable(scope, StrCat("b", i), Zeros(scope, {sizes[i + 1]}));
      layer = ops::BiasAdd(scope, ops::MatMul(scope, layer, w.read), b.read);
      if (i == 0) layer = ops::Relu(scope, layer);
    }
    loss = ReduceMean(scope.WithOpName("loss"), ops::SquaredDifference(scope, layer, y));
    // Computed on the worker, and looked at by a ps: of as many bytes as there are rows.
    rows = ops::Neg(scope.WithOpName("rows").WithDevice("/job:ps/task:1"), layer);
    const Variable step = GlobalStep(scope);
    auto made = Adam({})->Minimize(scope, loss, &step);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) train = *made;
    init = InitializeVariables(scope);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
  }

  Graph graph;
  Output x, y, loss, rows;
  Operation train, init;
};

std::vector<Transfer> Predict(Program& program, const InProcessCluster& cluster,
                              const RunRequest& request) {
  pb::GraphDef def;
  EXPECT_TRUE(def.ParseFromString(*program.graph.ToGraphDef()));
  DataflowGraph graph(&AllOps());
  Status status = ImportGraphDef({}, def, &graph);
  EXPECT_TRUE(status.ok()) << status;
  PlacerInput input;
  for (const auto& [job, tasks] : cluster.spec().jobs()) {
    for (const auto& [task, address] : tasks) {
      const std::string name = StrCat("/job:", job, "/replica:0/task:", task, "/device:CPU:0");
      input.devices.push_back({name, "CPU", name == kWorker});
    }
  }
  input.kernel = [](const OpInfo& op, const AttrMap& attrs,
                    std::string_view type) -> std::optional<int> {
    const KernelDef* const kernel = AllKernels().Find(op.def.name(), type, attrs);
    return kernel == nullptr ? std::nullopt : std::optional<int>(kernel->priority);
  };
  status = Place(&graph, input, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  const StatusOr<PlannedRun> run = PrepareRun(graph, request);
  EXPECT_TRUE(run.ok()) << run.status();
  std::vector<Transfer> transfers = PredictTransfers(*run);
  std::erase_if(transfers, [](const Transfer& transfer) {
    return transfer.from == kClient || transfer.to == kClient;
  });
  return transfers;
}

// One step at the worker's server, with what its receives counted.
std::vector<TransferSum> Count(Program& program, const InProcessCluster& cluster, int64_t batch) {
  auto session = Session::Create(program.graph, {.target = cluster.Target("worker", 0)});
  EXPECT_TRUE(session.ok()) << session.status();
  Status status = session->RunTargets({program.init});
  EXPECT_TRUE(status.ok()) << status;
  const std::vector<Feed> feeds = {{program.x, Tensor(kFloat, Shape({batch, 6}))},
                                   {program.y, Tensor(kFloat, Shape({batch, 2}))}};
  const std::vector<Output> fetches = {program.loss};
  const std::vector<Operation> targets = {program.train, program.rows.op()};
  RunOptions options;
  options.trace = true;
  options.partition_graphs = true;
  RunMetadata metadata;
  status = session->Run(feeds, fetches, targets, options, &metadata).status();
  EXPECT_TRUE(status.ok()) << status;
  pb::StepStats stats;
  EXPECT_TRUE(stats.ParseFromString(metadata.step_stats));
  std::vector<pb::GraphDef> graphs(metadata.partition_graphs.size());
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    EXPECT_TRUE(graphs[i].ParseFromString(metadata.partition_graphs[i]));
  }
  StatusOr<std::vector<TransferSum>> links = CountTransfers(stats, graphs);
  EXPECT_TRUE(links.ok()) << links.status();
  return links.ok() ? *std::move(links) : std::vector<TransferSum>();
}

std::vector<std::string> Lines(const std::vector<TransferSum>& links) {
  std::vector<std::string> lines;
  for (const TransferSum& link : links) {
    lines.push_back(StrCat(link.from, " > ", link.to, ": ", link.tensors + link.controls,
                           " edges, ", ToText(link.bytes), " bytes"));
  }
  return lines;
}

RunRequest Step() {
  return {.feeds = {"x", "y"}, .fetches = {"loss"}, .targets = {"rows"}, .client_device = kWorker};
}

TEST(Traffic, OfStaticShapesIsPredictedToTheByte) {
  const InProcessCluster cluster(2, 1);
  Program program(4);
  RunRequest step = Step();
  step.targets.push_back(program.train.name());
  const std::vector<Transfer> predicted = Predict(program, cluster, step);
  for (const Transfer& t : predicted) EXPECT_TRUE(t.bytes.IsExact()) << t.tensor << ": " << t.why;
  const std::vector<TransferSum> counted = Count(program, cluster, 4);
  EXPECT_EQ(Lines(SumTransfers(predicted, /*by_task=*/false)), Lines(counted));
  EXPECT_GE(counted.size(), 4u);  // both directions of both ps
}

TEST(Traffic, OfAnyNumberOfRowsIsBoundedAndExactOnceTheNumberIsSaid) {
  const InProcessCluster cluster(2, 1);
  Program program(-1);
  RunRequest step = Step();
  step.targets.push_back(program.train.name());
  std::vector<std::string> open;
  for (const Transfer& t : Predict(program, cluster, step)) {
    if (!t.bytes.IsExact()) open.push_back(StrCat(t.tensor, ": ", ToText(t.bytes), ", ", t.why));
  }
  EXPECT_THAT(open, Contains(HasSubstr(": at least 0, its shape is [?,2]")));
  const std::vector<TransferSum> bounds = SumTransfers(Predict(program, cluster, step), false);
  const std::vector<TransferSum> counted = Count(program, cluster, 7);
  ASSERT_EQ(bounds.size(), counted.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_GE(counted[i].bytes.least, bounds[i].bytes.least) << counted[i].to;
    if (bounds[i].bytes.IsExact()) {
      EXPECT_EQ(counted[i].bytes, bounds[i].bytes);
    }
  }
  step.shapes["x:0"] = PartialShape({7, 6});
  step.shapes["y:0"] = PartialShape({7, 2});
  EXPECT_EQ(Lines(SumTransfers(Predict(program, cluster, step), false)), Lines(counted));
}

}  // namespace
}  // namespace millrace::testing
