// SPDX-License-Identifier: Apache-2.0
// The memory of GPUs: how it is taken, who has it, and that it comes back. Each test in a process
// of its own, as the first session of a process decides how memory is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "millrace/ops.h"
#include "runtime/local_cluster.h"
#include "tests/device_conformance/program.h"
#include "tests/gpu/gpus.h"
#include "tests/gpu/own_process.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(GpusForTests().obstacle, "");
    UseTestKernels();
  }
};

// A session on the first device, whose probe tells of its memory.
struct Probing {
  Probing() : p("GPU") {
    p.devices = 1;
    p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
        pb::RewriterConfig::OFF);
  }
  pb::GPUOptions* options() { return p.config.mutable_gpu_options(); }
  // Parts of the first GPU.
  void Divide(const std::vector<float>& megabytes) {
    options()->set_visible_device_list("0");
    auto* const parts = options()->mutable_experimental()->add_virtual_devices();
    for (const float part : megabytes) parts->add_memory_limit_mb(part);
    p.devices = static_cast<int>(megabytes.size());
  }
  Output Filled(const Scope& scope, int64_t megabytes) {
    const Tensor size = Tensor::FromValues<int64_t>({megabytes * kMiB / 4});
    return ops::Fill(scope, Constant(p.root, size), Constant(p.device, Tensor::Scalar<float>(1)));
  }
  Output Probe(int device = 0) {
    return Labelled(p.On(device), "probe", Constant(p.On(device), Tensor::Scalar<float>(1)));
  }
  Probed Look(const Output& probe) {
    p.Eval(probe);
    return LastProbe();
  }
  Program p;
};

TEST_F(MemoryTest, WantOfItIsToldWithTheBiggestHoldersAndChangesNothing) {
  if (!InOwnProcess()) return;
  Probing g;
  g.Divide({96});
  g.options()->set_allow_growth(true);
  const Variable held = MakeVariable(
      g.p.device, "held", g.Filled(g.p.device.WithOpName("holder"), 32), {.use_resource = true});
  const Variable little = MakeVariable(
      g.p.device, "little", g.Filled(g.p.device.WithOpName("small"), 4), {.use_resource = true});
  const Output large = ReduceMean(g.p.device, g.Filled(g.p.device.WithOpName("large"), 80));
  const Output mean = ReduceMean(g.p.device, held.read);
  const Output probe = g.Probe();
  g.p.Open();
  g.p.RunTargets({held.initializer, little.initializer});
  const auto memory = g.Look(probe).memory;
  ASSERT_NE(memory, nullptr);
  // Steps of each kind, whose constants stay.
  EXPECT_FALSE(g.p.Run({}, {large}).ok());
  EXPECT_EQ(g.p.Eval(mean).scalar<float>(), 1);
  const auto settled = [&] { return memory->stats().bytes_in_use <= 37 * kMiB; };
  ASSERT_TRUE(Eventually(settled)) << memory->Report();
  const int64_t bytes = memory->stats().bytes_in_use;
  const int64_t blocks = LiveBlocks(*memory);
  EXPECT_GE(bytes, 36 * kMiB);
  EXPECT_GE(blocks, 2);
  for (int round = 0; round < 3; ++round) {
    const Status status = g.p.Run({}, {large}).status();
    EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.ToString(),
                AllOf(HasSubstr("OOM when allocating tensor"), HasSubstr("{{node large}}"),
                      HasSubstr("of 96.0 MiB in use"), HasSubstr(" live blocks: 32.0 MiB {{node "),
                      HasSubstr("32.0 MiB {{node holder}}"), HasSubstr("4.0 MiB {{node small}}")));
    EXPECT_TRUE(Eventually([&] { return memory->stats().bytes_in_use == bytes; }))
        << memory->Report();
    EXPECT_EQ(LiveBlocks(*memory), blocks) << memory->Report();
    EXPECT_TRUE(memory->Check().ok()) << memory->Check();
    EXPECT_EQ(g.p.Eval(mean).scalar<float>(), 1);
  }
  g.p.session.reset();
  g.p.master.reset();
  EXPECT_TRUE(Eventually([&] { return memory->stats().bytes_in_use == 0; })) << memory->Report();
  EXPECT_EQ(LiveBlocks(*memory), 0);
}

