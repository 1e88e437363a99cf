// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "graph/dataflow_graph.h"
#include "graph/graph_def_io.h"
#include "graph/node_name.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OpSpec kTestOps[] = {
    {"Source", "", "out: float", ""},
    {"Variable", "", "ref: Ref(float)", ""},
    {"Assign", "ref: Ref(float), value: float", "out: Ref(float)", ""},
    {"Pair", "", "a: float, b: int32", ""},
    {"Add", "x: float, y: float", "z: float", "scale: int = 1"},
    {"NoOp", "", "", ""},
    {"Merge", "inputs: N * float", "out: float, index: int32", "N: int >= 1"},
    {"NextIteration", "data: float", "out: float", ""},
    {"StatelessIf", "", "out: float", ""},
};

class GraphTest : public testing::Test {
 protected:
  GraphTest() : graph_(&ops_) { EXPECT_TRUE(RegisterOps(ops_, kTestOps).ok()); }

  Status Import(const std::string& text, ImportOptions options = {}) {
    pb::GraphDef def;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def)) << text;
    return ImportGraphDef(options, def, &graph_);
  }
  // A graph of one node each: "name op input...", as import text.
  static std::string Node(const std::string& name, const std::string& op,
                          const std::vector<std::string>& inputs = {}) {
    std::string text = "node { name: '" + name + "' op: '" + op + "'";
    for (const std::string& input : inputs) text += " input: '" + input + "'";
    return text + " }\n";
  }
  millrace::Node* Add(const std::string& name, const std::string& op) {
    StatusOr<millrace::Node*> node = graph_.AddNode(name, op, {});
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *node : nullptr;
  }
  std::string Export() {
    pb::GraphDef def;
    const Status status = ExportGraphDef(graph_, {}, &def);
    EXPECT_TRUE(status.ok()) << status;
    return def.DebugString();
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const millrace::Node* node : graph_.OpNodes()) names.push_back(node->name());
    return names;
  }

  OpRegistry ops_;
  DataflowGraph graph_;
};

std::string Text(const Status& status) { return std::string(status.message()); }

TEST_F(GraphTest, StartsWithSourceAndSinkJoinedByEdgeZero) {
  EXPECT_EQ(graph_.source()->id(), 0);
  EXPECT_EQ(graph_.sink()->id(), 1);
  ASSERT_EQ(graph_.num_edge_ids(), 1);
  EXPECT_EQ(graph_.edge(0)->dst, graph_.sink());
}

TEST_F(GraphTest, AReferenceFeedsAValueButNotTheOtherWayRound) {
  millrace::Node* variable = Add("v", "Variable");
  millrace::Node* value = Add("s", "Source");
  millrace::Node* add = Add("add", "Add");
  millrace::Node* assign = Add("assign", "Assign");
  EXPECT_TRUE(graph_.AddEdge(variable, 0, add, 0).ok());
  const Status status = graph_.AddEdge(value, 0, assign, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("was passed float from s:0 incompatible with expected "
                                      "float_ref"));
}

TEST_F(GraphTest, ASlotTakesOneEdge) {
  millrace::Node* value = Add("s", "Source");
  millrace::Node* add = Add("add", "Add");
  ASSERT_TRUE(graph_.AddEdge(value, 0, add, 0).ok());
  EXPECT_FALSE(graph_.AddEdge(value, 0, add, 0).ok());
  EXPECT_FALSE(graph_.AddEdge(value, 1, add, 1).ok());
  EXPECT_FALSE(graph_.AddEdge(value, 0, add, 2).ok());
  EXPECT_EQ(graph_.AddControlEdge(value, add), graph_.AddControlEdge(value, add));
}

TEST_F(GraphTest, SourceAndSinkFollowEdits) {
  millrace::Node* value = Add("s", "Source");
  millrace::Node* noop = Add("n", "NoOp");
  graph_.FixSourceAndSink();
  EXPECT_EQ(value->in_edges().size(), 1u);
  graph_.AddControlEdge(value, noop);
  graph_.FixSourceAndSink();
  ASSERT_EQ(noop->in_edges().size(), 1u);
  EXPECT_EQ(noop->in_edges()[0]->src, value);
  graph_.RemoveNode(value);
  graph_.FixSourceAndSink();
  ASSERT_EQ(noop->in_edges().size(), 1u);
  EXPECT_TRUE(noop->in_edges()[0]->src->IsSource());
}

