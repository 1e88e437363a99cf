// SPDX-License-Identifier: Apache-2.0
// Functions as a program sees them: the values of calls, branches and loops, what has effects,
// and what is said when something is wrong. Everything both ways where there are two: put into
// the graph before it is placed, and run as a function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class FunctionsTest : public ::testing::Test {
 protected:
  void Open(const std::string& text, SessionOptions options = {}) {
    StatusOr<Session> session = OpenText(text, &graph_, options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
  }
  Output Find(const std::string& name, int index = 0) {
    const Operation op = graph_.FindOperation(name);
    EXPECT_TRUE(op.valid()) << name;
    return op.output(index);
  }
  StatusOr<std::vector<Tensor>> Run(std::vector<Feed> feeds, std::vector<Output> fetches,
                                    std::vector<Operation> targets = {}) {
    if (session_ == nullptr) return Status(StatusCode::kFailedPrecondition, "no session");
    return session_->Run(feeds, fetches, targets);
  }
  float Value(const std::string& name, std::vector<Feed> feeds = {}) {
    const StatusOr<std::vector<Tensor>> values = Run(std::move(feeds), {Find(name)});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? (*values)[0].scalar<float>() : -12345.0f;
  }
  std::string Error(const std::string& name) {
    const StatusOr<std::vector<Tensor>> values = Run({}, {Find(name)});
    EXPECT_FALSE(values.ok());
    return std::string(values.status().message());
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
};

std::string Twice(const std::string& more = "") {
  return FunctionText("Twice", {"x"}, {{"y", "sum:z:0"}},
                      BodyNode("sum", "AddV2", {"x", "x"}, FloatT()), more);
}
std::string TimesTen() {
  return FunctionText("TimesTen", {"x"}, {{"y", "product:z:0"}},
                      FloatConst("node_def", "ten", 10) +
                          BodyNode("product", "Mul", {"x", "ten:output:0"}, FloatT()));
}
const char kNoInline[] = " attr { key: '_noinline' value { b: true } }";

TEST_F(FunctionsTest, ACallByNameAndAPartitionedCallGiveWhatTheBodySays) {
  Open(Twice() + FloatConst("node", "c", 21) + GraphNode("by_name", "Twice", {"c"}) +
       GraphNode("call", "PartitionedCall", {"by_name"}, FloatLists(1, 1) + Func("f", "Twice")));
  EXPECT_EQ(Value("by_name"), 42);
  EXPECT_EQ(Value("call"), 84);
}

TEST_F(FunctionsTest, ACallThatMustNotBeInlinedGivesTheSame) {
  Open(Twice(kNoInline) + FloatConst("node", "c", 21) + GraphNode("by_name", "Twice", {"c"}) +
       GraphNode("call", "PartitionedCall", {"by_name"}, FloatLists(1, 1) + Func("f", "Twice")));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Value("call"), 84);
}

TEST_F(FunctionsTest, FunctionsCallFunctions) {
  Open(Twice() +
       FunctionText("Four", {"x"}, {{"y", "b:y:0"}},
                    BodyNode("a", "Twice", {"x"}) + BodyNode("b", "Twice", {"a:y:0"})) +
       FloatConst("node", "c", 5) + GraphNode("four", "Four", {"c"}));
  EXPECT_EQ(Value("four"), 20);
}

TEST_F(FunctionsTest, AnOutputOfACallCanBeFedAndOthersSeeTheFeed) {
  Open(Twice() + FloatConst("node", "c", 21) + GraphNode("call", "Twice", {"c"}) +
       GraphNode("after", "Neg", {"call"}, FloatT()));
  EXPECT_EQ(Value("after", {{Find("call"), Tensor::Scalar<float>(7)}}), -7);
  EXPECT_EQ(Value("after"), -42);
}

TEST_F(FunctionsTest, AttributesOfTheCallReachTheBody) {
  const std::string poly =
      "library { function { signature { name: 'Poly' input_arg { name: 'x' type_attr: 'T' }"
      " output_arg { name: 'y' type_attr: 'T' } attr { name: 'T' type: 'type' } }" +
      BodyNode("sum", "AddV2", {"x", "x"}, Attr("T", "placeholder: 'T'")) +
      " ret { key: 'y' value: 'sum:z:0' } } }";
  Open(
      poly + FloatConst("node", "c", 3) + GraphNode("call", "Poly", {"c"}, FloatT()) +
      GraphNode("typed", "PartitionedCall", {"c"},
                FloatLists(1, 1) +
                    Attr("f", "func { name: 'Poly' attr { key: 'T' value { type: DT_FLOAT } } }")));
  EXPECT_EQ(Value("call"), 6);
  EXPECT_EQ(Value("typed"), 6);
}

