// SPDX-License-Identifier: Apache-2.0
#include "placer/auto_place.h"

#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Cpu(int task) { return StrCat("/job:w/replica:0/task:", task, "/device:CPU:0"); }

class AutoPlaceTest : public ::testing::Test {
 protected:
  AutoPlaceTest() : graph_(&ops_) {
    EXPECT_TRUE(RegisterAllOps(ops_).ok());
    for (int task = 0; task < 2; ++task) input_.devices.push_back({Cpu(task), "CPU", task == 0});
    input_.kernel = [](const OpInfo&, const AttrMap&, std::string_view) {
      return std::optional<int>(0);
    };
    costs_.compute_seconds = [](const Node& node, std::string_view) {
      return node.type() == "Const" ? 0.0 : 1e-3;
    };
    costs_.output_bytes = [this](const Node&, int) { return bytes_; };
  }

  Node* Add(const std::string& op, const std::vector<Node*>& inputs,
            const std::string& device = "") {
    AttrMap attrs;
    if (op == "Const") {
      attrs.Set("dtype", kFloat);
      attrs.Set("value", Tensor::Scalar(1.f));
    } else if (op == "VariableV2") {
      attrs.Set("dtype", kFloat);
      attrs.Set("shape", PartialShape({}));
    } else {
      attrs.Set("T", kFloat);
    }
    Node* const node =
        graph_.AddNode(StrCat("n", graph_.num_node_ids()), op, std::move(attrs)).value();
    node->set_requested_device(device);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(graph_.AddEdge(inputs[i], 0, node, static_cast<int>(i)).ok());
    }
    return node;
  }

  void Run() {
    graph_.FixSourceAndSink();
    const Status status = AutoPlace(&graph_, input_, costs_, &log_, &result_);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Two chains that have nothing to do with each other.
  void AddChains(std::vector<Node*>* ends) {
    for (int chain = 0; chain < 2; ++chain) {
      Node* at = Add("Const", {});
      for (int i = 0; i < 5; ++i) at = Add("Neg", {at});
      ends->push_back(at);
    }
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  PlacerInput input_;
  CostModel costs_;
  double bytes_ = 4;
  PlacementLog log_;
  AutoPlacement result_;
};

TEST_F(AutoPlaceTest, WorkThatCanBeSharedIsShared) {
  std::vector<Node*> ends;
  AddChains(&ends);
  Run();
  EXPECT_NE(ends[0]->assigned_device(), ends[1]->assigned_device());
  EXPECT_NEAR(result_.makespan_seconds, 5e-3, 1e-4);
  EXPECT_THAT(log_.ToText(), HasSubstr("rule 12: a step ends soonest so"));
  for (const Node* node : graph_.OpNodes()) {
    EXPECT_EQ(log_.Replay(node->name()), node->assigned_device());
  }
}

TEST_F(AutoPlaceTest, DearTransfersKeepWorkTogether) {
  bytes_ = 1e9;
  Node* at = Add("Const", {});
  Node* const left = Add("Neg", {at});
  Node* const right = Add("Neg", {at});
  Node* const sum = Add("AddV2", {left, right});
  Run();
  EXPECT_EQ(left->assigned_device(), right->assigned_device());
  EXPECT_EQ(sum->assigned_device(), left->assigned_device());
}

TEST_F(AutoPlaceTest, ConstraintsAreKept) {
  std::vector<Node*> ends;
  AddChains(&ends);
  Node* const v = Add("VariableV2", {}, "/job:w/task:1");
  Node* const assign = Add("Assign", {v, ends[0]});
  Node* const fixed = Add("Neg", {ends[1]}, "/job:w/task:0");
  Run();
  EXPECT_EQ(v->assigned_device(), Cpu(1));
  EXPECT_EQ(assign->assigned_device(), Cpu(1));
  EXPECT_EQ(fixed->assigned_device(), Cpu(0));
}

TEST_F(AutoPlaceTest, ErrorsAreThoseOfThePlacer) {
  Add("Const", {}, "/job:elsewhere");
  graph_.FixSourceAndSink();
  const Status status = AutoPlace(&graph_, input_, costs_, &log_, &result_);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message().data(), status.message().size()),
              HasSubstr("What cannot be met:"));
}

TEST(SchedulerTest, TheBestPlanIsNeverSlowerThanAnyOther) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    TaskGraph tasks;
    tasks.num_devices = 3;
    tasks.latency_seconds = 0.1;
    const int n = 60;
    const std::vector<int> devices = {0, 1, 2};
    std::vector<std::vector<double>> seconds(n);
    for (int t = 0; t < n; ++t) {
      for (int d = 0; d < 3; ++d) seconds[t].push_back(0.1 + static_cast<double>(random() % 10));
      tasks.group.push_back(random() % 10 == 0 && t > 0 ? tasks.group.back() : t);
      for (unsigned i = 0; t > 0 && i < 2; ++i) {
        tasks.edges.push_back({static_cast<int>(random() % static_cast<unsigned>(t)), t,
                               static_cast<double>(random() % 5)});
      }
    }
    for (int t = 0; t < n; ++t) {
      tasks.candidates.emplace_back(devices);
      tasks.seconds.emplace_back(seconds[t]);
    }
    const Scheduler scheduler(tasks);
    double best = 0;
    Planner planner = Planner::kOneDevice;
    const std::vector<int> plan = scheduler.Best(&best, &planner);
    EXPECT_DOUBLE_EQ(scheduler.Simulate(plan), best);
    std::vector<int> device_of_group(n, -1);
    for (int t = 0; t < n; ++t) {
      int& device = device_of_group[tasks.group[t]];
      EXPECT_TRUE(device < 0 || device == plan[t]);
      device = plan[t];
    }
    for (const Planner other : kAllPlanners) {
      EXPECT_LE(best, scheduler.Simulate(scheduler.Plan(other))) << PlannerName(other);
    }
  }
}

}  // namespace
}  // namespace millrace
