// SPDX-License-Identifier: Apache-2.0
// Functions made to do harm, or made wrongly: each ends in an error that names the function and
// the node, soon and within bounded memory, and the session goes on. And what functions share
// with everything else that runs: deadlines, threads, state, tasks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const char kNoInline[] = " attr { key: '_noinline' value { b: true } }";

class HostileFunctionsTest : public ::testing::Test {
 protected:
  void Open(const std::string& text, SessionOptions options = {}) {
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(FloatConst("node", "c", 2) + text, &def)) << text;
    Open(def, options);
  }
  void Open(const pb::GraphDef& def, SessionOptions options = {}) {
    graph_ = Graph();
    const Status imported = graph_.ImportGraphDef(def.SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported;
    StatusOr<Session> session = Session::Create(graph_, options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
  }
  StatusOr<Tensor> Fetch(const std::string& name, RunOptions options = {}) {
    const Output fetch = graph_.FindOperation(name).output(0);
    StatusOr<std::vector<Tensor>> values = session_->Run({}, {&fetch, 1}, {}, options);
    if (!values.ok()) return values.status();
    return std::move((*values)[0]);
  }
  // The error of fetching `name`; everything else still works afterwards.
  std::string Error(const std::string& name) {
    const StatusOr<Tensor> value = Fetch(name, {.timeout = std::chrono::seconds(30)});
    EXPECT_FALSE(value.ok()) << name;
    EXPECT_NE(value.status().code(), StatusCode::kDeadlineExceeded) << value.status();
    const StatusOr<Tensor> healthy = Fetch("c");
    EXPECT_TRUE(healthy.ok()) << healthy.status();
    return std::string(value.status().message());
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
};

std::string Call(const std::string& name, const std::string& function) {
  return GraphNode(name, "PartitionedCall", {"c"}, FloatLists(1, 1) + Func("f", function));
}
std::string CallInBody(const std::string& name, const std::string& function) {
  return BodyNode(name, "PartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", function));
}
// A function of x that gives what `node` does.
std::string Of(const std::string& function, const std::string& node, const std::string& result,
               const std::string& more = "") {
  return FunctionText(function, {"x"}, {{"y", result}}, node, more);
}

TEST_F(HostileFunctionsTest, FunctionsThatCallEachOtherWithoutEnd) {
  const std::string always = BodyNode("always", "Equal", {"x", "x"}, FloatT());
  const std::string branch = Attr("Tcond", "type: DT_BOOL") + FloatLists(1, 1);
  const std::string loop = Attr("T", "list { type: DT_FLOAT }");
  const std::string true_of =
      "library { function { signature { name: 'True' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      always + " ret { key: 'y' value: 'always:z:0' } } }\n";
  Open(true_of + Of("Ping", CallInBody("to_pong", "Pong"), "to_pong:output:0") +
       Of("Pong", CallInBody("to_ping", "Ping"), "to_ping:output:0") +
       Of("Ping2", BodyNode("to_pong", "Pong2", {"x"}), "to_pong:y:0", kNoInline) +
       Of("Pong2", BodyNode("to_ping", "Ping2", {"x"}), "to_ping:y:0", kNoInline) +
       Of("Branch",
          always + BodyNode("if", "If", {"always:z:0", "x"},
                            branch + Func("then_branch", "Branch") + Func("else_branch", "Branch")),
          "if:output:0") +
       Of("Loop",
          BodyNode("while", "While", {"x"}, loop + Func("cond", "True") + Func("body", "Loop")),
          "while:output:0") +
       Call("ping", "Ping") + Call("ping2", "Ping2") + Call("branch", "Branch") +
       Call("loop", "Loop"));
  for (const char* call : {"ping", "ping2", "branch", "loop"}) {
    SCOPED_TRACE(call);
    EXPECT_THAT(Error(call), HasSubstr("functions call each other more than"));
  }
  EXPECT_THAT(Error("ping"), AnyOf(HasSubstr("Ping"), HasSubstr("Pong")));
}

