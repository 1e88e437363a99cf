// SPDX-License-Identifier: Apache-2.0
// Graphs as text, before and after.
#include <algorithm>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "graph/rewrite/rewrite.h"
#include "gtest/gtest.h"
#include "ops/all_ops.h"
#include "ops/fused_program.h"

namespace millrace {
namespace {

// A line is "name Op input input:1 ^after"; values are of number_ but for those that ops make bool.
class FuseTest : public testing::Test {
 protected:
  FuseTest() : graph_(&ops_) { EXPECT_TRUE(RegisterAllOps(ops_).ok()); }

  void Read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, op;
      if (words >> name >> op) AddLine(name, op, words);
    }
  }

  void SetAttrs(const std::string& op, AttrMap* attrs) const {
    if (op == "NoOp" || op == "LoopCond" || op.starts_with("Logical")) return;
    if (op == "_Recv" || op == "_Send") {
      attrs->Set(op == "_Recv" ? "tensor_type" : "T", number_);
      for (const char* name : {"tensor_name", "send_device", "recv_device"}) {
        attrs->Set(name, std::string("x"));
      }
      attrs->Set("send_device_incarnation", int64_t{1});
    } else if (op == "Placeholder" || op == "VariableV2") {
      attrs->Set("dtype", number_);
      if (op == "VariableV2") attrs->Set("shape", PartialShape());
    } else if (op == "Cast") {
      attrs->Set("SrcT", number_);
      attrs->Set("DstT", number_);
    } else {
      attrs->Set("T", number_);
      if (op == "_Retval") attrs->Set("index", int64_t{0});
      if (op == "Merge" || op == "AddN") attrs->Set("N", int64_t{2});
      if (op == "Sum" || op == "Mean") attrs->Set("Tidx", kInt32);
      if (op == "Enter") attrs->Set("frame_name", std::string("loop"));
    }
  }

  void AddLine(const std::string& name, const std::string& op, std::istringstream& words) {
    AttrMap attrs;
    SetAttrs(op, &attrs);
    auto node = graph_.AddNode(name, op, std::move(attrs));
    ASSERT_TRUE(node.ok()) << node.status();
    (*node)->set_assigned_device("/device:CPU:0");
    int slot = 0;
    for (std::string input; words >> input;) {
      if (input[0] == '^') {
        graph_.AddControlEdge(graph_.FindNode(input.substr(1)), *node);
        continue;
      }
      const auto colon = input.find(':');
      const int output = colon == std::string::npos ? 0 : std::stoi(input.substr(colon + 1));
      Node* const from = graph_.FindNode(input.substr(0, colon));
      ASSERT_NE(from, nullptr) << input;
      const auto edge = graph_.AddEdge(from, output, *node, slot++);
      ASSERT_TRUE(edge.ok()) << edge.status();
    }
  }

  std::string Text() const {
    std::vector<std::string> lines;
    for (const Node* node : graph_.OpNodes()) {
      std::string line = StrCat(node->name(), " ", node->type());
      if (node->type() == "_Fused") {
        StrAppend(&line, " {", *node->attrs().Get<std::string>("program"), "}");
        EXPECT_EQ(node->assigned_device(), "/device:CPU:0");
      }
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Edge* edge = node->input_edge(i);
        if (edge == nullptr) continue;
        StrAppend(&line, " ", edge->src->name());
        if (edge->src_output > 0) StrAppend(&line, ":", edge->src_output);
      }
      std::vector<std::string> after;
      for (const Edge* edge : node->in_edges()) {
        if (edge->IsControl() && edge->src->IsOp()) after.push_back(edge->src->name());
      }
      std::sort(after.begin(), after.end());
      for (const std::string& name : after) StrAppend(&line, " ^", name);
      lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    return StrJoin(lines, "\n");
  }

  void AddAxes(const std::string& name, std::initializer_list<int32_t> axes) {
    AttrMap attrs;
    attrs.Set("dtype", kInt32);
    attrs.Set("value", Tensor::FromValues<int32_t>(axes));
    ASSERT_TRUE(graph_.AddNode(name, "Const", std::move(attrs)).ok());
  }

