// SPDX-License-Identifier: Apache-2.0
// Devices of several tasks: values leave one through host memory and arrive in another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/strings.h"
#include "distributed_runtime/task_server.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "runtime/fake_accelerator.h"
#include "runtime/registries.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

std::unique_ptr<TaskServer> Start(const ClusterSpec& cluster, int task, bool links) {
  UseFakeAccelerator();
  TaskServerOptions options;
  options.links = links;
  options.server.cluster = cluster;
  options.server.job_name = "worker";
  options.server.task_index = task;
  options.server.inter_op_threads = 2;
  options.server.intra_op_threads = 1;
  options.ops = &AllOps();
  options.kernels = &AllKernels();
  options.devices = AllDeviceFactories();
  options.device_count = {{"FAKE", 2}};
  auto server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() && (*server)->Start().ok() ? *std::move(server) : nullptr;
}

class TasksTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::vector<int> ports = FreePorts(2);
      const ClusterSpec cluster =
          *ClusterSpec::Parse(StrCat("worker|127.0.0.1:", ports[0], ";127.0.0.1:", ports[1]));
      for (int i = 0; i < 2; ++i) servers[i] = Start(cluster, i, GetParam());
      if (servers[0] != nullptr && servers[1] != nullptr) return;
    }
    FAIL() << "no two ports are free";
  }
  std::unique_ptr<TaskServer> servers[2];
};
INSTANTIATE_TEST_SUITE_P(Transports, TasksTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "links" : "grpc"; });

TEST_P(TasksTest, PassesValuesBetweenTheDevicesOfTwoTasks) {
  constexpr int64_t kSize = 50'001;
  const auto filled = [](float value) {
    Tensor t(kFloat, {kSize});
    for (float& x : t.flat<float>()) x = value;
    return t;
  };
  Program p("FAKE");
  const auto at = [&](int task, int index) {
    return p.root.WithDevice(StrCat("/job:worker/task:", task, "/device:FAKE:", index));
  };
  const Output x = Placeholder(p.root, kFloat, {kSize});
  Output y = x;
  for (int i = 0; i < 8; ++i) y = ops::AddV2(at(i / 2 % 2, i % 2), y, y);
  auto master = ConnectToMaster(servers[0]->target());
  ASSERT_TRUE(master.ok()) << master.status();
  p.master = *master;
  p.session = p.NewSession();
  for (float f = 0; f < 3; ++f) {
    EXPECT_TRUE(TensorsEqual(p.Eval(y, {{x, filled(f)}}), filled(256 * f)));
  }
  // The error of a device names it at the other end of the cluster.
  const auto machine = FakeMachine::Find("/job:worker/replica:0/task:1/device:FAKE:0");
  ASSERT_NE(machine, nullptr);
  machine->FailNext("", Status(StatusCode::kDataLoss, "a loose wire"));
  const auto failed = p.Run({{x, filled(1)}}, {y});
  EXPECT_EQ(failed.status().code(), StatusCode::kDataLoss) << failed.status();
  EXPECT_THAT(failed.status().ToString(),
              ::testing::AllOf(::testing::HasSubstr("a loose wire"),
                               ::testing::HasSubstr("task:1/device:FAKE:0")));
  EXPECT_TRUE(TensorsEqual(p.Eval(y, {{x, filled(2)}}), filled(512)));
  p.session.reset();
}

}  // namespace
}  // namespace millrace::testing
