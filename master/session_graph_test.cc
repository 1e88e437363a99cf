// SPDX-License-Identifier: Apache-2.0
#include "master/session_graph.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "master/session_test_util.h"

namespace millrace {
namespace {

constexpr int kTasks = 3, kCpus = 2;

std::string DeviceOf(int task, int cpu) {
  return StrCat("/job:worker/replica:0/task:", task, "/device:CPU:", cpu);
}

// Graphs that grow, as clients make them: constants, sums, variables, requests and colocation.
class GrowingGraph {
 public:
  explicit GrowingGraph(uint32_t seed) : random_(seed) {}

  pb::GraphDef More(int count) {
    TestGraph graph;
    for (int i = 0; i < count; ++i) Add(&graph);
    return graph.def();
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }

  std::string Request() {
    switch (Below(6)) {
      case 0:
        return StrCat("/job:worker/task:", Below(kTasks));
      case 1:
        return DeviceOf(Below(kTasks), Below(kCpus));
      case 2:
        return StrCat("/cpu:", Below(kCpus));
      default:
        return "";
    }
  }

  void Add(TestGraph* graph) {
    const std::string name = StrCat("n", names_.size());
    if (names_.size() < 2 || Below(4) == 0) {
      graph->Const(name, 1.f, Request());
    } else {
      pb::NodeDef* const node = graph->Sum(name, Any(), Any(), Request());
      if (Below(5) == 0) {
        (*node->mutable_attr())["_class"].mutable_list()->add_s(StrCat("loc:@", Any()));
      }
    }
    names_.push_back(name);
  }
  const std::string& Any() { return names_[Below(static_cast<int>(names_.size()))]; }

  std::mt19937 random_;
  std::vector<std::string> names_;
};

class SessionGraphTest : public testing::Test {
 protected:
  SessionGraphTest() { RegisterTestOpsAndKernels(ops_, kernels_); }

  PlacerInput Devices() const {
    PlacerInput input;
    for (int task = 0; task < kTasks; ++task) {
      for (int cpu = 0; cpu < kCpus; ++cpu) {
        input.devices.push_back(
            {.name = DeviceOf(task, cpu), .type = "CPU", .is_local = task == 0});
      }
    }
    input.kernel = [this](const OpInfo& op, const AttrMap& attrs,
                          std::string_view type) -> std::optional<int> {
      const KernelDef* kernel = kernels_.Find(op.def.name(), type, attrs);
      return kernel == nullptr ? std::nullopt : std::optional<int>(kernel->priority);
    };
    input.allow_soft_placement = true;
    return input;
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
};

// The device of every node, as the graph has it.
std::map<std::string, std::string> Places(const SessionGraph& session) {
  std::map<std::string, std::string> places;
  session.Read([&](const DataflowGraph& graph) {
    for (const Node* node : graph.OpNodes()) places[node->name()] = node->assigned_device();
  });
  return places;
}

TEST_F(SessionGraphTest, TheRecordMadeOnDemandTellsWhereEveryNodeIs) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    GrowingGraph graph(seed);
    SessionGraph session(&ops_);
    ASSERT_TRUE(session.Import(graph.More(30)).ok());
    ASSERT_TRUE(session.Place(Devices()).ok());
    for (int64_t version = 0; version < 6; ++version) {
      int64_t next = 0;
      const Status extended = session.Extend(graph.More(8), version, &next);
      ASSERT_TRUE(extended.ok()) << "seed " << seed << ": " << extended;
    }
    std::map<std::string, std::string> recorded;
    for (const PlacementLog& log : session.RecordPlacement()) {
      for (const PlacementLog::Decision& decision : log.Decisions()) {
        if (decision.device.empty()) continue;
        recorded[std::string(decision.node)] = decision.device;
        EXPECT_EQ(log.Replay(decision.node), decision.device) << decision.node;
      }
    }
    const std::map<std::string, std::string> places = Places(session);
    for (const auto& [node, device] : places) {
      EXPECT_EQ(recorded[node], device) << "seed " << seed << ", " << node;
      EXPECT_NE(session.ExplainPlacement(node).find(device), std::string::npos)
          << "seed " << seed << ", " << node;
    }
  }
}

TEST_F(SessionGraphTest, SaysThatItKnowsNoSuchNode) {
  GrowingGraph graph(1);
  SessionGraph session(&ops_);
  ASSERT_TRUE(session.Import(graph.More(3)).ok());
  ASSERT_TRUE(session.Place(Devices()).ok());
  EXPECT_NE(session.ExplainPlacement("nowhere").find("nowhere"), std::string::npos);
}

}  // namespace
}  // namespace millrace
