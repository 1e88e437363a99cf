// SPDX-License-Identifier: Apache-2.0
// Building graphs through the public API: names, scopes, devices, errors with the caller's
// place, and GraphDef in and out.
#include "frontend/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/ops.h"
#include "millrace/variables.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const Status& status) { return std::string(Message(status)); }

Tensor Floats(const Shape& shape) {
  Tensor t(kFloat, shape);
  for (float& x : t.flat<float>()) x = 0;
  return t;
}

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Operation& op : graph.operations()) names.push_back(op.name());
  return names;
}

pb::GraphDef Export(const Graph& graph) {
  const auto bytes = graph.ToGraphDef();
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  pb::GraphDef def;
  EXPECT_TRUE(def.ParseFromString(bytes.ok() ? *bytes : ""));
  return def;
}

const pb::NodeDef& NodeOf(const pb::GraphDef& def, const std::string& name) {
  for (const pb::NodeDef& node : def.node()) {
    if (node.name() == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return pb::NodeDef::default_instance();
}

// --- Names and scopes -----------------------------------------------------------------------
TEST(Scope, NamesNodesAfterTheirOpAndMakesNamesUnique) {
  Graph graph;
  const Scope root = graph.root();
  for (int i = 0; i < 3; ++i) ops::NoOp(root);
  ops::NoOp(root.WithOpName("named"));
  ops::NoOp(root.WithOpName("named"));
  EXPECT_THAT(Names(graph), ElementsAre("NoOp", "NoOp_1", "NoOp_2", "named", "named_1"));
}

TEST(Scope, PutsItsNameBeforeTheNamesOfItsNodesAndOfItsScopes) {
  Graph graph;
  const Scope outer = graph.root().Named("outer");
  ops::NoOp(outer);
  ops::NoOp(outer.Named("inner").WithOpName("x"));
  ops::NoOp(outer.Named("inner").WithOpName("x"));  // a second scope of that name
  EXPECT_THAT(Names(graph), ElementsAre("outer/NoOp", "outer/inner/x", "outer/inner_1/x"));
}

TEST(Scope, DoesNotTakeANameThatASuffixAlreadyMade) {
  Graph graph;
  const Scope root = graph.root();
  ops::NoOp(root.WithOpName("x_1"));
  ops::NoOp(root.WithOpName("x"));
  ops::NoOp(root.WithOpName("x"));
  EXPECT_THAT(Names(graph), ElementsAre("x_1", "x", "x_2"));
}

TEST(Scope, MergesDevicesFieldByFieldFromTheInsideOut) {
  Graph graph;
  const Scope ps = graph.root().WithDevice("/job:ps/task:0/device:CPU:0");
  EXPECT_EQ(ops::NoOp(ps).device(), "/job:ps/task:0/device:CPU:0");
  EXPECT_EQ(ops::NoOp(ps.WithDevice("/task:1")).device(), "/job:ps/task:1/device:CPU:0");
  EXPECT_EQ(ops::NoOp(ps.WithDevice("")).device(), "/job:ps/task:0/device:CPU:0");
  EXPECT_EQ(ops::NoOp(ps.WithoutDevice()).device(), "");
}

TEST(Scope, AsksItsDeviceFunctionWithWhatInnerScopesRequested) {
  Graph graph;
  std::vector<std::string> seen;
  const Scope scope = graph.root().WithDevice([&](const NodeView& node) {
    seen.push_back(StrCat(node.name, " ", node.type, " ", node.device));
    return std::string("/job:chosen");
  });
  const Operation op = ops::NoOp(scope.WithDevice("/task:1").WithOpName("a"));
  EXPECT_EQ(op.device(), "/job:chosen");
  EXPECT_THAT(seen, ElementsAre("a NoOp /task:1"));
}

TEST(Scope, ShowsADeviceFunctionTypesAndShapesOfTheOutputs) {
  Graph graph;
  std::vector<std::string> seen;
  const Scope scope = graph.root().WithDevice([&](const NodeView& node) {
    seen.push_back(StrCat(node.type, " ", DataTypeName(node.output_types[0]), " ",
                          node.output_shapes[0].DebugString()));
    return std::string();
  });
  ops::VariableV2(scope, Shape({2, 3}), kFloat);
  ops::VarHandleOp(scope, kDouble, PartialShape({4}));  // what is behind the handle
  EXPECT_THAT(seen, ElementsAre("VariableV2 float_ref [2,3]", "VarHandleOp double [4]"));
}

TEST(Scope, RecordsADeviceThatCannotBeRead) {
  Graph graph;
  ops::NoOp(graph.root().WithDevice("/job:"));
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
}

TEST(Scope, MakesItsNodesWaitForControlDependencies) {
  Graph graph;
  const Scope root = graph.root();
  const Operation a = ops::NoOp(root.WithOpName("a")), b = ops::NoOp(root.WithOpName("b"));
  const Scope after = root.WithControlDependencies({a}).WithControlDependencies({b});
  ops::NoOp(after.WithOpName("both"));
  ops::NoOp(after.WithoutControlDependencies().WithOpName("none"));
  const pb::GraphDef def = Export(graph);
  EXPECT_THAT(NodeOf(def, "both").input(), ElementsAre("^a", "^b"));
  EXPECT_THAT(NodeOf(def, "none").input(), ElementsAre());
}

TEST(Scope, ColocatesANodeAndGivesItTheDeviceOfItsLeader) {
  Graph graph;
  const Scope root = graph.root();
  const Operation leader = ops::NoOp(root.WithDevice("/job:ps/task:1").WithOpName("leader"));
  const Operation follower =
      ops::NoOp(root.WithDevice("/job:worker").ColocateWith(leader).WithOpName("follower"));
  EXPECT_EQ(follower.device(), "/job:ps/task:1");
  EXPECT_THAT(NodeOf(Export(graph), "follower").attr().at("_class").list().s(),
              ElementsAre("loc:@leader"));
}

TEST(Input, BecomesAConstantOfTheTypeThatTheOpExpects) {
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root, kDouble, {-1});
  const Output sum = ops::Add(root, x, 2);
  EXPECT_EQ(sum.dtype(), kDouble);
  EXPECT_EQ(sum.op().input(1).dtype(), kDouble);
  EXPECT_EQ(sum.op().input(1).op().name(), "Add/Const");
}

// --- Errors quote the caller ----------------------------------------------------------------
TEST(Graph, NamesTheFileAndLineOfACallWhoseShapesDoNotFit) {
  Graph graph;
  const Scope root = graph.root();
  const Output a = Constant(root, Floats({2, 3})), b = Constant(root, Floats({2, 3}));
  const int line = std::source_location::current().line() + 1;
  const Output product = ops::MatMul(root.WithOpName("product"), a, b);
  EXPECT_FALSE(product.valid());
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
  EXPECT_THAT(Text(graph.status()), HasSubstr(StrCat("graph_builder_test.cc:", line)));
  EXPECT_THAT(Text(graph.status()), HasSubstr("'product' (op: MatMul)"));
}

TEST(Graph, NamesTheCallersOfHelpersToo) {
  const auto expect_origin = [](const Graph& graph, int line) {
    EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
    EXPECT_THAT(Text(graph.status()), HasSubstr(StrCat("graph_builder_test.cc:", line)));
  };
  {
    Graph graph;
    const Output unknown = Placeholder(graph.root(), kFloat, PartialShape());
    const int line = std::source_location::current().line() + 1;
    MakeVariable(graph.root(), "v", unknown);
    expect_origin(graph, line);
  }
  {
    Graph graph;
    const Scope root = graph.root();
    const Output logits = Constant(root, Floats({4, 3})), labels = Constant(root, Floats({4, 2}));
    const int line = std::source_location::current().line() + 1;
    SoftmaxCrossEntropy(root, logits, labels);
    expect_origin(graph, line);
  }
  {
    Graph graph;
    const Scope root = graph.root();
    const Variable v = MakeVariable(root, "v", Constant(root, Floats({2})));
    const Output wrong = Constant(root, Floats({3}));
    const int line = std::source_location::current().line() + 1;
    Assign(root, v, wrong);
    expect_origin(graph, line);
  }
}

TEST(Graph, KeepsTheFirstErrorAndMakesNothingAfterIt) {
  Graph graph;
  const Scope root = graph.root();
  const Output bad = ops::MatMul(root, Constant(root, Floats({2, 3})), Constant(root, Floats({2})));
  const Status first = graph.status();
  const std::size_t nodes = graph.operations().size();
  const Output worse = ops::Add(root, bad, bad);
  EXPECT_FALSE(worse.valid());
  EXPECT_EQ(worse.name(), "");
  EXPECT_EQ(worse.dtype(), DataType::kInvalid);
  EXPECT_EQ(graph.status(), first);
  EXPECT_EQ(graph.operations().size(), nodes);
  EXPECT_FALSE(graph.ToGraphDef().ok());
}

TEST(Graph, RefusesTypesThatDoNotFit) {
  Graph graph;
  const Scope root = graph.root();
  ops::Add(root, Constant(root, Floats({2})), Placeholder(root, kInt32, {2}));
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
  EXPECT_THAT(Text(graph.status()), HasSubstr("int32"));
}

TEST(Graph, RefusesOutputsOfAnotherGraph) {
  Graph graph, other;
  const Output foreign = Constant(other.root(), Floats({2}));
  ops::Neg(graph.root(), foreign);
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
  EXPECT_THAT(Text(graph.status()), HasSubstr("another graph"));
  EXPECT_TRUE(other.status().ok());
}

TEST(Graph, KnowsShapesAsItGrows) {
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root, kFloat, {-1, 784});
  const Output w = Constant(root, Floats({784, 10}));
  EXPECT_EQ(ops::MatMul(root, x, w).shape().DebugString(), PartialShape({-1, 10}).DebugString());
  EXPECT_EQ(ops::Reshape(root, w, {10, -1}).shape().DebugString(),
            PartialShape({10, 784}).DebugString());
}