TEST_F(FunctionsTest, ListsOfTensorsAreArguments) {
  const std::string list =
      "library { function { signature { name: 'Second' input_arg { name: 'xs' type: DT_FLOAT"
      " number_attr: 'N' } output_arg { name: 'y' type: DT_FLOAT } output_arg { name: 'all' type:"
      " DT_FLOAT } attr { name: 'N' type: 'int' } }" +
      BodyNode("id", "Identity", {"xs:1"}, FloatT()) +
      BodyNode("sum", "AddN", {"xs"}, FloatT() + Attr("N", "placeholder: 'N'")) +
      " ret { key: 'y' value: 'id:output:0' } ret { key: 'all' value: 'sum:sum:0' } } }";
  Open(list + FloatConst("node", "a", 1) + FloatConst("node", "b", 2) +
       GraphNode("call", "Second", {"a", "b"}, Attr("N", "i: 2")) +
       GraphNode("all", "Identity", {"call:1"}, FloatT()));
  EXPECT_EQ(Value("call"), 2);
  EXPECT_EQ(Value("all"), 3);
}

// A body that adds one to the variable of its argument, and gives what its other argument is.
std::string Count(const std::string& more = "") {
  return "library { function { signature { name: 'Count' is_stateful: true"
         " input_arg { name: 'handle' type: DT_RESOURCE } input_arg { name: 'x' type: DT_FLOAT }"
         " output_arg { name: 'y' type: DT_FLOAT } control_output: 'count' }" +
         FloatConst("node_def", "one", 1) +
         BodyNode("add", "AssignAddVariableOp", {"handle", "one:output:0"},
                  Attr("dtype", "type: DT_FLOAT")) +
         BodyNode("same", "Identity", {"x"}, FloatT()) +
         " ret { key: 'y' value: 'same:output:0' } control_ret { key: 'count' value: 'add' }" +
         more + " } }\n";
}
std::string Counter() {
  return GraphNode("v", "VarHandleOp", {},
                   Attr("dtype", "type: DT_FLOAT") + Attr("shape", "shape {}") +
                       Attr("shared_name", "s: 'v'")) +
         FloatConst("node", "zero", 0) + FloatConst("node", "c", 8) +
         GraphNode("init", "AssignVariableOp", {"v", "zero"}, Attr("dtype", "type: DT_FLOAT")) +
         GraphNode("read", "ReadVariableOp", {"v"}, Attr("dtype", "type: DT_FLOAT"));
}
std::string CallOfCount() {
  return GraphNode("call", "StatefulPartitionedCall", {"v", "c"},
                   Attr("Tin", "list { type: DT_RESOURCE type: DT_FLOAT }") +
                       Attr("Tout", "list { type: DT_FLOAT }") + Func("f", "Count")) +
         GraphNode("after", "Neg", {"call"}, FloatT()) + GraphNode("waits", "NoOp", {"^call"}) +
         GraphNode("read_after", "ReadVariableOp", {"v", "^call"}, Attr("dtype", "type: DT_FLOAT"));
}

class EffectsTest : public FunctionsTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::string Function() const { return Count(GetParam() ? "" : kNoInline); }
};

TEST_P(EffectsTest, WhoeverUsesAnOutputOrWaitsForTheCallRunsWhatHasEffects) {
  Open(Function() + Counter() + CallOfCount());
  ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("init")}).ok());
  EXPECT_EQ(Value("call"), 8);
  EXPECT_EQ(Value("read"), 1);
  EXPECT_EQ(Value("after"), -8);
  EXPECT_EQ(Value("read"), 2);
  ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("waits")}).ok());
  EXPECT_EQ(Value("read"), 3);
  ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("call")}).ok());
  EXPECT_EQ(Value("read_after"), 5);
}

TEST_P(EffectsTest, ACallWaitsForItsControlInputs) {
  const std::string call =
      GraphNode("call", "StatefulPartitionedCall", {"v", "c", "^init"},
                Attr("Tin", "list { type: DT_RESOURCE type: DT_FLOAT }") +
                    Attr("Tout", "list { type: DT_FLOAT }") + Func("f", "Count")) +
      GraphNode("read_after", "ReadVariableOp", {"v", "^call"}, Attr("dtype", "type: DT_FLOAT"));
  Open(Function() + Counter() + call);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Value("read_after"), 1);
}

INSTANTIATE_TEST_SUITE_P(InlinedOrNot, EffectsTest, ::testing::Bool());

