// SPDX-License-Identifier: Apache-2.0
// Nodes that go from graph to graph arrive as they would in a message.
#include "graph/node_batch.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/errors.h"
#include "graph/graph_def_io.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kTestOps[] = {
    {"Source", "", "out: float", ""},
    {"Add", "x: float, y: float", "z: float", "scale: int = 1"},
    {"Join", "inputs: N * float", "out: float", "N: int >= 1"},
    {"Merge", "inputs: N * float", "out: float, index: int32", "N: int >= 1"},
    {"NextIteration", "data: float", "out: float", ""},
};

class NodeBatchTest : public testing::Test {
 protected:
  NodeBatchTest() : graph_(&ops_) {
    EXPECT_TRUE(RegisterOps(ops_, kTestOps).ok());
    graph_.mutable_versions()->set_producer(kGraphVersion);
  }

  Node* Add(const std::string& name, const std::string& op, const std::vector<Node*>& inputs,
            const char* attr = nullptr, int64_t value = 0) {
    AttrMap attrs;
    if (attr != nullptr) attrs.Set(attr, AttrValue(value));
    const StatusOr<Node*> node = graph_.AddNode(name, op, std::move(attrs));
    EXPECT_TRUE(node.ok()) << node.status();
    int slot = 0;
    for (Node* input : inputs) {
      EXPECT_TRUE(graph_.AddEdge(input, 0, *node, slot++).ok()) << name;
    }
    return *node;
  }

  // Everything that a graph has, edge by edge.
  static std::string Text(const DataflowGraph& graph) {
    std::string text;
    for (const Node* node : graph.OpNodes()) {
      StrAppend(&text, node->id(), " ", node->name(), " ", node->type(), " on '",
                node->requested_device(), "' '", node->assigned_device(), "' of ", node->origin(),
                " ", node->device_origin());
      for (const auto& [name, value] : node->attrs()) {
        StrAppend(&text, " ", name, "=", value.DebugString());
      }
      text += '\n';
    }
    for (int id = 0; id < graph.num_edge_ids(); ++id) {
      const Edge* const edge = graph.edge(id);
      if (edge == nullptr) continue;
      StrAppend(&text, id, ": ", edge->src->id(), ":", edge->src_output, " -> ", edge->dst->id(),
                ":", edge->dst_input, "\n");
    }
    for (const Node* node : graph.OpNodes()) {
      for (const Edge* edge : node->out_edges()) StrAppend(&text, " ", edge->id);
    }
    if (graph.library() != nullptr) {
      for (const auto& function : graph.library()->functions()) text += "\n" + function->name();
    }
    return text + "\n" + graph.versions().ShortDebugString();
  }

  // Sends what there is up to `cut`, then the rest, both ways.
  void ExpectAsInMessages(int cut) {
    DataflowGraph by_message(&ops_), by_nodes(&ops_);
    for (DataflowGraph* graph : {&by_message, &by_nodes}) {
      const Status status = ImportGraphDef({}, Message(0, cut), graph);
      ASSERT_TRUE(status.ok()) << status;
    }
    const Status imported = ImportGraphDef({}, Message(cut, graph_.num_node_ids()), &by_message);
    const StatusOr<NodeBatch> batch = CopyNodes(graph_, cut);
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_TRUE(CanAddNodes(*batch, by_nodes));
    const Status added = AddNodes(*batch, &by_nodes);
    EXPECT_EQ(imported.code(), added.code()) << imported << added;
    EXPECT_EQ(Text(by_message), Text(by_nodes));
    pb::GraphDef exported;
    ASSERT_TRUE(ExportNodes(*batch, {.origins = true}, &exported).ok());
    DataflowGraph again(&ops_);
    ASSERT_TRUE(ImportGraphDef({}, Message(0, cut), &again).ok());
    ASSERT_TRUE(ImportGraphDef({}, exported, &again).ok());
    EXPECT_EQ(Text(again), Text(by_message));
    if (cut <= 2) {
      EXPECT_EQ(Text(*batch->graph), Text(by_message));
    }
  }

  pb::GraphDef Message(int first, int end) {
    pb::GraphDef def;
    const Status status = ExportGraphDef(graph_, {.origins = true, .first_id = first}, &def);
    EXPECT_TRUE(status.ok()) << status;
    const int late = std::max(0, graph_.num_node_ids() - std::max(end, 2));
    def.mutable_node()->DeleteSubrange(def.node_size() - late, late);
    return def;
  }

  OpRegistry ops_;
  DataflowGraph graph_;
};

TEST_F(NodeBatchTest, RandomGraphsArriveAsInMessages) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    for (Node* node : graph_.OpNodes()) graph_.RemoveNode(node);
    graph_.RollBack(2, 1);
    const int count = 1 + static_cast<int>(random() % 20);
    std::vector<Node*> nodes;
    for (int i = 0; i < count; ++i) {
      const std::string name = StrCat("n", random() % 1000, "_", i);
      const auto any = [&] { return nodes[random() % nodes.size()]; };
      if (nodes.empty() || random() % 4 == 0) {
        nodes.push_back(Add(name, "Source", {}));
      } else if (random() % 2 == 0) {
        nodes.push_back(Add(name, "Add", {any(), any()}, "scale", random() % 3));
      } else {
        nodes.push_back(Add(name, "Join", {any(), any(), any()}, "N", 3));
      }
      for (int k = random() % 4; k > 0 && i > 0; --k) {
        graph_.AddControlEdge(nodes[random() % i], nodes[i]);
      }
      if (random() % 3 == 0) nodes.back()->set_requested_device(StrCat("/cpu:", random() % 2));
      if (random() % 3 == 0) nodes.back()->set_assigned_device("/job:a/task:0/device:CPU:0");
      if (random() % 3 == 0) nodes.back()->set_origin("a.cc:1");
      if (random() % 3 == 0) nodes.back()->set_device_origin("b.cc:2");
    }
    SCOPED_TRACE(round);
    ExpectAsInMessages(2 + static_cast<int>(random() % (count + 1)));
    ExpectAsInMessages(0);
    if (HasFailure()) return;
  }
}

