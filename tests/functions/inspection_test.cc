// SPDX-License-Identifier: Apache-2.0
// Functions that return resources are looked into: what their bodies ask of arguments and results
// is asked of what feeds and reads the call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "graph/lowering/lower_functions.h"
#include "ops/all_ops.h"
#include "placer/placer.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

const std::string kNoInline = Attr("_noinline", "b: true");
const std::string kVariable = Attr("dtype", "type: DT_FLOAT") + Attr("shape", "shape {}");
const std::string kRead = Attr("dtype", "type: DT_FLOAT");

std::string Types(const std::string& key, const std::vector<std::string>& types) {
  std::string list = "list {";
  for (const std::string& type : types) StrAppend(&list, " type: ", type);
  return Attr(key, list + " }");
}

// A call of `function`: `inputs` are resources, and so is everything that comes out.
std::string Call(const std::string& field, const std::string& name, const std::string& function,
                 const std::vector<std::string>& inputs, int results, const std::string& f = "") {
  return NodeText(field, name, "StatefulPartitionedCall", inputs,
                  Types("Tin", std::vector<std::string>(inputs.size(), "DT_RESOURCE")) +
                      Types("Tout", std::vector<std::string>(results, "DT_RESOURCE")) +
                      Attr("f", StrCat("func { name: '", function, "' ", f, "}")));
}

// A function from resources to resources.
std::string ResourceFunction(const std::string& name, const std::vector<std::string>& args,
                             const std::vector<std::pair<std::string, std::string>>& results,
                             const std::string& body) {
  std::string text =
      StrCat("library { function { signature { name: '", name, "' is_stateful: true");
  for (const std::string& arg : args) {
    StrAppend(&text, " input_arg { name: '", arg, "' type: DT_RESOURCE }");
  }
  for (const auto& [result, source] : results) {
    StrAppend(&text, " output_arg { name: '", result, "' type: DT_RESOURCE }");
  }
  text += " }\n" + body;
  for (const auto& [result, source] : results) {
    StrAppend(&text, " ret { key: '", result, "' value: '", source, "' }");
  }
  return StrCat(text, Attr("_noinline", "b: true"), " } }\n");
}

class InspectionTest : public ::testing::Test {
 protected:
  InspectionTest() : graph_(&ops_) {
    EXPECT_TRUE(RegisterAllOps(ops_).ok());
    for (const std::string_view task :
         {"/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1"}) {
      for (const std::string_view type : {"CPU", "GPU"}) {
        input_.devices.push_back({.name = StrCat(task, "/device:", type, ":0"),
                                  .type = std::string(type),
                                  .is_local = task.find("worker") != task.npos});
      }
    }
    input_.kernel = [](const OpInfo& op, const AttrMap&, std::string_view type) {
      const bool host_only = op.def.name() == "StringToNumber";
      return host_only && type != "CPU" ? std::nullopt : std::optional<int>(0);
    };
  }