class ControlFlowTest : public FunctionsTest, public ::testing::WithParamInterface<bool> {
 protected:
  static std::string Lower() {
    return Attr("_lower_using_switch_merge", GetParam() ? "b: true" : "b: false");
  }
  static std::string Bool(const std::string& name) {
    return GraphNode(name, "Placeholder", {}, Attr("dtype", "type: DT_BOOL"));
  }
  static std::string If(const std::string& op = "If") {
    return Bool("p") + FloatConst("node", "c", 3) +
           GraphNode("if", op, {"p", "c"},
                     FloatLists(1, 1) + Attr("Tcond", "type: DT_BOOL") +
                         Func("then_branch", "Twice") + Func("else_branch", "TimesTen") + Lower()) +
           GraphNode("after", "Neg", {"if"}, FloatT());
  }
  Feed P(bool value) { return {Find("p"), Tensor::Scalar<bool>(value)}; }
};

TEST_P(ControlFlowTest, IfRunsTheBranchThatIsChosen) {
  for (const char* op : {"If", "StatelessIf"}) {
    graph_ = Graph();
    Open(Twice() + TimesTen() + If(op));
    EXPECT_EQ(Value("if", {P(true)}), 6);
    EXPECT_EQ(Value("if", {P(false)}), 30);
    EXPECT_EQ(Value("after", {P(true)}), -6);
  }
}

TEST_P(ControlFlowTest, OnlyTheBranchThatIsTakenHasEffects) {
  const std::string lists = Attr("Tin", "list { type: DT_RESOURCE type: DT_FLOAT }") +
                            Attr("Tout", "list { type: DT_FLOAT }");
  const std::string pass =
      "library { function { signature { name: 'Pass' input_arg { name: 'h' type: DT_RESOURCE }"
      " input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'y' type: DT_FLOAT } }"
      " ret { key: 'y' value: 'x' } } }\n";
  Open(Count() + pass + Counter() + Bool("p") +
       GraphNode("if", "If", {"p", "v", "c"},
                 lists + Attr("Tcond", "type: DT_BOOL") + Func("then_branch", "Count") +
                     Func("else_branch", "Pass") + Lower()) +
       GraphNode("waits", "NoOp", {"^if"}));
  ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("init")}).ok());
  EXPECT_EQ(Value("if", {P(true)}), 8);
  EXPECT_EQ(Value("read"), 1);
  EXPECT_EQ(Value("if", {P(false)}), 8);
  EXPECT_EQ(Value("read"), 1);
  ASSERT_TRUE(Run({P(true)}, {}, {graph_.FindOperation("waits")}).ok());
  EXPECT_EQ(Value("read"), 2);
}

TEST_P(ControlFlowTest, CaseTakesTheBranchOfTheNumberAndElseTheLast) {
  Open(Twice() + TimesTen() + FloatConst("node", "c", 3) +
       GraphNode("i", "Placeholder", {}, Attr("dtype", "type: DT_INT32")) +
       GraphNode("case", "Case", {"i", "c"},
                 FloatLists(1, 1) + Lower() +
                     Attr("branches",
                          "list { func { name: 'Twice' } func { name: 'TimesTen' } func { name:"
                          " 'Twice' } }")));
  const std::vector<std::pair<int, float>> expected = {{0, 6}, {1, 30}, {2, 6}, {7, 6}, {-1, 6}};
  for (const auto& [number, value] : expected) {
    EXPECT_EQ(Value("case", {{Find("i"), Tensor::Scalar<int32_t>(number)}}), value) << number;
  }
}

std::string LoopFunctions() {
  const std::string below =
      "library { function { signature { name: 'Below' input_arg { name: 'i' type: DT_FLOAT }"
      " input_arg { name: 's' type: DT_FLOAT } input_arg { name: 'n' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      BodyNode("less", "Less", {"i", "n"}, FloatT()) + " ret { key: 'y' value: 'less:z:0' } } }\n";
  return below + FunctionText("Step", {"i", "s", "n"},
                              {{"a", "next:z:0"}, {"b", "sum:z:0"}, {"c", "n"}},
                              FloatConst("node_def", "one", 1) +
                                  BodyNode("next", "AddV2", {"i", "one:output:0"}, FloatT()) +
                                  BodyNode("sum", "AddV2", {"s", "i"}, FloatT()));
}

