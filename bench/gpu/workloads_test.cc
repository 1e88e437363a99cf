// SPDX-License-Identifier: Apache-2.0
// The workloads of the GPU benches build, and their small versions run, on devices that there are
// everywhere.
#include "bench/gpu/workloads.h"

#include "bench/gpu/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::bench {
namespace {

TEST(WorkloadsTest, AllAreBuiltInFullSize) {
  for (const std::string& name : WorkloadNames()) {
    const auto w = MakeWorkload(name, {});
    ASSERT_NE(w, nullptr) << name;
    EXPECT_TRUE(w->graph.status().ok()) << name << ": " << w->graph.status();
    EXPECT_EQ(w->name, name);
    EXPECT_FALSE(w->step.empty()) << name;
    EXPECT_GE(w->parts, 1);
  }
  EXPECT_EQ(MakeWorkload("nothing", {}), nullptr);
}

TEST(WorkloadsTest, ResNet50HasItsWeights) {
  const auto w = MakeWorkload("resnet50", {});
  ASSERT_TRUE(w->graph.status().ok()) << w->graph.status();
  int64_t weights = 0;
  for (const Variable& variable : Variables(w->graph, kTrainableVariables)) {
    const auto shape = variable.shape().AsShape();
    ASSERT_TRUE(shape.has_value()) << variable.name();
    EXPECT_EQ(variable.dtype(), kFloat);
    weights += shape->num_elements();
  }
  EXPECT_EQ(weights, 25557032) << "as in torchvision's resnet50";
}

struct Case {
  const char* workload;
  const char* device;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.workload << " on " << c.device; }

class SmallWorkloadTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, SmallWorkloadTest,
                         ::testing::Values(Case{"tiny_chain", "CPU"}, Case{"tiny_chain", "FAKE"},
                                           Case{"mlp", "CPU"}, Case{"mlp", "FAKE"},
                                           Case{"cnn", "CPU"}, Case{"cnn", "FAKE"},
                                           Case{"gemm_f32", "CPU"}, Case{"gemm_f32", "FAKE"},
                                           Case{"gemm_tf32", "CPU"}, Case{"elementwise", "CPU"},
                                           Case{"elementwise", "FAKE"}, Case{"resnet50", "CPU"}));

TEST_P(SmallWorkloadTest, Runs) {
  WorkloadOptions options;
  options.device = std::string("/device:") + GetParam().device + ":0";
  options.small = true;
  auto workload = std::string(GetParam().workload) == "resnet50"
                      ? ResNet50(options, kFloat)
                      : MakeWorkload(GetParam().workload, options);
  auto runner = Runner::Start(std::move(workload), GetParam().device);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto cost = (*runner)->Measure(0);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_GT(cost->milliseconds, 0);
  EXPECT_GT(cost->host_microseconds, 0);
}

}  // namespace
}  // namespace millrace::bench