// --- GraphDef ---------------------------------------------------------------------------------
Graph SmallGraph() {
  Graph graph;
  const Scope s = graph.root().Named("model").WithDevice("/job:worker/task:0");
  const Variable w = MakeVariable(s, "w", Constant(s, Floats({2, 2})));
  const Output x = Placeholder(s.WithOpName("x"), kFloat, {-1, 2});
  const Output y = ops::MatMul(s, x, w.read, {.transpose_b = true});
  ops::NoOp(s.WithControlDependencies({y.op()}).WithOpName("done"));
  EXPECT_TRUE(graph.status().ok()) << graph.status();
  return graph;
}

TEST(Graph, ComesBackFromItsOwnGraphDef) {
  const Graph graph = SmallGraph();
  const auto bytes = graph.ToGraphDef();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  Graph copy;
  const Status status = copy.ImportGraphDef(*bytes);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Export(copy).DebugString(), Export(graph).DebugString());
  EXPECT_EQ(copy.FindOperation("model/MatMul").output(0).shape().DebugString(),
            PartialShape({-1, 2}).DebugString());
}

TEST(Graph, ImportsUnderAPrefixWithEverythingThatNamesANode) {
  const auto bytes = SmallGraph().ToGraphDef();
  ASSERT_TRUE(bytes.ok());
  Graph graph;
  for (const char* prefix : {"first", "second"}) {
    const Status status = graph.ImportGraphDef(*bytes, prefix);
    ASSERT_TRUE(status.ok()) << status;
  }
  const pb::GraphDef def = Export(graph);
  EXPECT_THAT(NodeOf(def, "second/model/done").input(), ElementsAre("^second/model/MatMul"));
  EXPECT_THAT(NodeOf(def, "second/model/MatMul").input(),
              ElementsAre("second/model/x", "second/model/w/read"));
  // Or the second variable's initializer would be tied to the first one's device.
  EXPECT_THAT(NodeOf(def, "second/model/w/Assign").attr().at("_class").list().s(),
              ElementsAre("loc:@second/model/w"));
}