TEST_P(ControlFlowTest, WhileGoesOnUntilItsConditionIsFalse) {
  for (const char* op : {"While", "StatelessWhile"}) {
    graph_ = Graph();
    Open(LoopFunctions() + FloatConst("node", "zero", 0) +
         GraphNode("n", "Placeholder", {}, Attr("dtype", "type: DT_FLOAT")) +
         GraphNode("loop", op, {"zero", "zero", "n"},
                   Attr("T", "list { type: DT_FLOAT type: DT_FLOAT type: DT_FLOAT }") +
                       Func("cond", "Below") + Func("body", "Step") + Lower()) +
         GraphNode("sum", "Identity", {"loop:1"}, FloatT()) +
         GraphNode("n_again", "Identity", {"loop:2"}, FloatT()));
    EXPECT_EQ(Value("sum", {{Find("n"), Tensor::Scalar<float>(5)}}), 10);
    EXPECT_EQ(Value("sum", {{Find("n"), Tensor::Scalar<float>(0)}}), 0);
    EXPECT_EQ(Value("n_again", {{Find("n"), Tensor::Scalar<float>(3)}}), 3);
    EXPECT_EQ(Value("sum", {{Find("n"), Tensor::Scalar<float>(1000)}}), 499500);
  }
}

TEST_P(ControlFlowTest, WhatFailsInALoopSaysWhere) {
  const std::string always =
      "library { function { signature { name: 'Always' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      BodyNode("t", "Equal", {"x", "x"}, FloatT()) + " ret { key: 'y' value: 't:z:0' } } }\n";
  const std::string fails = FunctionText(
      "Fails", {"x"}, {{"y", "bad:output:0"}},
      BodyNode("bad", "CheckNumerics", {"inf:y:0"}, FloatT() + Attr("message", "s: 'no number'")) +
          BodyNode("inf", "Reciprocal", {"x"}, FloatT()));
  Open(always + fails + FloatConst("node", "c", 0) +
       GraphNode("loop", "While", {"c"},
                 Attr("T", "list { type: DT_FLOAT }") + Func("cond", "Always") +
                     Func("body", "Fails") + Lower()));
  EXPECT_THAT(Error("loop"), HasSubstr("no number"));
  EXPECT_THAT(Error("loop"), HasSubstr("bad"));
}

INSTANTIATE_TEST_SUITE_P(LoweredOrNot, ControlFlowTest, ::testing::Bool());