TEST_F(GraphTest, ACloneHasTheSameIdsAndSharesNothing) {
  ASSERT_TRUE(Import(Node("a", "Source") + Node("b", "Add", {"a", "a", "^a"})).ok());
  graph_.RemoveEdge(const_cast<Edge*>(graph_.FindNode("b")->input_edge(1)));
  const std::unique_ptr<DataflowGraph> copy = graph_.Clone();
  ASSERT_EQ(copy->num_edge_ids(), graph_.num_edge_ids());
  for (int i = 0; i < graph_.num_edge_ids(); ++i) {
    ASSERT_EQ(copy->edge(i) == nullptr, graph_.edge(i) == nullptr);
    if (copy->edge(i) == nullptr) continue;
    EXPECT_EQ(copy->edge(i)->src->name(), graph_.edge(i)->src->name());
    EXPECT_NE(copy->edge(i), graph_.edge(i));
  }
  copy->RemoveNode(copy->FindNode("a"));
  EXPECT_NE(graph_.FindNode("a"), nullptr);
  EXPECT_EQ(graph_.FindNode("b")->input_edge(0)->src, graph_.FindNode("a"));
}

TEST_F(GraphTest, NewNamesAreNeverTaken) {
  Add("x/_0", "NoOp");
  EXPECT_EQ(graph_.NewName("x"), "x/_1");
}

TEST_F(GraphTest, NodesMayStandInAnyOrder) {
  ASSERT_TRUE(Import(Node("c", "Add", {"a", "b:0", "^d"}) + Node("a", "Source") +
                     Node("b", "Pair") + Node("d", "NoOp"))
                  .ok());
  EXPECT_THAT(Names(), ElementsAre("a", "b", "d", "c"));
  // Edges are numbered with their destination, data first.
  EXPECT_EQ(graph_.edge(1)->src->name(), "a");
  EXPECT_EQ(graph_.edge(2)->src->name(), "b");
  EXPECT_TRUE(graph_.edge(3)->IsControl());
}

TEST_F(GraphTest, LoopsAreClosedAndOtherCyclesRefused) {
  EXPECT_TRUE(Import("node { name: 'm' op: 'Merge' input: 's' input: 'n' "
                     "attr { key: 'N' value { i: 2 } } }" +
                     Node("n", "NextIteration", {"m"}) + Node("s", "Source"))
                  .ok());
  EXPECT_THAT(Text(Import(Node("a", "NoOp", {"^b"}) + Node("b", "NoOp", {"^a"}))),
              HasSubstr("2 nodes in a cycle"));
}

TEST_F(GraphTest, MistakesInNamesAndInputsAreNamed) {
  const struct {
    std::string graph;
    const char* phrase;
  } cases[] = {
      {Node("_a", "NoOp"), "Illegal op name '_a'\n\t [[{{node _a}}]]"},
      {Node("a:b", "NoOp"), "Illegal op name"},
      {Node("a", "NoOp") + Node("b", "NoOp", {"^a:0x"}), "Illegal op input name"},
      {Node("a", "Add", {"s:01", "s"}) + Node("s", "Source"), "Illegal op input name"},
      {Node("a", "NoOp", {"^z"}), "Unknown input node '^z'"},
      {Node("a", "NoOp") + Node("a", "NoOp"), "'a' is not unique"},
      {Node("s", "Source") + Node("a", "Add", {"^s", "s", "s"}),
       "Control dependencies must come after regular dependencies"},
      {Node("s", "Source") + Node("a", "Add", {"s"}), "NodeDef expected inputs 'float, float'"},
      {Node("s", "Source") + Node("a", "Add", {"s", "s:4"}), "Connecting to invalid output 4"},
      {Node("c", "StatelessIf") + Node("a", "Add", {"c", "c:1"}),
       "Connecting to invalid output 1 of source node c which has 1 outputs. Try using "
       "tf.compat.v1.experimental.output_all_intermediates(True)."},
      {Node("p", "Pair") + Node("a", "Add", {"p", "p:1"}), "was passed int32 from p:1"},
  };
  for (const auto& c : cases) {
    const Status status = Import(c.graph);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.graph;
    EXPECT_THAT(Text(status), HasSubstr(c.phrase));
    EXPECT_EQ(graph_.num_node_ids(), 2) << "something was left behind";
    EXPECT_EQ(graph_.num_edge_ids(), 1);
  }
  EXPECT_EQ(Import(Node("a", "Nope")).code(), StatusCode::kNotFound);
}

TEST_F(GraphTest, NamesOfTheRuntimeAreAcceptedOnlyFromIt) {
  EXPECT_FALSE(Import(Node("_recv", "NoOp")).ok());
  EXPECT_TRUE(Import(Node("_recv", "NoOp"), {.internal_names = true}).ok());
}

