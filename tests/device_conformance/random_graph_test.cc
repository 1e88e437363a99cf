// SPDX-License-Identifier: Apache-2.0
// Graphs of random ops on the host and two devices, run with random delays: what comes out is
// what one CPU computes, bit for bit, whatever happened first.
#include <gtest/gtest.h>

#include <vector>

#include "tests/device_conformance/program.h"
#include "tests/device_conformance/random_graph.h"

namespace millrace::testing {
namespace {

constexpr int kSeeds = 12;

class RandomGraphTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphTest, ::testing::Range(1, kSeeds + 1));

TEST_P(RandomGraphTest, ComputesOnJitteringDevicesWhatTheCpuComputes) {
  const int seed = GetParam();
  Program reference("CPU");
  const RandomGraph expected_graph = BuildRandomGraph(reference, seed);
  reference.Open(-1);
  const std::vector<Tensor> expected = RunRandomGraph(reference, expected_graph);
  SetFakeDeviceOptions({.memory_limit = int64_t{1} << 20,
                        .jitter_seed = static_cast<uint64_t>(seed) * 1000,
                        .max_delay = std::chrono::microseconds(100)});
  Program p("FAKE");
  const RandomGraph graph = BuildRandomGraph(p, seed);
  p.Open(seed % 3 == 0 ? -1 : 2);
  SetFakeDeviceOptions({});
  const std::vector<Tensor> found = RunRandomGraph(p, graph);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(TensorsEqual(found[i], expected[i])) << "value " << i;
  }
  ExpectNothingLeft(p);
}

// Steps of one session at once, some of them cancelled by their deadline: nothing is left behind,
// and those that end well have computed the right thing.
TEST_P(RandomGraphTest, SurvivesStepsThatAreGivenUp) {
  const int seed = GetParam();
  SetFakeDeviceOptions({.jitter_seed = static_cast<uint64_t>(seed) * 2000 + 1});
  Program p("FAKE");
  const RandomGraph graph = BuildRandomGraph(p, seed);
  p.Open();
  SetFakeDeviceOptions({});
  RunStepsThatAreGivenUp(p, graph, /*num_callers=*/3, /*steps=*/6);
  ExpectNothingLeft(p);
}

}  // namespace
}  // namespace millrace::testing