  Status Place(const std::string& text) {
    pb::GraphDef def;
    EXPECT_TRUE(ParseGraph(text, &def)) << text;
    const int first_node = graph_.num_node_ids();
    Status status = ImportGraphDef({}, def, &graph_);
    if (status.ok()) status = LowerFunctions({.first_node = first_node}, nullptr, &graph_);
    if (!status.ok()) return status;
    graph_.FixSourceAndSink(first_node);
    for (Node* node : graph_.OpNodes()) node->set_assigned_device({});
    return millrace::Place(&graph_, input_, &log_);
  }
  std::string Device(const std::string& node) {
    const Node* const found = graph_.FindNode(node);
    return found == nullptr ? "no such node" : found->assigned_device();
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  PlacerInput input_;
  PlacementLog log_;
};

const std::string kReturnsSecond =
    ResourceFunction("Second", {"a", "b"}, {{"out", "same:output:0"}},
                     BodyNode("same", "Identity", {"b"}, Attr("T", "type: DT_RESOURCE")));

TEST_F(InspectionTest, AReaderGoesWhereTheReturnedArgumentIs) {
  const Status placed =
      Place(GraphNode("a", "VarHandleOp", {}, kVariable, "/job:ps/task:0") +
            GraphNode("b", "VarHandleOp", {}, kVariable, "/job:ps/task:1") +
            Call("node", "call", "Second", {"a", "b"}, 1) +
            GraphNode("read", "ReadVariableOp", {"call"}, kRead) + kReturnsSecond);
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(Device("read"), "/job:ps/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(Device("b"), Device("read"));
  EXPECT_EQ(Device("call_read"), Device("read"));
  EXPECT_EQ(Device("a"), "/job:ps/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(Device("call"), "/job:worker/replica:0/task:0/device:GPU:0");
  EXPECT_THAT(log_.ToText("read"),
              HasSubstr("argument 1 and result 0 of Second, which call calls"));
  EXPECT_EQ(log_.Replay("read"), Device("read"));
}

TEST_F(InspectionTest, WhatTheBodyAsksForIsAskedOfTheReader) {
  const Status placed = Place(
      Call("node", "call", "Make", {}, 1) + GraphNode("read", "ReadVariableOp", {"call"}, kRead) +
      ResourceFunction("Make", {}, {{"out", "v:resource:0"}},
                       BodyNode("v", "VarHandleOp", {}, kVariable, "/job:ps/task:1/cpu:0")));
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(Device("read"), "/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_THAT(log_.ToText("read"), HasSubstr("function Make asks for /job:ps/task:1/device:CPU:0"));
}

TEST_F(InspectionTest, WhatOnlyPassesByIsNotMoved) {
  // Control and plain values into a call do not tie: the constant stays free.
  const Status placed =
      Place(GraphNode("a", "VarHandleOp", {}, kVariable, "/job:ps/task:0") +
            GraphNode("b", "VarHandleOp", {}, kVariable, "/job:ps/task:1") +
            Call("node", "call", "Second", {"a", "b"}, 1) +
            GraphNode("read", "ReadVariableOp", {"call"}, kRead) +
            GraphNode("twice", "AddV2", {"read", "read"}, FloatT()) + kReturnsSecond);
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(Device("twice"), "/job:worker/replica:0/task:0/device:GPU:0");
}

TEST_F(InspectionTest, CallsWithinFunctionsAreLookedIntoToo) {
  const Status placed =
      Place(GraphNode("a", "VarHandleOp", {}, kVariable, "/job:ps/task:0") +
            GraphNode("b", "VarHandleOp", {}, kVariable, "/job:ps/task:1") +
            Call("node", "call", "Outer", {"a", "b"}, 1) +
            GraphNode("read", "ReadVariableOp", {"call"}, kRead) + kReturnsSecond +
            ResourceFunction("Outer", {"x", "y"}, {{"out", "inner:output:0"}},
                             Call("node_def", "inner", "Second", {"y", "x"}, 1)));
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(Device("read"), "/job:ps/replica:0/task:0/device:GPU:0");
}

TEST_F(InspectionTest, AFunctionThatTiesWhatIsApartIsAnError) {
  const Status placed =
      Place(GraphNode("a", "VarHandleOp", {}, kVariable, "/job:ps/task:0") +
            GraphNode("read", "ReadVariableOp", {"call"}, kRead) +
            Call("node", "call", "Elsewhere", {"a"}, 1) +
            ResourceFunction("Elsewhere", {"x"}, {{"out", "same:output:0"}},
                             BodyNode("same", "Identity", {"x"}, Attr("T", "type: DT_RESOURCE"),
                                      "/job:ps/task:1")));
  EXPECT_EQ(placed.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(placed.message(), HasSubstr("Elsewhere"));
  EXPECT_THAT(placed.message(), HasSubstr("a_call"));
}

TEST_F(InspectionTest, AFunctionThatCallsItselfIsAnErrorWithTheWayThere) {
  const Status placed =
      Place(GraphNode("a", "VarHandleOp", {}, kVariable) + Call("node", "call", "F", {"a"}, 1) +
            ResourceFunction("F", {"x"}, {{"out", "to_g:output:0"}},
                             Call("node_def", "to_g", "G", {"x"}, 1)) +
            ResourceFunction("G", {"x"}, {{"out", "to_f:output:0"}},
                             Call("node_def", "to_f", "F", {"x"}, 1)));
  EXPECT_EQ(placed.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(placed.message(), HasSubstr("Recursive function calls are not supported. Node "
                                          "{{node to_f}} inside the body of {{function_node G}} "
                                          "calls function {{function_node F}}"));
  EXPECT_THAT(placed.message(), HasSubstr("Graph contains node {{node call}}"));
}

TEST_F(InspectionTest, AMissingFunctionIsNamed) {
  const Status placed = Place(GraphNode("a", "VarHandleOp", {}, kVariable) +
                              Call("node", "call", "Gone", {"a"}, 1) + kReturnsSecond);
  EXPECT_EQ(placed.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(placed.message(), HasSubstr("Failed to find function \"Gone\""));
  EXPECT_THAT(placed.message(), HasSubstr("{{node call}}"));
}

// Each function calls the next one twice: 2^60 calls, and 61 functions.
TEST_F(InspectionTest, AFunctionIsLookedIntoOnce) {
  std::string text = GraphNode("a", "VarHandleOp", {}, kVariable, "/job:ps/task:1") +
                     Call("node", "call", "F0", {"a"}, 1) +
                     GraphNode("read", "ReadVariableOp", {"call"}, kRead);
  for (int i = 0; i < 60; ++i) {
    const std::string next = StrCat("F", i + 1);
    text += ResourceFunction(StrCat("F", i), {"x"}, {{"out", "two:output:0"}},
                             Call("node_def", "one", next, {"x"}, 1) +
                                 Call("node_def", "two", next, {"one:output:0"}, 1));
  }
  text += ResourceFunction("F60", {"x"}, {{"out", "same:output:0"}},
                           BodyNode("same", "Identity", {"x"}, Attr("T", "type: DT_RESOURCE")));
  const Status placed = Place(text);
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(Device("read"), "/job:ps/replica:0/task:1/device:GPU:0");
}

TEST_F(InspectionTest, CallsThatGoTooDeepAreAnError) {
  std::string text =
      GraphNode("a", "VarHandleOp", {}, kVariable) + Call("node", "call", "F0", {"a"}, 1);
  for (int i = 0; i < 200; ++i) {
    text += ResourceFunction(StrCat("F", i), {"x"}, {{"out", "next:output:0"}},
                             Call("node_def", "next", StrCat("F", i + 1), {"x"}, 1));
  }
  text += ResourceFunction("F200", {"x"}, {{"out", "same:output:0"}},
                           BodyNode("same", "Identity", {"x"}, Attr("T", "type: DT_RESOURCE")));
  const Status placed = Place(text);
  EXPECT_EQ(placed.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(placed.message(), HasSubstr("100 deep"));
}

TEST_F(InspectionTest, WhatIsAddedLaterReadsTheCallThroughAnIdentityToo) {
  ASSERT_TRUE(Place(GraphNode("a", "VarHandleOp", {}, kVariable, "/job:ps/task:0") +
                    GraphNode("b", "VarHandleOp", {}, kVariable, "/job:ps/task:1") +
                    Call("node", "call", "Second", {"a", "b"}, 1) + kReturnsSecond)
                  .ok());
  const Status placed = Place(GraphNode("read", "ReadVariableOp", {"call"}, kRead));
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(Device("read"), "/job:ps/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(graph_.FindNode("read")->input_edge(0)->src->name(), "call_read");
}

TEST_F(InspectionTest, NodesOfBranchesAndLoopsHaveTensorFlowsNames) {
  const std::string identity = FunctionText("Same", {"x"}, {{"y", "x"}}, "");
  ASSERT_TRUE(Place(identity + GraphNode("p", "Placeholder", {}, Attr("dtype", "type: DT_BOOL")) +
                    FloatConst("node", "c", 3) +
                    GraphNode("cond", "If", {"p", "c"},
                              FloatLists(1, 1) + Attr("Tcond", "type: DT_BOOL") +
                                  Func("then_branch", "Same") + Func("else_branch", "Same") +
                                  Attr("_lower_using_switch_merge", "b: true")))
                  .ok());
  for (const auto& [name, op] :
       std::vector<std::pair<std::string, std::string>>{{"cond/switch_pred/_2", "Switch"},
                                                        {"cond/pivot_f/_3", "Identity"},
                                                        {"cond/pivot_t/_4", "Identity"},
                                                        {"cond/c/_5", "Switch"}}) {
    const Node* const node = graph_.FindNode(name);
    ASSERT_NE(node, nullptr) << name;
    EXPECT_EQ(node->type(), op);
  }
}

TEST_F(InspectionTest, ListsOfStringsStayOnTheCpu) {
  const auto list = [](const std::string& element) {
    return Attr("element_dtype", "type: " + element);
  };
  std::string text;
  for (const std::string element : {"DT_STRING", "DT_FLOAT"}) {
    text +=
        GraphNode(
            element + "_shape", "Const", {},
            Attr("dtype", "type: DT_INT32") +
                Attr("value", "tensor { dtype: DT_INT32 tensor_shape { dim { size: 0 } } }")) +
        GraphNode(element + "_size", "Const", {},
                  Attr("dtype", "type: DT_INT32") +
                      Attr("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: 2 }")) +
        GraphNode(element + "_list", "TensorListReserve", {element + "_shape", element + "_size"},
                  list(element) + Attr("shape_type", "type: DT_INT32")) +
        GraphNode(element + "_same", "Identity", {element + "_list"},
                  Attr("T", "type: DT_VARIANT"));
  }
  ASSERT_TRUE(Place(text + kReturnsSecond).ok());
  EXPECT_THAT(Device("DT_STRING_same"), HasSubstr("device:CPU"));
  EXPECT_THAT(Device("DT_FLOAT_same"), HasSubstr("device:GPU"));
}

}  // namespace
}  // namespace millrace