TEST_F(MemoryTest, ASessionThatIsClosedInAStepGivesBackEveryBlock) {
  if (!InOwnProcess()) return;
  Probing g;
  g.Divide({512});
  const Variable held =
      MakeVariable(g.p.device, "held", g.Filled(g.p.device, 8), {.use_resource = true});
  const Output x = Placeholder(g.p.root, kFloat, {1});
  // The spin keeps the rest waiting in the stream, with the memory of all of it taken.
  Output y = ops::AddV2(g.p.device, held.read, Labelled(g.p.device, "spin", x));
  for (int i = 0; i < 10; ++i) y = ops::Mul(g.p.device, y, y);
  const Output busy = ReduceMean(g.p.device, y);
  const Output mean = ReduceMean(g.p.device, held.read);
  const Output probe = g.Probe();
  g.p.Open();
  g.p.RunTargets({held.initializer});
  const auto memory = g.Look(probe).memory;
  ASSERT_NE(memory, nullptr);
  // Steps of each kind: their constants stay, and their code is loaded.
  const std::pair<Output, Tensor> feed = {x, Tensor::FromValues<float>({1})};
  EXPECT_EQ(g.p.Eval(busy, {feed}).scalar<float>(), 1);
  EXPECT_EQ(g.p.Eval(mean).scalar<float>(), 1);
  ASSERT_TRUE(Eventually([&] { return memory->stats().bytes_in_use <= 9 * kMiB; }));
  const int64_t bytes = memory->stats().bytes_in_use;
  const int64_t blocks = LiveBlocks(*memory);
  for (int round = 0; round < 2; ++round) {
    const auto session = g.p.NewSession();
    Status status;
    std::thread runner(
        [&] { status = session->Run({{x.name(), feed.second}}, {busy.name()}).status(); });
    EXPECT_TRUE(Eventually([&] { return memory->stats().bytes_in_use > bytes; }));
    EXPECT_TRUE(session->Close().ok());
    runner.join();
    EXPECT_TRUE(errors::IsCancelled(status) || errors::IsAborted(status)) << status;
    EXPECT_TRUE(Eventually([&] { return memory->stats().bytes_in_use == bytes; }))
        << memory->Report();
    EXPECT_EQ(LiveBlocks(*memory), blocks) << memory->Report();
    EXPECT_TRUE(memory->Check().ok()) << memory->Check();
    // The variable is the cluster's, and what it was.
    EXPECT_EQ(g.p.Eval(mean).scalar<float>(), 1);
  }
}

// Bytes that the process has taken of the GPU when its first tensor lies there.
int64_t Taken(Probing* g, Probed* probed) {
  const auto before = MemoryOf(0);
  EXPECT_TRUE(before.ok()) << before.status();
  const Output probe = g->Probe();
  g->p.Open();
  *probed = g->Look(probe);
  return before.ok() ? before->free - probed->driver.free : 0;
}
// What contexts, code and libraries take of a GPU.
int64_t Overhead() { return GpusForTests().simulated ? 0 : 1024 * kMiB; }

TEST_F(MemoryTest, AFractionIsTakenAtOnce) {
  if (!InOwnProcess()) return;
  Probing g;
  g.options()->set_per_process_gpu_memory_fraction(0.25);
  Probed probed;
  const int64_t taken = Taken(&g, &probed);
  ASSERT_NE(probed.memory, nullptr);
  const int64_t limit = probed.memory->stats().bytes_limit;
  EXPECT_NEAR(static_cast<double>(limit), 0.25 * static_cast<double>(probed.driver.total),
              static_cast<double>(kMiB));
  EXPECT_GE(taken, limit - 16 * kMiB);
  EXPECT_LE(taken, limit + kMiB + Overhead());
}

TEST_F(MemoryTest, WhereItMayGrowLittleOfAFractionIsTaken) {
  if (!InOwnProcess()) return;
  Probing g;
  g.options()->set_per_process_gpu_memory_fraction(0.25);
  g.options()->set_allow_growth(true);
  Probed probed;
  const int64_t taken = Taken(&g, &probed);
  ASSERT_NE(probed.memory, nullptr);
  EXPECT_NEAR(static_cast<double>(probed.memory->stats().bytes_limit),
              0.25 * static_cast<double>(probed.driver.total), static_cast<double>(kMiB));
  EXPECT_LE(taken, 16 * kMiB + Overhead());
}

