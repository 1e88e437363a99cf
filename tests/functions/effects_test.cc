// SPDX-License-Identifier: Apache-2.0
// How often what has effects in branches and loops runs, and what reads see of it. The values are
// those of TensorFlow, whose bodies of loops take what stays the same through an Identity that
// waits for the iteration, and whose branches run what their outputs need and what their
// functions declare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

std::string FloatDtype() { return Attr("dtype", "type: DT_FLOAT"); }
std::string Types(const std::string& key, const std::vector<std::string>& types) {
  std::string list = "list {";
  for (const std::string& type : types) StrAppend(&list, " type: DT_", type);
  return Attr(key, list + " }");
}
// A function of any types: "name TYPE" each, and results "name TYPE source".
struct Result {
  std::string name, type, source;
};
std::string Function(const std::string& name,
                     const std::vector<std::pair<std::string, std::string>>& args,
                     const std::vector<Result>& results, const std::string& body,
                     const std::vector<std::string>& declared = {}) {
  std::string text =
      StrCat("library { function { signature { name: '", name, "' is_stateful: true");
  for (const auto& [arg, type] : args) {
    StrAppend(&text, " input_arg { name: '", arg, "' type: DT_", type, " }");
  }
  for (const Result& result : results) {
    StrAppend(&text, " output_arg { name: '", result.name, "' type: DT_", result.type, " }");
  }
  for (const std::string& node : declared) StrAppend(&text, " control_output: '", node, "'");
  StrAppend(&text, " }\n", body);
  for (const Result& result : results) {
    StrAppend(&text, " ret { key: '", result.name, "' value: '", result.source, "' }");
  }
  for (const std::string& node : declared) {
    StrAppend(&text, " control_ret { key: '", node, "' value: '", node, "' }");
  }
  return text + " } }\n";
}

class EffectsTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::string Lower() {
    return Attr("_lower_using_switch_merge", GetParam() ? "b: true" : "b: false");
  }
  void Open(const std::string& text) {
    SessionOptions options;
    options.step_timeout = std::chrono::seconds(20);
    StatusOr<Session> session = OpenText(text, &graph_, options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
  }
  float Value(const std::string& name) {
    const StatusOr<std::vector<Tensor>> values =
        session_->Run({}, {graph_.FindOperation(name).output(0)});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? (*values)[0].scalar<float>() : -12345.0f;
  }
  void Target(const std::string& name) {
    const Status status = session_->RunTargets({graph_.FindOperation(name)});
    EXPECT_TRUE(status.ok()) << status;
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
};

std::string Counter(const std::string& name) {
  return GraphNode(name, "VarHandleOp", {},
                   FloatDtype() + Attr("shape", "shape {}") +
                       Attr("shared_name", StrCat("s: '", name, "'"))) +
         FloatConst("node", StrCat(name, "_zero"), 0) +
         GraphNode(StrCat(name, "_init"), "AssignVariableOp", {name, StrCat(name, "_zero")},
                   FloatDtype()) +
         GraphNode(StrCat(name, "_read"), "ReadVariableOp", {name}, FloatDtype());
}

// Loops over (i, k, handle) while i < 3; the body's results are `next`.
std::string Loop(const std::string& body, const std::vector<Result>& next,
                 const std::vector<std::string>& declared, const std::string& lower) {
  const std::vector<std::pair<std::string, std::string>> args = {
      {"i", "FLOAT"}, {"k", "FLOAT"}, {"h", "RESOURCE"}, {"s", "FLOAT"}};
  return Function("Below", args, {{"y", "BOOL", "less:z:0"}},
                  FloatConst("node_def", "three", 3) +
                      BodyNode("less", "Less", {"i", "three:output:0"}, FloatT())) +
         Function("Step", args, next,
                  FloatConst("node_def", "one", 1) +
                      BodyNode("inc", "AddV2", {"i", "one:output:0"}, FloatT()) + body,
                  declared) +
         Counter("v") + FloatConst("node", "zero", 0) + FloatConst("node", "k", 5) +
         GraphNode("loop", "While", {"zero", "k", "v", "zero"},
                   Types("T", {"FLOAT", "FLOAT", "RESOURCE", "FLOAT"}) + Func("cond", "Below") +
                       Func("body", "Step") + lower) +
         GraphNode("i", "Identity", {"loop"}, FloatT()) +
         GraphNode("s", "Identity", {"loop:3"}, FloatT());
}

TEST_P(EffectsTest, AnEffectOnWhatStaysTheSameHappensOncePerIteration) {
  Open(Loop(
      BodyNode("add", "AssignAddVariableOp", {"h", "k"}, FloatDtype()),
      {{"a", "FLOAT", "inc:z:0"}, {"b", "FLOAT", "k"}, {"c", "RESOURCE", "h"}, {"d", "FLOAT", "s"}},
      {"add"}, Lower()));
  Target("v_init");
  EXPECT_EQ(Value("i"), 3);
  EXPECT_EQ(Value("v_read"), 15);
}

TEST_P(EffectsTest, AVariableOfALoopMayBeMadeOfWhatStaysTheSame) {
  Open(Loop(BodyNode("square", "Mul", {"k", "k"}, FloatT()),
            {{"a", "FLOAT", "inc:z:0"},
             {"b", "FLOAT", "k"},
             {"c", "RESOURCE", "h"},
             {"d", "FLOAT", "square:z:0"}},
            {}, Lower()));
  EXPECT_EQ(Value("s"), 25);
}

TEST_P(EffectsTest, AVariableThatIsReadInTheBodyMayBeOneOfTheLoops) {
  Open(Loop(BodyNode("read", "ReadVariableOp", {"h"}, FloatDtype()) +
                BodyNode("add", "AssignAddVariableOp", {"h", "k", "^read"}, FloatDtype()),
            {{"a", "FLOAT", "inc:z:0"},
             {"b", "FLOAT", "k"},
             {"c", "RESOURCE", "h"},
             {"d", "FLOAT", "read:value:0"}},
            {"add"}, Lower()));
  Target("v_init");
  EXPECT_EQ(Value("s"), 10);
  EXPECT_EQ(Value("v_read"), 15);
}

TEST_P(EffectsTest, AnEffectOfTheConditionHappensOncePerTest) {
  const std::vector<std::pair<std::string, std::string>> args = {{"i", "FLOAT"}, {"h", "RESOURCE"}};
  Open(Function("Below", args, {{"y", "BOOL", "less:z:0"}},
                FloatConst("node_def", "three", 3) +
                    BodyNode("add", "AssignAddVariableOp", {"h", "three:output:0"}, FloatDtype()) +
                    BodyNode("less", "Less", {"i", "three:output:0"}, FloatT()),
                {"add"}) +
       Function("Step", args, {{"a", "FLOAT", "inc:z:0"}, {"b", "RESOURCE", "h"}},
                FloatConst("node_def", "one", 1) +
                    BodyNode("inc", "AddV2", {"i", "one:output:0"}, FloatT())) +
       Counter("v") + FloatConst("node", "zero", 0) +
       GraphNode("loop", "While", {"zero", "v"},
                 Types("T", {"FLOAT", "RESOURCE"}) + Func("cond", "Below") + Func("body", "Step") +
                     Lower()) +
       GraphNode("i", "Identity", {"loop"}, FloatT()));
  Target("v_init");
  EXPECT_EQ(Value("i"), 3);
  EXPECT_EQ(Value("v_read"), 12);
}

// A branch that assigns to two variables and gives both values; the other gives zeros.
std::string Branches(const std::vector<std::string>& declared, const std::string& lower) {
  const std::vector<std::pair<std::string, std::string>> args = {{"v", "RESOURCE"},
                                                                 {"w", "RESOURCE"}};
  const std::string values =
      FloatConst("node_def", "one", 1) + FloatConst("node_def", "two", 2) +
      BodyNode("set_v", "AssignAddVariableOp", {"v", "one:output:0"}, FloatDtype()) +
      BodyNode("set_w", "AssignAddVariableOp", {"w", "two:output:0"}, FloatDtype()) +
      BodyNode("a", "Identity", {"one:output:0", "^set_v"}, FloatT()) +
      BodyNode("b", "Identity", {"two:output:0", "^set_w"}, FloatT());
  return Function("Set", args, {{"y", "FLOAT", "a:output:0"}, {"z", "FLOAT", "b:output:0"}}, values,
                  declared) +
         Function("Leave", args, {{"y", "FLOAT", "zero:output:0"}, {"z", "FLOAT", "zero:output:0"}},
                  FloatConst("node_def", "zero", 0)) +
         Counter("v") + Counter("w") + GraphNode("init", "NoOp", {"^v_init", "^w_init"}) +
         GraphNode("yes", "Const", {},
                   Attr("dtype", "type: DT_BOOL") +
                       Attr("value", "tensor { dtype: DT_BOOL tensor_shape {} bool_val: true }")) +
         GraphNode("if", "If", {"yes", "v", "w"},
                   Types("Tin", {"RESOURCE", "RESOURCE"}) + Types("Tout", {"FLOAT", "FLOAT"}) +
                       Attr("Tcond", "type: DT_BOOL") + Func("then_branch", "Set") +
                       Func("else_branch", "Leave") + lower) +
         GraphNode("y", "Identity", {"if"}, FloatT()) +
         GraphNode("z", "Identity", {"if:1"}, FloatT()) + GraphNode("waits", "NoOp", {"^if"});
}

TEST_P(EffectsTest, ABranchRunsWhatItsFetchedOutputNeeds) {
  Open(Branches({}, Lower()));
  Target("init");
  EXPECT_EQ(Value("y"), 1);
  EXPECT_EQ(Value("v_read"), 1);
  // A branch that stays a function runs all of it.
  EXPECT_EQ(Value("w_read"), GetParam() ? 0 : 2);
  Target("init");
  EXPECT_EQ(Value("z"), 2);
  EXPECT_EQ(Value("v_read"), GetParam() ? 0 : 1);
  EXPECT_EQ(Value("w_read"), 2);
}

TEST_P(EffectsTest, WhoeverWaitsForABranchWaitsForWhatItsFunctionDeclares) {
  Open(Branches({"set_v", "set_w"}, Lower()));
  Target("init");
  Target("waits");
  EXPECT_EQ(Value("v_read"), 1);
  EXPECT_EQ(Value("w_read"), 2);
  Target("if");
  EXPECT_EQ(Value("v_read"), 2);
  EXPECT_EQ(Value("w_read"), 4);
  EXPECT_EQ(Value("if"), 1);
  EXPECT_EQ(Value("w_read"), 6);
}

// A call, and what only passes on what depends on it, as gradients do: the function takes y of the
// call and gives 2 * its other argument. Put into the graph or not.
std::string CallBehind(const std::string& results, bool inlined) {
  const std::string more = inlined ? "" : Attr("_noinline", "b: true");
  return Function("Add", {{"x", "FLOAT"}, {"v", "RESOURCE"}}, {{"y", "FLOAT", "x"}},
                  BodyNode("add", "AssignAddVariableOp", {"v", "x"}, FloatDtype()), {"add"}) +
         FunctionText("Ignore", {"y", "z"},
                      {{"a", "sum:z:0"}, {"b", results == "one" ? "sum:z:0" : "y"}},
                      BodyNode("sum", "AddV2", {"z", "z"}, FloatT()), more) +
         Counter("v") + FloatConst("node", "x", 3) + FloatConst("node", "z", 2) +
         GraphNode(
             "add", "StatefulPartitionedCall", {"x", "v"},
             Types("Tin", {"FLOAT", "RESOURCE"}) + Types("Tout", {"FLOAT"}) + Func("f", "Add")) +
         GraphNode("zeros", "ZerosLike", {"add"}, FloatT()) +
         GraphNode("ignore", "PartitionedCall", {"zeros", "z"},
                   FloatLists(2, 2) + Func("f", "Ignore")) +
         GraphNode("a", "Identity", {"ignore"}, FloatT()) +
         GraphNode("b", "Identity", {"ignore:1"}, FloatT()) +
         GraphNode("c", "PartitionedCall", {"a", "z"}, FloatLists(2, 2) + Func("f", "Ignore"));
}

TEST_P(EffectsTest, WhatIsBehindAnArgumentThatACallIgnoresHappens) {
  Open(CallBehind("one", GetParam()));
  Target("v_init");
  EXPECT_EQ(Value("a"), 4);
  EXPECT_EQ(Value("v_read"), 3);
  EXPECT_EQ(Value("b"), 4);
  EXPECT_EQ(Value("v_read"), 6);
  EXPECT_EQ(Value("ignore"), 4);
  EXPECT_EQ(Value("v_read"), 9);
}

TEST_P(EffectsTest, WhatIsBehindAnArgumentOfAnotherOutputHappens) {
  Open(CallBehind("two", GetParam()));
  Target("v_init");
  EXPECT_EQ(Value("a"), 4);
  EXPECT_EQ(Value("v_read"), 3);
  EXPECT_EQ(Value("b"), 0);
  EXPECT_EQ(Value("v_read"), 6);
}

TEST_P(EffectsTest, WhatIsBehindTheArgumentOfACallOfACallHappens) {
  Open(CallBehind("one", GetParam()));
  Target("v_init");
  EXPECT_EQ(Value("c"), 4);
  EXPECT_EQ(Value("v_read"), 3);
}

TEST_P(EffectsTest, ACallReadsWhatWasAssignedBeforeAnArgumentThatItIgnores) {
  // Long enough for a read that does not wait to come first.
  std::string slow = GraphNode("slow0", "Exp", {"zero"}, FloatT());
  for (int i = 0; i < 50; ++i) {
    slow += GraphNode(StrCat("slow", i + 1), "Tanh", {StrCat("slow", i)}, FloatT());
  }
  Open(Function("Read", {{"x", "FLOAT"}, {"v", "RESOURCE"}}, {{"y", "FLOAT", "read:value:0"}},
                BodyNode("read", "ReadVariableOp", {"v"}, FloatDtype())) +
       Counter("v") + FloatConst("node", "zero", 0) + FloatConst("node", "three", 3) + slow +
       GraphNode("add", "AssignAddVariableOp", {"v", "three", "^slow50"}, FloatDtype()) +
       GraphNode("x", "Identity", {"zero", "^add"}, FloatT()) +
       GraphNode(
           "call", "StatefulPartitionedCall", {"x", "v"},
           Types("Tin", {"FLOAT", "RESOURCE"}) + Types("Tout", {"FLOAT"}) + Func("f", "Read")) +
       GraphNode("y", "Identity", {"call"}, FloatT()));
  Target("v_init");
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(Value("y"), 3 * i);
}

INSTANTIATE_TEST_SUITE_P(LoweredOrNot, EffectsTest, ::testing::Bool());

// Variables by reference, in graphs as TensorFlow's Python makes them.
class ReferencesTest : public EffectsTest {
 protected:
  static std::string Variable() {
    return GraphNode("v", "VariableV2", {}, FloatDtype() + Attr("shape", "shape {}")) +
           FloatConst("node", "two", 2) + FloatConst("node", "one", 1) +
           GraphNode("init", "Assign", {"v", "two"}, FloatT()) +
           GraphNode("v/read", "Identity", {"v"}, FloatT());
  }
  // Of three iterations; the body is what `body` says, and runs in each of them.
  static std::string Loop(const std::string& body) {
    return FloatConst("node", "zero", 0) +
           GraphNode("enter", "Enter", {"zero"}, FloatT() + Attr("frame_name", "s: 'while'")) +
           GraphNode("merge", "Merge", {"enter", "next"}, FloatT() + Attr("N", "i: 2")) +
           GraphNode("four", "Const", {"^merge"},
                     FloatDtype() +
                         Attr("value", "tensor { dtype: DT_FLOAT tensor_shape {} float_val: 4 }")) +
           GraphNode("less", "Less", {"merge", "four"}, FloatT()) +
           GraphNode("cond", "LoopCond", {"less"}) +
           GraphNode("switch", "Switch", {"merge", "cond"}, FloatT()) +
           GraphNode("i", "Identity", {"switch:1"}, FloatT()) + body +
           GraphNode("add", "AddV2", {"i", "step"}, FloatT()) +
           GraphNode("next", "NextIteration", {"add"}, FloatT()) +
           GraphNode("exit", "Exit", {"switch"}, FloatT()) +
           GraphNode("after", "Identity", {"v", "^exit"}, FloatT());
  }
  static std::string Frame(bool constant) {
    return FloatT() + Attr("frame_name", "s: 'while'") +
           Attr("is_constant", constant ? "b: true" : "b: false");
  }
};

TEST_P(ReferencesTest, ALoopSeesWhatItAssignsToAVariableThatWasReadBefore) {
  Open(Variable() +
       Loop(GraphNode("v/enter", "RefEnter", {"v"}, Frame(true)) +
            GraphNode("read/enter", "Enter", {"v/read"}, Frame(true)) +
            GraphNode("square", "Mul", {"read/enter", "read/enter", "^i"}, FloatT()) +
            GraphNode("assign", "Assign", {"v/enter", "square"}, FloatT()) +
            GraphNode(
                "step", "Const", {"^assign"},
                FloatDtype() +
                    Attr("value", "tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }"))));
  for (int i = 0; i < 5; ++i) {
    Target("init");
    EXPECT_EQ(Value("after"), 65536);
  }
}

TEST_P(ReferencesTest, ASumSeesTheUpdateThatItsOtherOperandIs) {
  Open(Variable() + GraphNode("more", "AssignAdd", {"v", "one"}, FloatT()) +
       GraphNode("sum", "AddV2", {"v/read", "more"}, FloatT()) +
       GraphNode("new", "Mul", {"more", "one"}, FloatT()) +
       GraphNode("square", "Mul", {"v/read", "new"}, FloatT()));
  for (int i = 0; i < 5; ++i) {
    Target("init");
    EXPECT_EQ(Value("sum"), 6);
    Target("init");
    EXPECT_EQ(Value("square"), 9);
  }
}

TEST_P(ReferencesTest, ABranchSeesWhatItAssigns) {
  const std::string p = GetParam() ? "true" : "false";
  Open(Variable() +
       GraphNode("p", "Const", {},
                 Attr("dtype", "type: DT_BOOL") +
                     Attr("value",
                          StrCat("tensor { dtype: DT_BOOL tensor_shape {} bool_val: ", p, " }"))) +
       GraphNode("pivots", "Switch", {"p", "p"}, Attr("T", "type: DT_BOOL")) +
       GraphNode("pivot", "Identity", {"pivots:1"}, Attr("T", "type: DT_BOOL")) +
       GraphNode("v/switch", "RefSwitch", {"v", "p"}, FloatT()) +
       GraphNode("read/switch", "Switch", {"v/read", "p"}, FloatT()) +
       GraphNode("inc", "Const", {"^pivot"},
                 FloatDtype() +
                     Attr("value", "tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }")) +
       GraphNode("more", "AssignAdd", {"v/switch:1", "inc"}, FloatT()) +
       GraphNode("sum", "AddV2", {"read/switch:1", "inc2"}, FloatT()) +
       GraphNode("inc2", "Identity", {"more"}, FloatT()) +
       GraphNode("y", "Merge", {"read/switch", "sum"}, FloatT() + Attr("N", "i: 2")));
  for (int i = 0; i < 5; ++i) {
    Target("init");
    EXPECT_EQ(Value("y"), GetParam() ? 6 : 2);
  }
}

INSTANTIATE_TEST_SUITE_P(TakenOrNot, ReferencesTest, ::testing::Bool());

}  // namespace
}  // namespace millrace
