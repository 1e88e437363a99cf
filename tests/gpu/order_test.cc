// SPDX-License-Identifier: Apache-2.0
// What runs when: the host issues without waiting, and whatever order streams, copies and frees
// then have, values are those of a device that is waited for after every operation.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/strings.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"
#include "tests/device_conformance/random_graph.h"
#include "tests/gpu/gpus.h"
#include "tests/gpu/own_process.h"

namespace millrace::testing {
namespace {

constexpr char kBlocking[] = "MILLRACE_CUDA_BLOCKING";

// Two devices on GPU 0, with little memory, so that blocks are used again and again. Nodes stay by
// themselves: when a loop of several is compiled is a matter of time, too.
void Divide(Program* p) {
  p->config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
      pb::RewriterConfig::OFF);
  auto* const options = p->config.mutable_gpu_options();
  options->set_visible_device_list("0");
  options->set_allow_growth(true);
  auto* const parts = options->mutable_experimental()->add_virtual_devices();
  for (int i = 0; i < 2; ++i) parts->add_memory_limit_mb(8);
}

class OrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(GpusForTests().obstacle, "");
    UseTestKernels();
  }
};

// Whether an operation is issued while the one before it still runs.
void ExpectOverlap(bool overlaps) {
  Program p("GPU");
  p.devices = 1;
  p.config.mutable_gpu_options()->set_allow_growth(true);
  p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
      pb::RewriterConfig::OFF);
  const Output x = Placeholder(p.root, kFloat, {1});
  const Output last =
      Labelled(p.device, "probe", ops::Neg(p.device, Labelled(p.device, "spin", x)));
  p.Open();
  const Tensor one = Tensor::FromValues<float>({1});
  p.Eval(last, {{x, one}});  // all code is loaded
  const int64_t begin = SteadyNanos();
  p.Eval(last, {{x, one}});
  const int64_t end = SteadyNanos();
  const int64_t issued = LastProbe().steady_nanos;
  EXPECT_GE(end - begin, kSpinNanoseconds);
  if (overlaps) {
    EXPECT_LT(issued - begin, kSpinNanoseconds) << "the host waited for the device";
  } else {
    EXPECT_GE(issued - begin, kSpinNanoseconds) << "the host did not wait for the device";
  }
}

TEST_F(OrderTest, TheHostIssuesWhatComesNextWhileTheDeviceIsBusy) {
  if (!InOwnProcess()) return;
  ExpectOverlap(true);
}

TEST_F(OrderTest, InBlockingModeItWaits) {
  if (!InOwnProcess({.environment = {{kBlocking, "1"}}})) return;
  ExpectOverlap(false);
}

TEST_F(OrderTest, RandomGraphsComputeWhatTheyComputeOneOperationAfterTheOther) {
  if (!InOwnProcess({.environment = {}, .seconds = 250})) return;
  for (int seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    std::vector<Tensor> values[2];
    for (const bool waits : {true, false}) {
      ASSERT_EQ(setenv(kBlocking, waits ? "1" : "0", 1), 0);  // read when a machine is opened
      Program p("GPU");
      Divide(&p);
      const RandomGraph graph = BuildRandomGraph(p, seed);
      p.Open(seed % 3 == 0 ? -1 : 2);
      ASSERT_NE(p.session, nullptr);
      values[waits ? 0 : 1] = RunRandomGraph(p, graph);
      p.session.reset();
      p.master.reset();
    }
    ASSERT_GE(values[0].size(), 18u);
    ASSERT_EQ(values[0].size(), values[1].size());
    for (std::size_t i = 0; i < values[0].size(); ++i) {
      ASSERT_TRUE(TensorsEqual(values[1][i], values[0][i])) << "value " << i;
    }
  }
}

// Many at a time, some of which are given up in the middle.
TEST_F(OrderTest, StepsThatAreGivenUpLeaveTheOthersAndTheMemoryAsTheyAre) {
  if (!InOwnProcess({.environment = {}, .seconds = 250})) return;
  for (int seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Program p("GPU");
    Divide(&p);
    const RandomGraph graph = BuildRandomGraph(p, seed);
    const Output probe = Labelled(p.device, "probe", Constant(p.device, Tensor::Scalar<float>(1)));
    p.Open();
    ASSERT_NE(p.session, nullptr);
    RunStepsThatAreGivenUp(p, graph, /*num_callers=*/4, /*steps=*/20);
    if (HasFatalFailure()) return;
    p.Eval(probe);
    const auto memory = LastProbe().memory;
    ASSERT_NE(memory, nullptr);
    EXPECT_TRUE(memory->Check().ok()) << memory->Check();
    p.session.reset();
    p.master.reset();
    EXPECT_TRUE(Eventually([&] { return memory->stats().bytes_in_use == 0; })) << memory->Report();
    EXPECT_EQ(LiveBlocks(*memory), 0);
  }
}

}  // namespace
}  // namespace millrace::testing
