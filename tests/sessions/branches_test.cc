// SPDX-License-Identifier: Apache-2.0
// A branch of a conditional may be another task's work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "proto/step_stats.pb.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr char kPs[] = "/job:ps/replica:0/task:0", kWorker[] = "/job:worker/replica:0/task:0";

// y = x > 0 ? x * x, computed by the ps : -3 x, computed by the worker.
class BranchesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Scope worker = graph_.root().WithDevice(kWorker);
    x_ = Placeholder(worker.WithOpName("x"), kFloat, {});
    const Output zero = Constant(worker, Tensor::Scalar(0.0f));
    const std::vector<Output> y = Cond(
        worker, ops::Greater(worker, x_, zero),
        [&](const Scope& s) {
          return std::vector<Output>{ops::Square(s.WithDevice(kPs).WithOpName("squared"), x_)};
        },
        [&](const Scope& s) {
          const Output factor = Constant(s.WithDevice(kWorker), Tensor::Scalar(-3.0f));
          return std::vector<Output>{
              ops::Mul(s.WithDevice(kWorker).WithOpName("product"), x_, factor)};
        });
    ASSERT_EQ(y.size(), 1u) << graph_.status();
    const auto slope = Gradients(worker, y, {&x_, 1});
    ASSERT_TRUE(slope.ok()) << slope.status();
    fetches_ = {y[0], (*slope)[0]};
    auto session = Session::Create(graph_, {.target = cluster_.Target("worker", 0)});
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }

  struct Outcome {
    float y = 0, slope = 0;
    std::vector<std::string> ran;  // "<task> <node>", of the branches
  };
  Outcome Run(float x) {
    Outcome outcome;
    RunMetadata metadata;
    const Feed feed{x_, Tensor::Scalar(x)};
    const auto values = session_->Run({&feed, 1}, fetches_, {}, {.trace = true}, &metadata);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return outcome;
    outcome.y = (*values)[0].scalar<float>();
    outcome.slope = (*values)[1].scalar<float>();
    pb::StepStats stats;
    EXPECT_TRUE(stats.ParseFromString(metadata.step_stats));
    for (const pb::DeviceStepStats& device : stats.dev_stats()) {
      const std::string task = device.device().substr(0, device.device().find("/device"));
      for (const pb::NodeExecStats& node : device.node_stats()) {
        for (const char* name : {"squared", "product"}) {
          if (node.node_name().ends_with(name)) outcome.ran.push_back(task + " " + name);
        }
      }
    }
    return outcome;
  }

  InProcessCluster cluster_{1, 1};
  Graph graph_;
  Output x_;
  std::vector<Output> fetches_;
  std::optional<Session> session_;
};

TEST_F(BranchesTest, OnlyTheTaskOfTheBranchThatIsTakenComputes) {
  const std::string squared = std::string(kPs) + " squared";
  const std::string product = std::string(kWorker) + " product";
  // One session: a branch that was not taken leaves nothing behind for the step that takes it.
  for (int i = 0; i < 3; ++i) {
    const Outcome positive = Run(5);
    EXPECT_EQ(positive.y, 25);
    EXPECT_EQ(positive.slope, 10);
    EXPECT_THAT(positive.ran, Contains(squared));
    EXPECT_THAT(positive.ran, Not(Contains(product)));
    const Outcome negative = Run(-4);
    EXPECT_EQ(negative.y, 12);
    EXPECT_EQ(negative.slope, -3);
    EXPECT_THAT(negative.ran, Contains(product));
    EXPECT_THAT(negative.ran, Not(Contains(squared)));
  }
}

}  // namespace
}  // namespace millrace::testing