TEST(Graph, BuildsOnWhatItImportedWithoutTakingItsNames) {
  const auto bytes = SmallGraph().ToGraphDef();
  ASSERT_TRUE(bytes.ok());
  Graph graph;
  ASSERT_TRUE(graph.ImportGraphDef(*bytes).ok());
  const Output y = graph.FindOperation("model/MatMul").output(0);
  const Output more = ops::Relu(graph.root().WithOpName("model/x"), y);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(more.op().name(), "model/x_1");
  // A scope of an imported name is a new one.
  EXPECT_THAT(ops::NoOp(graph.root().Named("model").WithOpName("n")).name(),
              ::testing::AnyOf("model_1/n", "model/n"));
}

TEST(Graph, RefusesBytesThatAreNoGraphDefAndStaysAsItWas) {
  Graph graph = SmallGraph();
  const std::string before = Export(graph).DebugString();
  EXPECT_TRUE(errors::IsInvalidArgument(graph.ImportGraphDef("\xff\xff\xff")));
  pb::GraphDef missing;
  missing.mutable_versions()->set_producer(1000);
  pb::NodeDef* node = missing.add_node();
  node->set_name("y");
  node->set_op("Neg");
  node->add_input("x");
  (*node->mutable_attr())["T"].set_type(pb::DT_FLOAT);
  EXPECT_FALSE(graph.ImportGraphDef(missing.SerializeAsString()).ok());
  EXPECT_EQ(Export(graph).DebugString(), before);
  EXPECT_TRUE(graph.status().ok()) << "a refused import is no error of building";
}