  int Fuse() {
    const auto fused = FuseElementwise(&graph_);
    EXPECT_TRUE(fused.ok()) << fused.status();
    return fused.value_or(-1);
  }
  void ExpectUntouched(const std::string& text) {
    Read(text);
    const std::string before = Text();
    EXPECT_EQ(Fuse(), 0);
    EXPECT_EQ(Text(), before);
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  DataType number_ = kFloat;
};

TEST_F(FuseTest, AChainBecomesOneNodeWithTheNameOfItsEnd) {
  Read(R"(x Placeholder
          y Placeholder
          a Mul x y
          b AddV2 a y
          c Tanh b
          out _Retval c)");
  EXPECT_EQ(Fuse(), 3);
  EXPECT_EQ(Text(),
            "c _Fused {Mul:float i0 i1; AddV2:float t0 i1; Tanh:float t1 > t2} x y\n"
            "out _Retval c\nx Placeholder\ny Placeholder");
}

TEST_F(FuseTest, WhatIsReadOutsideIsAnOutput) {
  Read(R"(x Placeholder
          a Exp x
          b Neg a
          out _Retval a
          also _Retval b)");
  Fuse();
  EXPECT_EQ(Text(),
            "also _Retval b:1\nb _Fused {Exp:float i0; Neg:float t0 > t0 t1} x\n"
            "out _Retval b\nx Placeholder");
}

TEST_F(FuseTest, ComparisonsAndChoicesTakePart) {
  Read(R"(x Placeholder
          y Placeholder
          less Less x y
          not LogicalNot less
          z SelectV2 not x y
          out _Retval z)");
  Fuse();
  EXPECT_EQ(Text(),
            "out _Retval z\nx Placeholder\ny Placeholder\nz _Fused {Less:float i0 i1; "
            "LogicalNot:bool t0; SelectV2:float t1 i0 i1 > t2} x y");
}

TEST_F(FuseTest, FloatsOf16BitsTakePart) {
  number_ = kHalf;
  Read("x Placeholder\na Mul x x\n");
  AttrMap attrs;
  attrs.Set("SrcT", kHalf);
  attrs.Set("DstT", kBfloat16);
  const auto cast = graph_.AddNode("b", "Cast", std::move(attrs));
  ASSERT_TRUE(cast.ok()) << cast.status();
  (*cast)->set_assigned_device("/device:CPU:0");
  ASSERT_TRUE(graph_.AddEdge(graph_.FindNode("a"), 0, *cast, 0).ok());
  number_ = kBfloat16;
  Read("c Tanh b\nout _Retval c");
  EXPECT_EQ(Fuse(), 3);
  EXPECT_EQ(Text(),
            "c _Fused {Mul:half i0 i0; Cast:half>bfloat16 t0; Tanh:bfloat16 t1 > t2} x\n"
            "out _Retval c\nx Placeholder");
}

TEST_F(FuseTest, NothingIsFusedAroundANodeInBetween) {
  // a -> m -> b and a -> b: a and b together would wait for themselves.
  Read(R"(x Placeholder
          a Exp x
          a2 Neg a
          m MatMul a2 a2
          b AddV2 a2 m
          b2 Neg b
          out _Retval b2)");
  Fuse();
  EXPECT_EQ(Text(),
            "a2 _Fused {Exp:float i0; Neg:float t0 > t1} x\n"
            "b2 _Fused {AddV2:float i0 i1; Neg:float t0 > t1} a2 m\n"
            "m MatMul a2 a2\nout _Retval b2\nx Placeholder");
}

TEST_F(FuseTest, ControlEdgesOfMembersAreThoseOfTheWhole) {
  Read(R"(x Placeholder
          first NoOp
          a Exp x ^first
          b Neg a
          last NoOp ^a
          out _Retval b)");
  Fuse();
  EXPECT_EQ(Text(),
            "b _Fused {Exp:float i0; Neg:float t0 > t1} x ^first\nfirst NoOp\n"
            "last NoOp ^b\nout _Retval b\nx Placeholder");
}

TEST_F(FuseTest, APathOfControlEdgesKeepsNodesApart) {
  ExpectUntouched("x Placeholder\na Exp x\nlast NoOp ^a\nb Neg a ^last\nout _Retval b");
}

TEST_F(FuseTest, SingleNodesAndTargetsStay) {
  ExpectUntouched("x Placeholder\na Exp x\nm MatMul a a\nb Neg m\nc Exp b\nout _Retval b");
}

TEST_F(FuseTest, NodesThatReadVariablesAsTheyLieStay) {
  ExpectUntouched("v VariableV2\na Exp v\nb Neg v\nout _Retval a\nalso _Retval b");
}

TEST_F(FuseTest, AnOutputDoesNotWaitForAReceiveThatMayWaitForIt) {
  // Another device may make of `a` what is received.
  ExpectUntouched(R"(x Placeholder
                     a Exp x
                     s _Send a
                     r _Recv
                     b AddV2 a r
                     out _Retval b)");
}

TEST_F(FuseTest, WhatWaitsForTheSameReceivesIsFused) {
  Read("r _Recv\na Exp r\nb Neg a\ns _Send a\nout _Retval b");
  EXPECT_EQ(Fuse(), 2);
}

TEST_F(FuseTest, AnOutputIsNotDeadBecauseAnotherOneIs) {
  Read("x Placeholder\n");
  AttrMap attrs;
  attrs.Set("dtype", kBool);
  ASSERT_TRUE(graph_.AddNode("p", "Placeholder", std::move(attrs)).ok());
  ExpectUntouched(R"(s Switch x p
                     a Exp x
                     b AddV2 a s:1
                     m Merge s b
                     also _Retval a
                     out _Retval m)");
}

TEST_F(FuseTest, TheSidesOfABranchAreNotFused) {
  Read("x Placeholder\n");
  AttrMap attrs;
  attrs.Set("dtype", kBool);
  ASSERT_TRUE(graph_.AddNode("p", "Placeholder", std::move(attrs)).ok());
  ExpectUntouched(R"(s Switch x p
                     a Exp s
                     b Exp s:1
                     c AddV2 a b
                     m Merge a b
                     also _Retval c
                     out _Retval m)");
}

TEST_F(FuseTest, WithinALoopThereIsOneIterationAtATime) {
  Read("x Placeholder\n");
  Read(R"(e Enter x
          m Merge e e
          less Less m m
          p LoopCond less
          s Switch m p
          a Exp s:1
          b Neg a
          n NextIteration b
          exit Exit s
          out _Retval exit)");
  Node* const m = graph_.FindNode("m");
  graph_.RemoveEdge(const_cast<Edge*>(m->input_edge(1)));
  ASSERT_TRUE(graph_.AddEdge(graph_.FindNode("n"), 0, m, 1).ok());
  EXPECT_EQ(Fuse(), 2);
  EXPECT_NE(Text().find("b _Fused {Exp:float i0; Neg:float t0 > t1} s:1"), std::string::npos);
  EXPECT_NE(Text().find("m Merge e n"), std::string::npos);
}

TEST_F(FuseTest, LongChainsAreCutToWhatAKernelTakes) {
  std::string text = "x Placeholder\nn0 Neg x\n";
  for (int i = 1; i < 200; ++i) StrAppend(&text, "n", i, " Neg n", i - 1, "\n");
  Read(text + "out _Retval n199");
  EXPECT_EQ(Fuse(), 200);
  EXPECT_EQ(graph_.OpNodes().size(), 2 + (200 + kMaxFusedInstructions - 1) / kMaxFusedInstructions);
}

// A node on a cycle would never run.
bool IsAcyclic(const DataflowGraph& graph) {
  std::vector<int> pending(graph.num_node_ids());
  std::vector<const Node*> ready;
  std::size_t seen = 0;
  for (const Node* node : graph.OpNodes()) {
    for (const Edge* edge : node->in_edges()) pending[node->id()] += edge->src->IsOp() ? 1 : 0;
    if (pending[node->id()] == 0) ready.push_back(node);
  }
  for (; seen < ready.size(); ++seen) {
    for (const Edge* edge : ready[seen]->out_edges()) {
      if (edge->dst->IsOp() && --pending[edge->dst->id()] == 0) ready.push_back(edge->dst);
    }
  }
  return seen == graph.OpNodes().size();
}

TEST_F(FuseTest, RandomGraphsStayAcyclicAndEveryProgramCanBeRead) {
  for (int seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    for (Node* node : graph_.OpNodes()) graph_.RemoveNode(node);
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    std::string text = "n0 Placeholder\nn1 _Recv\n";
    const int size = 10 + below(100);
    std::set<int> unread;
    for (int i = 2; i < size; ++i) {
      const auto input = [&] {
        const int from = std::max(0, i - 1 - below(8));
        unread.erase(from);
        return StrCat(" n", from);
      };
      constexpr const char* kOps[] = {"Neg", "AddV2", "Exp", "Mul", "MatMul", "Tanh", "AddN"};
      const char* op = kOps[below(std::size(kOps))];
      const bool two =
          std::string(op) != "Neg" && std::string(op) != "Exp" && std::string(op) != "Tanh";
      StrAppend(&text, "n", i, " ", op, input(), two ? input() : "");
      if (below(10) == 0) StrAppend(&text, " ^n", below(i));
      text += "\n";
      unread.insert(i);
    }
    for (const int i : unread) StrAppend(&text, "out", i, " _Retval n", i, "\n");
    Read(text);
    Fuse();
    EXPECT_TRUE(IsAcyclic(graph_)) << text;
    for (const Node* node : graph_.OpNodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) EXPECT_NE(node->input_edge(i), nullptr);
      if (node->type() != "_Fused") continue;
      const auto program = ParseFusedProgram(*node->attrs().Get<std::string>("program"),
                                             node->input_types(), node->output_types());
      EXPECT_TRUE(program.ok()) << program.status();
    }
  }
}