TEST_F(FunctionsTest, ForCallsItsBodyWithEachNumber) {
  const std::string body =
      "library { function { signature { name: 'Horner' input_arg { name: 'i' type: DT_INT32 }"
      " input_arg { name: 's' type: DT_FLOAT } output_arg { name: 'y' type: DT_FLOAT } }" +
      FloatConst("node_def", "ten", 10) +
      BodyNode("x", "Cast", {"i"},
               Attr("SrcT", "type: DT_INT32") + Attr("DstT", "type: DT_FLOAT")) +
      BodyNode("p", "Mul", {"s", "ten:output:0"}, FloatT()) +
      BodyNode("sum", "AddV2", {"p:z:0", "x:y:0"}, FloatT()) +
      " ret { key: 'y' value: 'sum:z:0' } } }\n";
  const auto loop = [](const std::string& name, const std::string& function) {
    return GraphNode(name, "For", {"from", "to", "by", "c"},
                     Attr("T", "list { type: DT_FLOAT }") + Func("body", function));
  };
  const auto number = [](const std::string& name) {
    return GraphNode(name, "Placeholder", {}, Attr("dtype", "type: DT_INT32"));
  };
  Open(body + Twice() + number("from") + number("to") + number("by") + FloatConst("node", "c", 7) +
       loop("for", "Horner") + loop("no_number", "Twice"));
  const auto feeds = [&](int from, int to, int by) {
    return std::vector<Feed>{{Find("from"), Tensor::Scalar<int32_t>(from)},
                             {Find("to"), Tensor::Scalar<int32_t>(to)},
                             {Find("by"), Tensor::Scalar<int32_t>(by)}};
  };
  EXPECT_EQ(Value("for", feeds(1, 4, 1)), 7123);
  EXPECT_EQ(Value("for", feeds(5, 0, -2)), 7531);
  EXPECT_EQ(Value("for", feeds(3, 3, 1)), 7);
  const auto error = [&](const std::string& name, std::vector<Feed> with) {
    const Status status = Run(std::move(with), {Find(name)}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error("for", feeds(0, 10, -1)), HasSubstr("Invalid start/limit/delta: 0 10 -1"));
  EXPECT_THAT(error("for", feeds(0, 1, 0)), HasSubstr("Invalid start/limit/delta"));
  EXPECT_THAT(error("no_number", feeds(0, 1, 1)), HasSubstr("does not"));
  std::vector<Feed> vector = feeds(1, 3, 1);
  vector[0] = {Find("from"), Tensor::FromValues<int32_t>({1})};
  EXPECT_THAT(error("for", vector), HasSubstr("start must be a scalar, but [1]"));
}

TEST_F(FunctionsTest, TheGradientOfAFunctionIsAFunction) {
  Open(FunctionText("Cube", {"x"}, {{"y", "b:z:0"}},
                    BodyNode("a", "Mul", {"x", "x"}, FloatT()) +
                        BodyNode("b", "Mul", {"a:z:0", "x"}, FloatT())) +
       FloatConst("node", "c", 2) + FloatConst("node", "dy", 1) +
       GraphNode("g", "SymbolicGradient", {"c", "dy"}, FloatLists(2, 1) + Func("f", "Cube")));
  EXPECT_EQ(Value("g"), 12);
}

TEST_F(FunctionsTest, AGradientThatTheLibraryNamesIsTaken) {
  Open(Twice() +
       FunctionText("Other", {"x", "dy"}, {{"dx", "p:z:0"}},
                    BodyNode("p", "Mul", {"x", "dy"}, FloatT())) +
       "library { gradient { function_name: 'Twice' gradient_func: 'Other' } }\n" +
       FloatConst("node", "c", 5) + FloatConst("node", "dy", 3) +
       GraphNode("g", "SymbolicGradient", {"c", "dy"}, FloatLists(2, 1) + Func("f", "Twice")));
  EXPECT_EQ(Value("g"), 15);
}

// Gradients() of what a graph brought along, both ways.
class FunctionGradientTest : public FunctionsTest, public ::testing::WithParamInterface<bool> {
 protected:
  static std::string Cube() {
    return FunctionText(
        "Cube", {"x"}, {{"y", "b:z:0"}},
        BodyNode("a", "Mul", {"x", "x"}, FloatT()) + BodyNode("b", "Mul", {"a:z:0", "x"}, FloatT()),
        GetParam() ? "" : kNoInline);
  }
  static std::string Input(const std::string& name, const std::string& type = "DT_FLOAT") {
    return GraphNode(name, "Placeholder", {}, Attr("dtype", "type: " + type));
  }
  Output Slope(const std::string& y, const std::string& x) {
    const Output ys[] = {Find(y)}, xs[] = {Find(x)};
    const auto dxs = Gradients(graph_.root(), ys, xs);
    EXPECT_TRUE(dxs.ok()) << dxs.status();
    return dxs.ok() ? (*dxs)[0] : Output();
  }
  float ValueOf(const Output& fetch, std::vector<Feed> feeds) {
    if (!fetch.valid()) return -12345.0f;
    const auto values = Run(std::move(feeds), {fetch});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? (*values)[0].scalar<float>() : -12345.0f;
  }
  Feed X(float value) { return {Find("x"), Tensor::Scalar<float>(value)}; }
};

TEST_P(FunctionGradientTest, GoesThroughCallsOfEveryKind) {
  Open(Cube() + Input("x") + GraphNode("by_name", "Cube", {"x"}) +
       GraphNode("call", "PartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", "Cube")) +
       GraphNode("stateful", "StatefulPartitionedCall", {"x"},
                 FloatLists(1, 1) + Func("f", "Cube")));
  for (const char* y : {"by_name", "call", "stateful"}) {
    SCOPED_TRACE(y);
    const Output dx = Slope(y, "x");
    EXPECT_EQ(ValueOf(dx, {X(2)}), 12);
    const Output ys[] = {dx}, xs[] = {Find("x")};
    const auto second = Gradients(graph_.root(), ys, xs);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(ValueOf((*second)[0], {X(2)}), 12);
  }
}

TEST_P(FunctionGradientTest, GoesThroughTheBranchThatIsTaken) {
  Open(Cube() + TimesTen() + Input("x") + Input("p", "DT_BOOL") + Input("i", "DT_INT32") +
       GraphNode("if", "If", {"p", "x"},
                 FloatLists(1, 1) + Attr("Tcond", "type: DT_BOOL") + Func("then_branch", "Cube") +
                     Func("else_branch", "TimesTen")) +
       GraphNode("case", "StatelessCase", {"i", "x"},
                 FloatLists(1, 1) +
                     Attr("branches", "list { func { name: 'TimesTen' } func { name: 'Cube' } }")));
  const Output of_if = Slope("if", "x"), of_case = Slope("case", "x");
  const auto p = [&](bool value) { return Feed{Find("p"), Tensor::Scalar<bool>(value)}; };
  const auto i = [&](int value) { return Feed{Find("i"), Tensor::Scalar<int32_t>(value)}; };
  EXPECT_EQ(ValueOf(of_if, {X(2), p(true)}), 12);
  EXPECT_EQ(ValueOf(of_if, {X(2), p(false)}), 10);
  EXPECT_EQ(ValueOf(of_case, {X(3), i(0)}), 10);
  EXPECT_EQ(ValueOf(of_case, {X(3), i(1)}), 27);
  EXPECT_EQ(ValueOf(of_case, {X(3), i(9)}), 27);
}