TEST_F(HostileFunctionsTest, AFunctionThatIsItsOwnGradient) {
  const std::string gradient = FloatLists(2, 1) + Func("f", "Self");
  Open(Of("Self", BodyNode("g", "SymbolicGradient", {"x", "x"}, gradient), "g:output:0") +
       GraphNode("call", "SymbolicGradient", {"c", "c"}, gradient));
  EXPECT_THAT(Error("call"),
              AllOf(HasSubstr("gradient of function Self"), HasSubstr("call of itself")));
}

TEST_F(HostileFunctionsTest, AFunctionWhoseAttributesGrowWithEveryCall) {
  // F[a] calls F[G[b = a, c = a]]: twice as large each time.
  const std::string grow =
      "func { name: 'F' attr { key: 'a' value { func { name: 'G'"
      " attr { key: 'b' value { placeholder: 'a' } }"
      " attr { key: 'c' value { placeholder: 'a' } } } } } }";
  const std::string f =
      "library { function { signature { name: 'F' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_FLOAT } attr { name: 'a' type: 'func' } }" +
      BodyNode("again", "PartitionedCall", {"x"}, FloatLists(1, 1) + Attr("f", grow)) +
      " ret { key: 'y' value: 'again:output:0' } } }\n";
  Open(f + Of("G", BodyNode("id", "Identity", {"x"}, FloatT()), "id:output:0") +
       GraphNode(
           "call", "PartitionedCall", {"c"},
           FloatLists(1, 1) +
               Attr("f", "func { name: 'F' attr { key: 'a' value { func { name: 'G' } } } }")));
  EXPECT_THAT(Error("call"), AllOf(HasSubstr("again"), HasSubstr("attributes"), HasSubstr("F")));
}

TEST_F(HostileFunctionsTest, CallsThatDoNotFitTheirFunctions) {
  const std::string id = Of("Id", BodyNode("id", "Identity", {"x"}, FloatT()), "id:output:0");
  const std::string ints = Attr("Tin", "list { type: DT_INT32 }");
  const std::string int_const =
      NodeText("node", "i", "Const", {},
               Attr("dtype", "type: DT_INT32") +
                   Attr("value", "tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 }"));
  Open(id + int_const +
       GraphNode("two", "PartitionedCall", {"c", "c"}, FloatLists(2, 1) + Func("f", "Id")) +
       GraphNode("none", "PartitionedCall", {}, FloatLists(0, 1) + Func("f", "Id")) +
       GraphNode("results", "PartitionedCall", {"c"}, FloatLists(1, 3) + Func("f", "Id")) +
       GraphNode("type", "PartitionedCall", {"i"},
                 ints + Attr("Tout", "list { type: DT_FLOAT }") + Func("f", "Id")) +
       GraphNode("gives", "PartitionedCall", {"c"},
                 Attr("Tin", "list { type: DT_FLOAT }") + Attr("Tout", "list { type: DT_INT32 }") +
                     Func("f", "Id")) +
       GraphNode("gradient", "SymbolicGradient", {"c"}, FloatLists(1, 1) + Func("f", "Id")) +
       GraphNode("cond", "While", {"c"},
                 Attr("T", "list { type: DT_FLOAT }") + Func("cond", "Id") + Func("body", "Two")) +
       FunctionText("Two", {"x"}, {{"y", "x"}, {"z", "x"}}, "") +
       GraphNode("branch", "StatelessCase", {"i", "c"},
                 FloatLists(1, 1) + Attr("branches", "list { func { name: 'Two' } }")));
  for (const char* call : {"two", "none", "results", "type", "gives", "gradient"}) {
    EXPECT_THAT(Error(call), AllOf(HasSubstr("Id"), HasSubstr(StrCat("{{node ", call, "}}"))))
        << call;
  }
  for (const char* call : {"cond", "branch"}) {
    EXPECT_THAT(Error(call), AllOf(HasSubstr("Two"), HasSubstr(StrCat("{{node ", call, "}}"))))
        << call;
  }
}