TEST_F(NodeBatchTest, ALoopArrives) {
  Node* const source = Add("source", "Source", {});
  Node* const merge = Add("merge", "Merge", {source}, "N", 2);
  Node* const add = Add("add", "Add", {merge, source});
  Node* const next = Add("next", "NextIteration", {add});
  ASSERT_TRUE(graph_.AddEdge(next, 0, merge, 1).ok());
  ExpectAsInMessages(0);
  ExpectAsInMessages(source->id() + 1);
}

TEST_F(NodeBatchTest, NodesThatWaitForLaterOnesComeBehindThem) {
  Node* const first = Add("first", "Source", {});
  Node* const second = Add("second", "Source", {});
  Node* const third = Add("third", "Add", {first, first});
  graph_.AddControlEdge(third, second);
  Add("fourth", "Add", {second, third});
  ExpectAsInMessages(0);
  ExpectAsInMessages(first->id() + 1);
}

// As gradients of loops make them, whose nodes wait for what was added to the loop.
TEST_F(NodeBatchTest, AnEdgeIntoAnOldNodeStaysBehind) {
  Node* const old = Add("old", "Source", {});
  DataflowGraph by_message(&ops_), by_nodes(&ops_);
  for (DataflowGraph* graph : {&by_message, &by_nodes}) {
    ASSERT_TRUE(ImportGraphDef({}, Message(0, graph_.num_node_ids()), graph).ok());
  }
  Node* const first = Add("first", "Source", {});
  Node* const second = Add("second", "Add", {old, old});
  graph_.AddControlEdge(second, first);  // out of order: the batch sorts
  graph_.AddControlEdge(second, old);
  const StatusOr<NodeBatch> batch = CopyNodes(graph_, first->id());
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_TRUE(AddNodes(*batch, &by_nodes).ok());
  ASSERT_TRUE(ImportGraphDef({}, Message(first->id(), graph_.num_node_ids()), &by_message).ok());
  EXPECT_EQ(Text(by_nodes), Text(by_message));
}

TEST_F(NodeBatchTest, CyclesAndOpenInputsAreRefused) {
  Node* const a = Add("a", "Source", {});
  Node* const b = Add("b", "Source", {});
  graph_.AddControlEdge(a, b);
  graph_.AddControlEdge(b, a);
  Status status = CopyNodes(graph_, 0).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message(), "2 nodes in a cycle, among them: a, b");
  graph_.RemoveNode(b);
  Add("open", "Add", {a});
  status = CopyNodes(graph_, 0).status();
  EXPECT_EQ(status.message(), "Incomplete graph, missing input 1 of node 'open'");
}

TEST_F(NodeBatchTest, ANameThatIsThereIsRefusedAndNothingAdded) {
  Node* const a = Add("a", "Source", {});
  Add("b", "Add", {a, a});
  DataflowGraph other(&ops_);
  ASSERT_TRUE(ImportGraphDef({}, Message(0, graph_.num_node_ids()), &other).ok());
  const std::string before = Text(other);
  StatusOr<NodeBatch> batch = CopyNodes(graph_, 0);
  ASSERT_TRUE(batch.ok());
  Status status = AddNodes(*batch, &other);
  EXPECT_NE(status.message().find("includes node 'a', which was created by a previous call"),
            std::string_view::npos)
      << status;
  EXPECT_EQ(Text(other), before);
  // An input that is not there: found after other nodes are added.
  Node* const c = Add("c", "Source", {});
  Add("d", "Source", {});
  Add("e", "Add", {c, a});
  batch = CopyNodes(graph_, c->id() + 1);
  ASSERT_TRUE(batch.ok());
  status = AddNodes(*batch, &other);
  EXPECT_NE(status.message().find("Node 'e': Unknown input node 'c'"), std::string_view::npos)
      << status;
  EXPECT_EQ(Text(other), before);
}

TEST_F(NodeBatchTest, FunctionsAreSharedUnlessTheyAreOthers) {
  const auto library = [](const std::string& text, std::shared_ptr<const FunctionLibrary> base) {
    pb::FunctionDefLibrary added;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &added));
    const auto extended = FunctionLibrary::Extend(base, added);
    EXPECT_TRUE(extended.ok()) << extended.status();
    return *extended;
  };
  const std::string f = "function { signature { name: 'f' } }";
  const std::string g = "function { signature { name: 'g' } }";
  const auto one = library(f, nullptr);
  graph_.set_library(one);
  Add("a", "Source", {});
  const StatusOr<NodeBatch> first = CopyNodes(graph_, 0);
  ASSERT_TRUE(first.ok());
  DataflowGraph to(&ops_);
  ASSERT_TRUE(CanAddNodes(*first, to));
  ASSERT_TRUE(AddNodes(*first, &to).ok());
  EXPECT_EQ(to.library(), one);

  graph_.set_library(library(g, one));
  Node* const call = Add("call", "g", {});
  const StatusOr<NodeBatch> second = CopyNodes(graph_, call->id());
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(CanAddNodes(*second, to));
  ASSERT_TRUE(AddNodes(*second, &to).ok());
  EXPECT_TRUE(to.IsCall(*to.FindNode("call")));

  DataflowGraph stranger(&ops_);
  stranger.set_library(library(f, nullptr));  // the same text, another function
  EXPECT_FALSE(CanAddNodes(*first, stranger));
}

}  // namespace
}  // namespace millrace