TEST_P(FunctionGradientTest, GoesThroughLoopsOfFunctions) {
  // s = sum of i * x for i below n, that is x * n (n - 1) / 2.
  const std::string step = FunctionText(
      "StepX", {"i", "s", "n", "x"}, {{"a", "next:z:0"}, {"b", "sum:z:0"}, {"c", "n"}, {"d", "x"}},
      FloatConst("node_def", "one", 1) +
          BodyNode("next", "AddV2", {"i", "one:output:0"}, FloatT()) +
          BodyNode("term", "Mul", {"i", "x"}, FloatT()) +
          BodyNode("sum", "AddV2", {"s", "term:z:0"}, FloatT()));
  const std::string below =
      "library { function { signature { name: 'BelowX' input_arg { name: 'i' type: DT_FLOAT }"
      " input_arg { name: 's' type: DT_FLOAT } input_arg { name: 'n' type: DT_FLOAT }"
      " input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'y' type: DT_BOOL } }" +
      BodyNode("less", "Less", {"i", "n"}, FloatT()) + " ret { key: 'y' value: 'less:z:0' } } }\n";
  Open(step + below + Input("x") + Input("n") + FloatConst("node", "zero", 0) +
       GraphNode("loop", "While", {"zero", "zero", "n", "x"},
                 Attr("T", "list { type: DT_FLOAT type: DT_FLOAT type: DT_FLOAT type: DT_FLOAT }") +
                     Func("cond", "BelowX") + Func("body", "StepX") +
                     Attr("_lower_using_switch_merge", GetParam() ? "b: true" : "b: false")) +
       GraphNode("sum", "Identity", {"loop:1"}, FloatT()));
  const Output dx = Slope("sum", "x");
  const auto n = [&](float value) { return Feed{Find("n"), Tensor::Scalar<float>(value)}; };
  EXPECT_EQ(ValueOf(dx, {X(2), n(5)}), 10);
  EXPECT_EQ(ValueOf(dx, {X(2), n(0)}), 0);
}

TEST_P(FunctionGradientTest, GoesThroughBranchesWithinFunctions) {
  const std::string inner =
      FunctionText("Inner", {"x"}, {{"y", "if:output:0"}},
                   FloatConst("node_def", "one", 1) +
                       BodyNode("small", "Less", {"x", "one:output:0"}, FloatT()) +
                       BodyNode("if", "StatelessIf", {"small:z:0", "x"},
                                FloatLists(1, 1) + Attr("Tcond", "type: DT_BOOL") +
                                    Func("then_branch", "TimesTen") + Func("else_branch", "Cube")),
                   GetParam() ? "" : kNoInline);
  Open(Cube() + TimesTen() + inner + Input("x") + GraphNode("by_name", "Inner", {"x"}) +
       GraphNode("call", "PartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", "Inner")));
  for (const char* y : {"by_name", "call"}) {
    const Output dx = Slope(y, "x");
    EXPECT_EQ(ValueOf(dx, {X(0.5)}), 10) << y;
    EXPECT_EQ(ValueOf(dx, {X(2)}), 12) << y;
  }
}

TEST_P(FunctionGradientTest, ReachesVariablesThatTheFunctionReads) {
  const std::string weigh =
      "library { function { signature { name: 'Weigh' is_stateful: true"
      " input_arg { name: 'h' type: DT_RESOURCE } input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_FLOAT } }" +
      BodyNode("w", "ReadVariableOp", {"h"}, Attr("dtype", "type: DT_FLOAT")) +
      BodyNode("product", "Mul", {"w:value:0", "x"}, FloatT()) +
      " ret { key: 'y' value: 'product:z:0' }" + std::string(GetParam() ? "" : kNoInline) +
      " } }\n";
  Open(weigh + Counter() + Input("x") +
       GraphNode("call", "StatefulPartitionedCall", {"v", "x"},
                 Attr("Tin", "list { type: DT_RESOURCE type: DT_FLOAT }") +
                     Attr("Tout", "list { type: DT_FLOAT }") + Func("f", "Weigh")));
  ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("init")}).ok());
  EXPECT_EQ(ValueOf(Slope("call", "v"), {X(7)}), 7);
  EXPECT_EQ(ValueOf(Slope("call", "x"), {X(7)}), 0);  // the variable is 0
}