TEST_F(HostileFunctionsTest, BodiesThatAreNotWhatTheySay) {
  const std::string id = BodyNode("id", "Identity", {"x"}, FloatT());
  struct {
    std::string body, result, more, node, phrase;
  } const cases[] = {
      {BodyNode("id", "Identity", {"gone:y:0"}, FloatT()), "id:output:0", "", "id", "gone"},
      {BodyNode("id", "Identity", {"x:5"}, FloatT()), "id:output:0", "", "id", "x:5"},
      {BodyNode("id", "Identity", {"x", "^gone"}, FloatT()), "id:output:0", "", "id", "gone"},
      {BodyNode("id", "Identity", {}, FloatT()), "id:output:0", "", "id", "takes 1"},
      {BodyNode("id", "Identity", {"x", "x"}, FloatT()), "id:output:0", "", "id", ""},
      {BodyNode("id", "Identity", {"x"}, Attr("T", "type: DT_INT32")), "id:output:0", "", "id", ""},
      {BodyNode("id", "Identity", {"x"}, Attr("T", "placeholder: 'U'")), "id:output:0", "", "id",
       "'U'"},
      {BodyNode("odd", "NoSuchOp", {"x"}), "odd:y:0", "", "", "NoSuchOp"},
      {id, "id:nothing:0", "", "", "nothing"},
      {id, "id:output:7", "", "", "id:output:7"},
      {id, "nowhere", "", "", "nowhere"},
      {id + id, "id:output:0", "", "id", ""},
      {BodyNode("x", "Identity", {"x"}, FloatT()), "x:output:0", "", "x", "argument"},
      {BodyNode("a", "Neg", {"b:y:0"}, FloatT()) + BodyNode("b", "Neg", {"a:y:0"}, FloatT()),
       "a:y:0", "", "a", "cycle"},
      {id, "id:output:0", " control_ret { key: 'e' value: 'gone' }", "", "gone"},
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const auto& wrong = cases[i];
    SCOPED_TRACE(StrCat("case ", i, ": ", wrong.body));
    Open(Of("Wrong", wrong.body, wrong.result, wrong.more) + Call("call", "Wrong"));
    EXPECT_THAT(Error("call"), AllOf(HasSubstr("Wrong"), HasSubstr("{{node call}}"),
                                     HasSubstr(wrong.node), HasSubstr(wrong.phrase)));
  }
}

TEST_F(HostileFunctionsTest, TheGradientOfWhatHasNone) {
  Open(Of("Lost", BodyNode("after", "NextAfter", {"x", "x"}, FloatT()), "after:output:0") +
       GraphNode("gradient", "SymbolicGradient", {"c", "c"}, FloatLists(2, 1) + Func("f", "Lost")));
  EXPECT_THAT(Error("gradient"),
              AllOf(HasSubstr("Lost"), HasSubstr("after"), HasSubstr("has no gradient"),
                    HasSubstr("{{node gradient}}")));
}

// 2^40 calls, or as many iterations as there are: the deadline ends them, wherever they are.
TEST_F(HostileFunctionsTest, ADeadlineEndsWhatWouldRunForEver) {
  std::string text = Of("F0", BodyNode("id", "Identity", {"x"}, FloatT()), "id:output:0");
  for (int i = 1; i <= 40; ++i) {
    const std::string callee = StrCat("F", i - 1);
    text += Of(StrCat("F", i), BodyNode("a", callee, {"x"}) + BodyNode("b", callee, {"a:y:0"}),
               "b:y:0");
  }
  const std::string always =
      "library { function { signature { name: 'True' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      BodyNode("always", "Equal", {"x", "x"}, FloatT()) +
      " ret { key: 'y' value: 'always:z:0' } } }\n";
  const std::string loop =
      Attr("T", "list { type: DT_FLOAT }") + Func("cond", "True") + Func("body", "F0");
  text += always + GraphNode("tree", "F40", {"c"}) +
          GraphNode("loop", "While", {"c"}, loop + Attr("_lower_using_switch_merge", "b: false")) +
          GraphNode("lowered", "While", {"c"}, loop + Attr("_lower_using_switch_merge", "b: true"));
  for (const int threads : {-1, 2}) {
    SessionOptions options;
    options.inter_op_threads = threads;
    Open(text, options);
    for (const char* call : {"tree", "loop", "lowered"}) {
      SCOPED_TRACE(call);
      const auto value = Fetch(call, {.timeout = std::chrono::milliseconds(200)});
      EXPECT_EQ(value.status().code(), StatusCode::kDeadlineExceeded) << value.status();
      EXPECT_TRUE(Fetch("c").ok());
    }
  }
}