TEST_F(FuseTest, AReductionOf16BitFloatsStaysANode) {
  number_ = kHalf;
  AddAxes("rows", {1});
  Read("x Placeholder\na Mul x x\nb Neg a\nm Sum b rows\nout _Retval m");
  EXPECT_EQ(Fuse(), 2);
  const auto reduced = FuseReductions(&graph_);
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_EQ(*reduced, 0);
}

TEST_F(FuseTest, AReductionBecomesPartOfWhatItAloneReads) {
  AddAxes("rows", {1});
  AddAxes("all", {0, 1});
  Read(R"(x Placeholder
          y Placeholder
          d Sub x y
          q Square d
          s Sum q rows
          e Exp x
          m Mean e all
          out _Retval s
          two _Retval m)");
  EXPECT_EQ(Fuse(), 3);
  const auto reduced = FuseReductions(&graph_);
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_EQ(*reduced, 2);
  EXPECT_EQ(Text(),
            "m _Fused {Exp:float i0 > t0} x\nout _Retval s\n"
            "s _Fused {Sub:float i0 i1; Square:float t0 > t1} x y\ntwo _Retval m\n"
            "x Placeholder\ny Placeholder");
  const AttrMap& attrs = graph_.FindNode("s")->attrs();
  EXPECT_EQ(*attrs.Get<std::string>("reduce"), "Sum");
  EXPECT_EQ(*attrs.Get<std::vector<int64_t>>("axes"), std::vector<int64_t>{1});
  EXPECT_EQ(*attrs.Get<std::vector<std::string>>("nodes"),
            (std::vector<std::string>{"d", "q", "s"}));
}

TEST_F(FuseTest, AReductionStaysOutsideOfWhatOthersRead) {
  AddAxes("rows", {1});
  Read(R"(x Placeholder
          axes Placeholder
          a Exp x
          b Neg a
          s Sum b rows
          c Square x
          out _Retval s
          also _Retval b
          q Sum c rows
          more Neg c
          three _Retval q
          four _Retval more)");
  EXPECT_EQ(Fuse(), 4);
  const auto reduced = FuseReductions(&graph_);
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_EQ(*reduced, 0);
}

}  // namespace
}  // namespace millrace