TEST_F(GraphTest, AnExtensionMayUseWhatIsThereButNotRedefineIt) {
  ASSERT_TRUE(Import(Node("a", "Source")).ok());
  ASSERT_TRUE(Import(Node("b", "Add", {"a", "a"})).ok());
  EXPECT_THAT(Text(Import(Node("b", "Source"))),
              HasSubstr("node 'b', which was created by a previous call to Create or Extend"));
  EXPECT_FALSE(Import(Node("c", "Source") + "versions { producer: 9 }").ok());
}

TEST_F(GraphTest, VersionsThatMustNotBeReadAreRefused) {
  EXPECT_THAT(Text(Import("versions { producer: 10000 min_consumer: 9999 }")),
              HasSubstr("min consumer version 9999"));
  EXPECT_FALSE(
      Import("versions { producer: 1 bad_consumers: " + std::to_string(kGraphVersion) + " }").ok());
}

TEST_F(GraphTest, WhatIsImportedIsExportedAgain) {
  ASSERT_TRUE(Import(R"(
      node { name: 'z' op: 'NoOp' }
      node { name: 'y' op: 'NoOp' }
      node { name: 'a' op: 'Source' device: '/job:ps' attr { key: '_class' value { list { s: 'loc:@z' } } }
             experimental_debug_info { original_node_names: 'old' } }
      node { name: 'b' op: 'Add' input: 'a' input: 'a' input: '^z' input: '^y'
             attr { key: 'from_the_future' value { i: 1 } } }
      versions { producer: 2000 })")
                  .ok());
  graph_.FindNode("b")->set_assigned_device("/job:worker/replica:0/task:0/device:CPU:0");
  const std::string text = Export();
  EXPECT_THAT(text, HasSubstr("original_node_names: \"old\""));
  EXPECT_THAT(text, HasSubstr("from_the_future"));
  EXPECT_THAT(text, HasSubstr("/job:ps"));
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:0/device:CPU:0"));
  EXPECT_THAT(text, HasSubstr("input: \"^y\"\n  input: \"^z\""));
  EXPECT_THAT(text, HasSubstr("key: \"scale\""));
  pb::GraphDef stripped;
  ASSERT_TRUE(ExportGraphDef(graph_, {.strip_default_attrs = true}, &stripped).ok());
  EXPECT_EQ(stripped.DebugString().find("scale"), std::string::npos);
}

TEST_F(GraphTest, AGraphWithAnOpenInputIsNotExported) {
  Add("add", "Add");
  pb::GraphDef def;
  EXPECT_EQ(ExportGraphDef(graph_, {}, &def).code(), StatusCode::kInvalidArgument);
}

TEST_F(GraphTest, AnExtensionIsExportedWithoutLookingAtWhatWasThere) {
  millrace::Node* const open = Add("open", "NextIteration");  // a whole export would fail
  const int first = graph_.num_node_ids();
  millrace::Node* const added = Add("added", "NextIteration");
  ASSERT_TRUE(graph_.AddEdge(open, 0, added, 0).ok());
  pb::GraphDef def;
  ASSERT_TRUE(ExportGraphDef(graph_, {.first_id = first}, &def).ok());
  ASSERT_EQ(def.node_size(), 1);
  EXPECT_EQ(def.node(0).name(), "added");
  EXPECT_EQ(def.node(0).input(0), "open");
  EXPECT_EQ(def.versions().producer(), graph_.versions().producer());
}

TEST_F(GraphTest, FunctionsAreFoundBeforeOps) {
  ASSERT_TRUE(Import("node { name: 'x' op: 'Twice' input: 's' } node { name: 's' op: 'Source' }"
                     "library { function { signature { name: 'Twice' "
                     "input_arg { name: 'v' type: DT_FLOAT } "
                     "output_arg { name: 'w' type: DT_FLOAT } } } }")
                  .ok());
  EXPECT_EQ(graph_.FindNode("x")->num_outputs(), 1);
  EXPECT_EQ(graph_.Clone()->FindNode("x")->type(), "Twice");
}

TEST(NodeNameTest, FollowsTheGrammar) {
  for (const char* good : {"a", ".a", "9x", "a>b", "a/b-c_d", "A.B"}) {
    EXPECT_TRUE(IsNodeName(good)) << good;
  }
  for (const char* bad : {"", "_a", "a>", "-a", "a b", "a:0", "^a", "/a", ">a"}) {
    EXPECT_FALSE(IsNodeName(bad)) << bad;
  }
  EXPECT_EQ(ParseTensorName("n:3")->index, 3);
  EXPECT_TRUE(ParseTensorName("^n")->IsControl());
  EXPECT_FALSE(ParseTensorName("n:").ok());
  EXPECT_FALSE(ParseTensorName("n:99999999999").ok());
  EXPECT_EQ(FormatTensorName("n", 0), "n");
  EXPECT_EQ(FormatTensorName("n", 2), "n:2");
}

}  // namespace
}  // namespace millrace
