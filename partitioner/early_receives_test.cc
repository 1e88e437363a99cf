// SPDX-License-Identifier: Apache-2.0
#include "partitioner/early_receives.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/tensor.h"
#include "ops/all_ops.h"
#include "ops/early_receive.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    EXPECT_TRUE(RegisterAllOps(*registry).ok());
    return registry;
  }();
  return *ops;
}

// Task 0 is a parameter server, task 1 a worker with an accelerator.
class EarlyReceivesTest : public ::testing::Test {
 protected:
  Node* Add(const std::string& name, const std::string& op, const std::vector<Node*>& inputs,
            int task, std::vector<std::pair<std::string, AttrValue>> attrs = {}) {
    AttrMap map;
    for (auto& [key, value] : attrs) map.Set(key, value);
    Node* node = graph_.AddNode(name, op, std::move(map)).value();
    node->set_assigned_device(StrCat("/job:w/replica:0/task:", task, "/device:", device_[task]));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(graph_.AddEdge(inputs[i], 0, node, static_cast<int>(i)).ok());
    }
    return node;
  }
  Node* Weights(int task) {
    return Add(StrCat("w", graph_.num_node_ids()), "VarHandleOp", {}, task,
               {{"dtype", kFloat}, {"shape", PartialShape({4})}});
  }
  Node* Read(Node* handle, int task) {
    return Add(StrCat("read", graph_.num_node_ids()), "ReadVariableOp", {handle}, task,
               {{"dtype", kFloat}});
  }
  Node* Neg(Node* x, int task) {
    return Add(StrCat("neg", graph_.num_node_ids()), "Neg", {x}, task, {{"T", kFloat}});
  }
  Node* Queue(int task) {
    return Add(StrCat("queue", graph_.num_node_ids()), "FIFOQueueV2", {}, task,
               {{"component_types", std::vector<DataType>{kFloat}}});
  }
  Node* Dequeue(Node* queue, int task) {
    return Add(StrCat("get", graph_.num_node_ids()), "QueueDequeueV2", {queue}, task,
               {{"component_types", std::vector<DataType>{kFloat}}});
  }

  // Of the worker: the nodes whose values come early.
  std::vector<std::string> Early(int task = 1) {
    graph_.FixSourceAndSink();
    PartitionOptions options;
    options.node_to_location = [](const Node& node) {
      return node.assigned_device().substr(0, node.assigned_device().find("/device"));
    };
    int made = 0;
    options.new_name = [&made](std::string_view prefix) { return StrCat(prefix, "_S", made++); };
    auto parts = PartitionGraph(graph_, options);
    EXPECT_TRUE(parts.ok()) << parts.status();
    MarkEarlyReceives(&*parts);
    std::vector<std::string> early;
    for (const Partition& part : *parts) {
      for (const Node* node : part.graph->OpNodes()) {
        if (!node->attrs().GetOr<bool>(kEarlyReceive, false)) continue;
        EXPECT_EQ(node->type(), "_Recv");
        if (!part.location.ends_with(StrCat("task:", task))) continue;
        const std::string edge = node->attrs().GetOr<std::string>("tensor_name", "");
        early.push_back(edge.substr(edge.find('_', 5) + 1));
      }
    }
    return early;
  }

  std::string device_[2] = {"CPU:0", "GPU:0"};
  DataflowGraph graph_{&Ops()};
};

TEST_F(EarlyReceivesTest, WeightsDoNotWaitForGradients) {
  Node* const w = Weights(0);
  Node* const read = Read(w, 0);
  Node* const gradient = Neg(read, 1);
  Node* const update = Add("update", "AssignSubVariableOp", {w, gradient}, 0, {{"dtype", kFloat}});
  // The worker is told when it has been made.
  Node* const done = Add("done", "NoOp", {}, 1);
  graph_.AddControlEdge(update, done);
  EXPECT_THAT(Early(), UnorderedElementsAre(read->name()));
}

TEST_F(EarlyReceivesTest, WhatComesBackDoesNot) {
  Node* const w = Read(Weights(0), 0);
  Node* const back = Neg(Neg(w, 1), 0);
  Neg(back, 1);
  EXPECT_THAT(Early(), UnorderedElementsAre(w->name()));
}

TEST_F(EarlyReceivesTest, NorWhatIsReadAfterAnUpdate) {
  Node* const w = Weights(0);
  Node* const before = Read(w, 0);
  Node* const update =
      Add("update", "AssignSubVariableOp", {w, Neg(before, 1)}, 0, {{"dtype", kFloat}});
  Node* const after = Read(w, 0);
  graph_.AddControlEdge(update, after);
  Neg(after, 1);
  EXPECT_THAT(Early(), UnorderedElementsAre(before->name()));
}

TEST_F(EarlyReceivesTest, QueuesOfTheStepMayHaveGotWhatWasSent) {
  Node* const one = Queue(0);
  Node* const w = Read(Weights(0), 0);
  Node* const put = Add("put", "QueueEnqueueV2", {one, Neg(w, 1)}, 0,
                        {{"Tcomponents", std::vector<DataType>{kFloat}}});
  ASSERT_NE(put, nullptr);
  // Another name may be the same queue.
  Neg(Dequeue(Queue(0), 0), 1);
  EXPECT_THAT(Early(), UnorderedElementsAre(w->name()));
}

TEST_F(EarlyReceivesTest, QueuesThatGotNothingOfItDoNot) {
  Node* const batch = Dequeue(Queue(0), 0);
  Neg(Neg(batch, 1), 0);
  EXPECT_THAT(Early(), UnorderedElementsAre(batch->name()));
}

TEST_F(EarlyReceivesTest, TasksOfCpusOnlyAreLeftAsTheyAre) {
  device_[1] = "CPU:0";
  Neg(Read(Weights(0), 0), 1);
  EXPECT_THAT(Early(), IsEmpty());
}

}  // namespace
}  // namespace millrace