TEST_F(MemoryTest, WhatNobodyLimitsLeavesRoomForLibraries) {
  if (!InOwnProcess()) return;
  Probing g;
  g.options()->set_allow_growth(true);
  Probed probed;
  Taken(&g, &probed);
  ASSERT_NE(probed.memory, nullptr);
  const int64_t limit = probed.memory->stats().bytes_limit;
  EXPECT_GE(limit, probed.driver.total / 4);
  EXPECT_LE(limit, probed.driver.total - std::max(512 * kMiB, probed.driver.total / 20));
}

TEST_F(MemoryTest, PartsOfAGpuHaveLimitsOfTheirOwn) {
  if (!InOwnProcess()) return;
  Probing g;
  g.Divide({32, 96});
  g.options()->set_allow_growth(true);
  const auto mean = [&](int device, int64_t megabytes) {
    return ReduceMean(g.p.On(device), g.Filled(g.p.On(device), megabytes));
  };
  const Output fits = mean(1, 64), does_not = mean(0, 64), is_small = mean(0, 16);
  const Output probes[] = {g.Probe(0), g.Probe(1)};
  g.p.Open();
  const Probed first = g.Look(probes[0]), second = g.Look(probes[1]);
  ASSERT_TRUE(first.memory != nullptr && second.memory != nullptr);
  EXPECT_NE(first.memory, second.memory);
  EXPECT_EQ(first.properties.ordinal, second.properties.ordinal);
  EXPECT_EQ(first.memory->stats().bytes_limit, 32 * kMiB);
  EXPECT_EQ(second.memory->stats().bytes_limit, 96 * kMiB);
  EXPECT_EQ(g.p.Eval(fits).scalar<float>(), 1);
  const Status status = g.p.Run({}, {does_not}).status();
  EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
  EXPECT_EQ(g.p.Eval(is_small).scalar<float>(), 1);
}

TEST_F(MemoryTest, OnlyVisibleGpusAreThere) {
  if (!InOwnProcess()) return;
  Probing g;
  g.options()->set_visible_device_list("0");
  g.options()->set_allow_growth(true);
  const Output probe = g.Probe();
  g.p.Open();
  EXPECT_EQ(g.Look(probe).properties.ordinal, 0);
  Probing none;
  none.options()->set_visible_device_list("77");
  const auto refused = NewLocalCluster(none.p.config);
  EXPECT_TRUE(errors::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().ToString(), HasSubstr("\"77\" is not the number of a GPU"));
}

TEST_F(MemoryTest, AProcessThatIsKilledInAStepGivesEverythingBack) {
  if (GpusForTests().simulated) GTEST_SKIP() << "a simulated GPU is that of one process";
  const auto before = MemoryOf(0);
  ASSERT_TRUE(before.ok()) << before.status();
  if (!InOwnProcess({.signal = SIGKILL})) {
    // The driver ends what ran, and then gives its memory back.
    const auto is_back = [&] {
      const auto now = MemoryOf(0);
      return now.ok() && now->free >= before->free - 64 * kMiB;
    };
    EXPECT_TRUE(Eventually(is_back));
    EXPECT_THAT(OutputOfOwnProcess(), HasSubstr("within a step"));
    return;
  }
  Probing g;
  g.options()->set_per_process_gpu_memory_fraction(0.5);
  const Output x = Placeholder(g.p.root, kFloat, {1});
  const Output probe = g.Probe();
  const Output spin = Labelled(g.p.device, "spin", x);
  g.p.Open();
  EXPECT_LT(g.Look(probe).driver.free, before->free - before->total / 4);
  std::thread([&] {
    g.p.Run({{x, Tensor::FromValues<float>({1})}}, {spin}).status().IgnoreError();
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::puts("killed within a step");
  std::fflush(stdout);
  std::raise(SIGKILL);
}

}  // namespace
}  // namespace millrace::testing