TEST_F(HostileFunctionsTest, StepsOfManyThreadsRunOneFunctionAndItsState) {
  // Adds one to the variable and gives x + x.
  const std::string count =
      "library { function { signature { name: 'Count' is_stateful: true"
      " input_arg { name: 'h' type: DT_RESOURCE } input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_FLOAT } control_output: 'e' }" +
      FloatConst("node_def", "one", 1) +
      BodyNode("add", "AssignAddVariableOp", {"h", "one:output:0"},
               Attr("dtype", "type: DT_FLOAT")) +
      BodyNode("sum", "AddV2", {"x", "x"}, FloatT()) +
      " ret { key: 'y' value: 'sum:z:0' } control_ret { key: 'e' value: 'add' }";
  const std::string lists = Attr("Tin", "list { type: DT_RESOURCE type: DT_FLOAT }") +
                            Attr("Tout", "list { type: DT_FLOAT }");
  for (const bool inlined : {true, false}) {
    SCOPED_TRACE(inlined);
    Open(count + (inlined ? "" : kNoInline) + " } }\n" +
         GraphNode("v", "VarHandleOp", {},
                   Attr("dtype", "type: DT_FLOAT") + Attr("shape", "shape {}") +
                       Attr("shared_name", "s: 'v'")) +
         FloatConst("node", "zero", 0) +
         GraphNode("init", "AssignVariableOp", {"v", "zero"}, Attr("dtype", "type: DT_FLOAT")) +
         GraphNode("read", "ReadVariableOp", {"v"}, Attr("dtype", "type: DT_FLOAT")) +
         GraphNode("call", "StatefulPartitionedCall", {"v", "c"}, lists + Func("f", "Count")) +
         GraphNode("again", "StatefulPartitionedCall", {"v", "call"}, lists + Func("f", "Count")));
    ASSERT_TRUE(session_->RunTargets({graph_.FindOperation("init")}).ok());
    constexpr int kThreads = 4, kSteps = 50;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this] {
        for (int i = 0; i < kSteps; ++i) {
          const auto value = Fetch("again");
          ASSERT_TRUE(value.ok()) << value.status();
          EXPECT_EQ(value->scalar<float>(), 8);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto counted = Fetch("read");
    ASSERT_TRUE(counted.ok()) << counted.status();
    EXPECT_EQ(counted->scalar<float>(), 2 * kThreads * kSteps);
  }
}

TEST_F(HostileFunctionsTest, ABodySpansTasksWhereItIsPutIntoTheGraphAndOnlyThere) {
  const std::string there = "/job:worker/task:1";
  const auto body = [&](const std::string& name, const std::string& more) {
    return Of(name,
              BodyNode("near", "AddV2", {"x", "x"}, FloatT()) +
                  BodyNode("far", "Mul", {"near:z:0", "near:z:0"}, FloatT(), there) +
                  BodyNode("back", "Neg", {"far:z:0"}, FloatT(), "/job:worker/task:0"),
              "back:y:0", more);
  };
  const std::string below =
      "library { function { signature { name: 'Big' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      FloatConst("node_def", "bound", -1000) +
      BodyNode("above", "Greater", {"x", "bound:output:0"}, FloatT()) +
      " ret { key: 'y' value: 'above:z:0' } } }\n";
  testing::InProcessCluster cluster(0, 2);
  SessionOptions options;
  options.target = cluster.Target("worker", 0);
  Open(body("Span", "") + body("Stay", kNoInline) + below + Call("call", "Span") +
           Call("stays", "Stay") +
           GraphNode(
               "loop", "While", {"c"},
               Attr("T", "list { type: DT_FLOAT }") + Func("cond", "Big") + Func("body", "Span")),
       options);
  for (int i = 0; i < 3; ++i) {
    const auto value = Fetch("call");
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->scalar<float>(), -16);  // -(2 + 2)^2
    const auto looped = Fetch("loop");
    ASSERT_TRUE(looped.ok()) << looped.status();
    EXPECT_EQ(looped->scalar<float>(), -1024);  // 2, -16, -1024
  }
  EXPECT_THAT(Error("stays"),
              AllOf(HasSubstr("Stay"), HasSubstr("far"), HasSubstr("cannot leave its task")));
}

}  // namespace
}  // namespace millrace