// --- Variables ----------------------------------------------------------------------------------
TEST(MakeVariable, NamesItsNodesAfterItselfWhateverTheScope) {
  for (const bool use_resource : {false, true}) {
    Graph graph;
    const Scope s = graph.root().Named("a").Named("1");
    const Output zero = Constant(s, Floats({}));
    for (const char* name : {"1", "a", "w/b"}) {
      for (const char* suffix : {"", "_1"}) {
        const Variable v = MakeVariable(s, name, zero, {.use_resource = use_resource});
        ASSERT_TRUE(graph.status().ok()) << graph.status();
        EXPECT_EQ(v.name(), StrCat("a/1/", name, suffix));
        EXPECT_EQ(v.read.op().name(), v.name() + "/read");
        EXPECT_EQ(v.initializer.name(), v.name() + "/Assign");
      }
    }
  }
}

TEST(MakeVariable, GivesAResourceTheFullNameOfItsNode) {
  Graph graph;
  const Scope s = graph.root().Named("layer");
  MakeVariable(s, "w", Constant(s, Floats({})), {.use_resource = true});
  EXPECT_EQ(NodeOf(Export(graph), "layer/w").attr().at("shared_name").s(), "layer/w");
}

TEST(Variables, AreFoundAgainInOrderOfCreation) {
  Graph graph;
  const Scope root = graph.root();
  const Output zero = Constant(root, Floats({}));
  MakeVariable(root, "b", zero);
  MakeVariable(root, "a", zero, {.trainable = false});
  MakeVariable(root, "mine", zero, {.local = true});
  const auto names = [&](std::string_view collection) {
    std::vector<std::string> found;
    for (const Variable& v : Variables(graph, collection)) {
      found.push_back(v.name());
      EXPECT_EQ(v.initial_value, zero) << v.name();
      EXPECT_EQ(v.read.op().name(), v.name() + "/read");
    }
    return found;
  };
  EXPECT_THAT(names(kVariables), ElementsAre("b", "a"));
  EXPECT_THAT(names(kTrainableVariables), ElementsAre("b"));
  EXPECT_THAT(names(kLocalVariables), ElementsAre("mine"));
}

TEST(GlobalStep, IsOnePerGraph) {
  Graph graph;
  const Variable first = GlobalStep(graph.root());
  const Variable again = GlobalStep(graph.root().Named("elsewhere"));
  EXPECT_EQ(first.handle, again.handle);
  EXPECT_EQ(first.dtype(), kInt64);
  EXPECT_THAT(Variables(graph, kTrainableVariables), ::testing::IsEmpty());
}

TEST(GraphText, IsReadableAndNamesEveryNode) {
  const auto text = SmallGraph().ToText();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("name: \"model/MatMul\""));
  EXPECT_THAT(*text, Not(HasSubstr("name: \"\"")));
}

}  // namespace
}  // namespace millrace