TEST_P(FunctionGradientTest, IsRefusedWhereASecondRunWouldGiveSomethingElse) {
  Open(FunctionText("Noise", {"x"}, {{"y", "product:z:0"}},
                    "node_def { name: 'shape' op: 'Const' attr { key: 'dtype' value { type: "
                    "DT_INT32 } } attr { key: 'value' value { tensor { dtype: DT_INT32 "
                    "tensor_shape { dim { size: 0 } } } } } }" +
                        BodyNode("noise", "RandomUniform", {"shape:output:0"},
                                 Attr("dtype", "type: DT_FLOAT") + Attr("T", "type: DT_INT32")) +
                        BodyNode("product", "Mul", {"x", "noise:output:0"}, FloatT()),
                    GetParam() ? "" : kNoInline) +
       Input("x") +
       GraphNode("call", "StatefulPartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", "Noise")));
  const Output ys[] = {Find("call")}, xs[] = {Find("x")};
  const Status refused = Gradients(graph_.root(), ys, xs).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("{{node noise}} (op: RandomUniform)"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Noise"));
}

TEST_P(FunctionGradientTest, IsRefusedForAVariableThatIsReadForAResultAndWritten) {
  const auto function = [&](const std::string& name, const std::string& product) {
    return StrCat(
        "library { function { signature { name: '", name,
        "' is_stateful: true input_arg { name: 'h' type: DT_RESOURCE }"
        " input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'y' type: DT_FLOAT } }",
        BodyNode("w", "ReadVariableOp", {"h"}, Attr("dtype", "type: DT_FLOAT")),
        BodyNode("half", "Mul", {"w:value:0", "x"}, FloatT()),
        BodyNode("set", "AssignVariableOp", {"h", "half:z:0"}, Attr("dtype", "type: DT_FLOAT")),
        BodyNode("y", "Mul", {product, "x"}, FloatT()), " ret { key: 'y' value: 'y:z:0' }",
        GetParam() ? "" : kNoInline, " } }\n");
  };
  const auto call = [](const std::string& name) {
    return GraphNode(name, "StatefulPartitionedCall", {"v", "x"},
                     Attr("Tin", "list { type: DT_RESOURCE type: DT_FLOAT }") +
                         Attr("Tout", "list { type: DT_FLOAT }") + Func("f", name + "F"));
  };
  Open(function("usesF", "half:z:0") + function("keepsF", "x") + Counter() + Input("x") +
       call("uses") + call("keeps"));
  const Output uses[] = {Find("uses")}, keeps[] = {Find("keeps")}, xs[] = {Find("x")};
  const Status refused = Gradients(graph_.root(), uses, xs).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("{{node w}} in function usesF reads"));
  // A moving average does not lead to the result.
  const Status fine = Gradients(graph_.root(), keeps, xs).status();
  EXPECT_TRUE(fine.ok()) << fine;
}

INSTANTIATE_TEST_SUITE_P(InlinedOrNot, FunctionGradientTest, ::testing::Bool());

// fact(x) = x < 1 ? 1 : x * fact(x - 1)
TEST_F(FunctionsTest, AFunctionMayCallItselfAsLongAsItEnds) {
  const std::string one =
      FunctionText("One", {"x"}, {{"y", "one:output:0"}}, FloatConst("node_def", "one", 1));
  const std::string more = FunctionText(
      "More", {"x"}, {{"y", "product:z:0"}},
      FloatConst("node_def", "one", 1) + BodyNode("less", "Sub", {"x", "one:output:0"}, FloatT()) +
          BodyNode("rest", "Fact", {"less:z:0"}) +
          BodyNode("product", "Mul", {"x", "rest:y:0"}, FloatT()));
  const std::string fact =
      FunctionText("Fact", {"x"}, {{"y", "if:output:0"}},
                   FloatConst("node_def", "one", 1) +
                       BodyNode("small", "Less", {"x", "one:output:0"}, FloatT()) +
                       BodyNode("if", "If", {"small:z:0", "x"},
                                FloatLists(1, 1) + Attr("Tcond", "type: DT_BOOL") +
                                    Func("then_branch", "One") + Func("else_branch", "More")));
  Open(one + more + fact + GraphNode("n", "Placeholder", {}, Attr("dtype", "type: DT_FLOAT")) +
       GraphNode("call", "Fact", {"n"}));
  EXPECT_EQ(Value("call", {{Find("n"), Tensor::Scalar<float>(5)}}), 120);
  EXPECT_EQ(Value("call", {{Find("n"), Tensor::Scalar<float>(10)}}), 3628800);
}

