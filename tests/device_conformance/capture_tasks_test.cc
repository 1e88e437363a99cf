// SPDX-License-Identifier: Apache-2.0
// Recorded steps of a worker that gets its weights from a parameter server and sends gradients to
// it: to the bits of ordinary steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "base/strings.h"
#include "distributed_runtime/task_server.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "runtime/fake_accelerator.h"
#include "runtime/registries.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/device_conformance/capture_util.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<TaskServer> Start(const ClusterSpec& cluster, const std::string& job, bool links,
                                  bool capture) {
  UseFakeAccelerator();
  TaskServerOptions options;
  options.engine.capture = capture;
  options.links = links;
  options.server.cluster = cluster;
  options.server.job_name = job;
  options.server.task_index = 0;
  options.server.inter_op_threads = 2;
  options.server.intra_op_threads = 1;
  options.ops = &AllOps();
  options.kernels = &AllKernels();
  options.devices = AllDeviceFactories();
  if (job == "worker") options.device_count = {{"FAKE", 1}};
  auto server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() && (*server)->Start().ok() ? *std::move(server) : nullptr;
}

class CaptureTasksTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { StartTasks(/*capture=*/true); }
  void StartTasks(bool capture) {
    p.reset();
    ps = nullptr;
    worker = nullptr;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::vector<int> ports = FreePorts(2);
      const ClusterSpec cluster =
          *ClusterSpec::Parse(StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]));
      ps = Start(cluster, "ps", GetParam(), capture);
      worker = Start(cluster, "worker", GetParam(), capture);
      if (ps != nullptr && worker != nullptr) return Begin();
    }
    FAIL() << "no two ports are free";
  }
  void TearDown() override {
    p.reset();
    EXPECT_TRUE(Eventually([] { return CaptureReports().empty(); }));
  }
  // A new graph.
  void Begin() {
    p.emplace("FAKE");
    at_ps.emplace(p->root.WithDevice("/job:ps/task:0"));
    device.emplace(p->root.WithDevice("/job:worker/task:0/device:FAKE:0"));
  }
  void Open() {
    auto master = ConnectToMaster(worker->target());
    ASSERT_TRUE(master.ok()) << master.status();
    p->master = *master;
    p->session = p->NewSession();
  }
  std::vector<Tensor> Train(const std::string& optimizer, int64_t* launched, std::string* reasons);

  std::unique_ptr<TaskServer> ps, worker;
  std::optional<Program> p;
  std::optional<Scope> at_ps, device;
};

INSTANTIATE_TEST_SUITE_P(Transports, CaptureTasksTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "links" : "grpc"; });

Output Dense(const Scope& at_ps, const Scope& device, const std::string& name, const Output& x,
             int64_t in, int64_t out) {
  const Variable w = MakeVariable(at_ps, name + "_w", Constant(at_ps, Noise({in, out}, 3)));
  const Variable b = MakeVariable(at_ps, name + "_b", Constant(at_ps, Noise({out}, 4)));
  return ops::BiasAdd(device, ops::MatMul(device, x, w.read), b.read);
}

// Losses of eight steps, then the variables.
std::vector<Tensor> CaptureTasksTest::Train(const std::string& optimizer, int64_t* launched,
                                            std::string* reasons) {
  Begin();
  const Output x = Placeholder(p->root, kFloat, {4, 20});
  const Output y = Placeholder(p->root, kFloat, {4, 10});
  const Output h = ops::Relu(*device, Dense(*at_ps, *device, "one", x, 20, 16));
  const Output logits = Dense(*at_ps, *device, "two", h, 16, 10);
  const Output loss = ReduceMean(*device, SoftmaxCrossEntropy(*device, logits, y));
  const Variable step = GlobalStep(*at_ps);
  auto made = OptimizerByName(optimizer, 0.05f);
  EXPECT_TRUE(made.ok()) << made.status();
  const auto train = (*made)->Minimize(*device, loss, &step);
  EXPECT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  std::vector<Tensor> found;
  for (int i = 0; i < 8; ++i) {
    const auto values = p->Run({{x, Noise({4, 20}, 77 + i)}, {y, Labels(4)}}, {loss}, {*train});
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return found;
    found.push_back((*values)[0]);
  }
  *launched = Launched();
  *reasons = Reasons();
  for (const Variable& v : Variables(p->graph)) found.push_back(p->Eval(v.read));
  return found;
}

TEST_P(CaptureTasksTest, TrainsWithWeightsOfAnotherTask) {
  for (const char* optimizer : {"sgd", "adam"}) {
    SCOPED_TRACE(optimizer);
    int64_t launched = 0;
    std::string reasons;
    StartTasks(/*capture=*/false);
    const std::vector<Tensor> ordinary = Train(optimizer, &launched, &reasons);
    EXPECT_EQ(launched, 0);
    StartTasks(/*capture=*/true);
    const std::vector<Tensor> captured = Train(optimizer, &launched, &reasons);
    EXPECT_EQ(launched, 6) << reasons;
    ASSERT_EQ(captured.size(), ordinary.size());
    for (std::size_t i = 0; i < captured.size(); ++i) {
      EXPECT_TRUE(TensorsEqual(captured[i], ordinary[i])) << i;
    }
  }
}

TEST_P(CaptureTasksTest, WhatComesBackFromAnotherTaskIsNotRecorded) {
  const Output x = Placeholder(p->root, kFloat, {4});
  const Output there = ops::Square(*device, ops::Neg(*device, x));
  const Output back = ops::Neg(*at_ps, there);
  const Output y = ops::Square(*device, ops::Neg(*device, back));
  Open();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(TensorsEqual(p->Eval(y, {{x, Filled(4, 3)}}), Filled(4, 81)));
  }
  EXPECT_EQ(Launched(), 0);
  EXPECT_THAT(Reasons(), HasSubstr("depends, or may depend, on what the same step sends"));
}

TEST_P(CaptureTasksTest, NorAStepThatPassesThroughAQueueThere) {
  const Output x = Placeholder(p->root, kFloat, {4});
  const Output queue = ops::FIFOQueueV2(*at_ps, {kFloat}, {.shapes = {PartialShape({4})}});
  const Output in = ops::Neg(*device, ops::Square(*device, x));
  const Operation put = ops::QueueEnqueueV2(*at_ps, queue, {in});
  const Output out = ops::QueueDequeueV2(*at_ps, queue, {kFloat})[0];
  const Output y = ops::Neg(*device, ops::Square(*device, out));
  Open();
  for (int i = 0; i < 5; ++i) {
    const auto values = p->Run({{x, Filled(4, 2)}}, {y}, {put});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(4, -16)));
  }
  EXPECT_EQ(Launched(), 0);
}

}  // namespace
}  // namespace millrace::testing