TEST_F(FunctionsTest, AFunctionThatNeverStopsCallingItselfEndsInAnError) {
  Open(FunctionText("Again", {"x"}, {{"y", "call:y:0"}}, BodyNode("call", "Again", {"x"})) +
       FloatConst("node", "c", 1) + GraphNode("call", "Again", {"c"}));
  EXPECT_THAT(Error("call"), HasSubstr("functions call each other more than"));
}

TEST_F(FunctionsTest, CallsThatWouldFillTheMemoryAreNotInlined) {
  // 2^30 nodes, if every call were.
  std::string text = FunctionText("F0", {"x"}, {{"y", "id:output:0"}},
                                  BodyNode("id", "Identity", {"x"}, FloatT()));
  for (int i = 1; i <= 30; ++i) {
    const std::string callee = StrCat("F", i - 1);
    text += FunctionText(StrCat("F", i), {"x"}, {{"y", "b:y:0"}},
                         BodyNode("a", callee, {"x"}) + BodyNode("b", callee, {"x"}));
  }
  Open(text + FloatConst("node", "c", 1) + GraphNode("call", "F30", {"c"}));
  EXPECT_EQ(Value("c"), 1);  // the session works; the call itself would take long
}

TEST_F(FunctionsTest, WhatIsWrongWithAFunctionIsSaidWhenItIsCalled) {
  Open(FunctionText("Bad", {"x"}, {{"y", "sum:z:0"}},
                    BodyNode("sum", "AddV2", {"x", "missing:y:0"}, FloatT())) +
       FloatConst("node", "c", 1) + GraphNode("call", "Bad", {"c"}) +
       GraphNode("unknown", "PartitionedCall", {"c"}, FloatLists(1, 1) + Func("f", "Nowhere")) +
       GraphNode("two", "PartitionedCall", {"c", "c"}, FloatLists(2, 1) + Func("f", "Bad")));
  EXPECT_EQ(Value("c"), 1);
  EXPECT_THAT(Error("call"), HasSubstr("input missing:y:0 is not found"));
  EXPECT_THAT(Error("call"), HasSubstr("Bad"));
  EXPECT_THAT(Error("unknown"), HasSubstr("Function Nowhere is not defined"));
}

TEST_F(FunctionsTest, ExtensionsBringFunctionsAndCallOldOnes) {
  Open(Twice() + FloatConst("node", "c", 2) + GraphNode("call", "Twice", {"c"}));
  EXPECT_EQ(Value("call"), 4);
  pb::GraphDef def;
  ASSERT_TRUE(ParseGraph(
      TimesTen() + GraphNode("again", "Twice", {"call"}) + GraphNode("ten", "TimesTen", {"call"}),
      &def));
  // Names of nodes that are there already are inputs of what is added.
  def.mutable_node(0)->set_input(0, "call");
  const Status imported = graph_.ImportGraphDef(def.SerializeAsString());
  ASSERT_TRUE(imported.ok()) << imported;
  EXPECT_EQ(Value("again"), 8);
  EXPECT_EQ(Value("ten"), 40);
}

TEST_F(FunctionsTest, NodesOfABodyKeepTheDevicesThatTheyAskFor) {
  SessionOptions options;
  options.num_cpu_devices = 2;
  const std::string there =
      FunctionText("There", {"x"}, {{"y", "sum:z:0"}},
                   BodyNode("sum", "AddV2", {"x", "x"}, FloatT(), "/device:CPU:1"));
  Open(
      there +
          FunctionText("There2", {"x"}, {{"y", "sum:z:0"}},
                       BodyNode("sum", "AddV2", {"x", "x"}, FloatT(), "/device:CPU:1"), kNoInline) +
          FloatConst("node", "c", 2) +
          GraphNode("call", "PartitionedCall", {"c"}, FloatLists(1, 1) + Func("f", "There"),
                    "/device:CPU:0") +
          GraphNode("run", "PartitionedCall", {"c"}, FloatLists(1, 1) + Func("f", "There2"),
                    "/device:CPU:0"),
      options);
  EXPECT_EQ(Value("call"), 4);
  EXPECT_EQ(Value("run"), 4);
  RunMetadata metadata;
  const Output call = Find("call");
  ASSERT_TRUE(
      session_->Run({}, std::span(&call, 1), {}, {.partition_graphs = true}, &metadata).ok());
  bool found = false;
  for (const std::string& bytes : metadata.partition_graphs) {
    pb::GraphDef part;
    ASSERT_TRUE(part.ParseFromString(bytes));
    for (const pb::NodeDef& node : part.node()) {
      if (node.op() != "AddV2") continue;
      found = true;
      EXPECT_THAT(node.device(), HasSubstr("CPU:1"));
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace millrace
