// SPDX-License-Identifier: Apache-2.0
// Graphs as text, before and after.
#include "graph/rewrite/rewrite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

// A line is "name Op input input:1 ^after"; of a constant "name Const 2.5 ^after"; values are
// of `type_`, constants floats, and whatever Out takes is fetched.
class RewriteTest : public testing::Test {
 protected:
  RewriteTest() : graph_(&ops_) { EXPECT_TRUE(RegisterAllOps(ops_).ok()); }

  void Read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, op;
      if (words >> name >> op) AddLine(name, op, words);
    }
  }

  void AddLine(const std::string& name, const std::string& op, std::istringstream& words) {
    std::vector<std::string> inputs;
    for (std::string word; words >> word;) inputs.push_back(word);
    AttrMap attrs;
    if (op == "Const") {
      attrs.Set("dtype", kFloat);
      attrs.Set("value", Tensor::Scalar<float>(std::stof(inputs[0])));
      inputs.erase(inputs.begin());
    } else if (op == "Placeholder") {
      attrs.Set("dtype", type_);
    } else if (op == "Cast") {
      attrs.Set("SrcT", kFloat);
      attrs.Set("DstT", kFloat);
    } else if (op == "_Retval") {
      attrs.Set("T", type_);
      attrs.Set("index", int64_t{0});
    } else if (op != "NoOp") {
      attrs.Set("T", type_);
      if (op == "Merge") attrs.Set("N", int64_t{2});
      if (op == "Conv2D") {
        attrs.Set("strides", std::vector<int64_t>{1, 1, 1, 1});
        attrs.Set("padding", std::string("SAME"));
      }
      if (op == "RandomUniform") attrs.Set("dtype", kFloat);
      if (op == "CheckNumerics") attrs.Set("message", std::string("bad"));
      if (op == "_Recv") {
        attrs.Set("tensor_type", type_);
        attrs.Set("tensor_name", name);
        attrs.Set("send_device", std::string());
        attrs.Set("send_device_incarnation", int64_t{0});
        attrs.Set("recv_device", std::string());
      }
    }
    auto node = graph_.AddNode(name, op, std::move(attrs));
    ASSERT_TRUE(node.ok()) << node.status();
    int slot = 0;
    for (const std::string& input : inputs) {
      if (input[0] == '^') {
        graph_.AddControlEdge(graph_.FindNode(input.substr(1)), *node);
        continue;
      }
      const auto colon = input.find(':');
      const int output = colon == std::string::npos ? 0 : std::stoi(input.substr(colon + 1));
      const auto edge =
          graph_.AddEdge(graph_.FindNode(input.substr(0, colon)), output, *node, slot++);
      ASSERT_TRUE(edge.ok()) << edge.status();
    }
  }

  // The same way; constants are written as their value where they are read and wait for nothing.
  std::string Text() const {
    std::vector<std::string> lines;
    for (const Node* node : graph_.OpNodes()) {
      if (Inlined(*node)) continue;
      std::string line = StrCat(node->name(), " ", node->type());
      if (node->type() == "Const") StrAppend(&line, " ", ValueOf(*node));
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Edge* edge = node->input_edge(i);
        StrAppend(&line, " ", Inlined(*edge->src) ? ValueOf(*edge->src) : edge->src->name());
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
  static bool Inlined(const Node& node) {
    return node.type() == "Const" && std::none_of(node.in_edges().begin(), node.in_edges().end(),
                                                  [](const Edge* e) { return e->src->IsOp(); });
  }
  static std::string ValueOf(const Node& node) {
    return StrCat(node.attrs().Get<Tensor>("value")->scalar<float>());
  }

  static StatusOr<std::vector<Tensor>> Evaluate(const Node& node, std::span<const Tensor> in) {
    const float a = in[0].scalar<float>();
    if (node.type() == "Neg") return std::vector<Tensor>{Tensor::Scalar<float>(-a)};
    if (node.type() == "AddV2") {
      return std::vector<Tensor>{Tensor::Scalar<float>(a + in[1].scalar<float>())};
    }
    return errors::Unimplemented("not in this test");
  }

  void Rewrite(const RewriteOptions& options = {}) {
    const auto counts = RewriteGraph(options, &Evaluate, &graph_);
    ASSERT_TRUE(counts.ok()) << counts.status();
    counts_ = *counts;
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  RewriteCounts counts_;
  DataType type_ = kFloat;
};

TEST_F(RewriteTest, ConstantsAreFolded) {
  Read(R"(a Const 2
          b Const 3
          sum AddV2 a b
          neg Neg sum
          x Placeholder
          y AddV2 x neg
          out _Retval y)");
  Rewrite();
  EXPECT_EQ(Text(), "out _Retval y\nx Placeholder\ny AddV2 x -5");
  EXPECT_EQ(counts_.folded, 2);
}

TEST_F(RewriteTest, AFoldedConstantWaitsForWhatItsNodesWaitedFor) {
  Read(R"(before NoOp
          after NoOp
          a Const 2 ^before
          neg Neg a ^after
          out _Retval neg)");
  Rewrite();
  EXPECT_EQ(Text(), "after NoOp\nbefore NoOp\nneg/_0 Const -2 ^after ^before\nout _Retval neg/_0");
}

TEST_F(RewriteTest, WhatCannotBeComputedNowStays) {
  const std::string text =
      "log Log 2\n"
      "out _Retval log";
  Read("a Const 2\nlog Log a\nout _Retval log");
  Rewrite();
  EXPECT_EQ(Text(), text);
  EXPECT_EQ(counts_.total(), 0);
}

TEST_F(RewriteTest, ConstantsOfALoopAreFoldedWhateverTheOrderOfItsNodes) {
  Read(R"(x Placeholder
          m Merge x x
          early Const 1
          a AddV2 early early
          b AddV2 early early
          c Const 2 ^m
          s AddV2 m a
          n NextIteration s
          out _Retval s)");
  // Each takes one that was made after it: a = b + b, b = c + c.
  const auto take = [&](const char* name, int slot, const char* input) {
    Node* const node = graph_.FindNode(name);
    graph_.RemoveEdge(const_cast<Edge*>(node->input_edge(slot)));
    ASSERT_TRUE(graph_.AddEdge(graph_.FindNode(input), 0, node, slot).ok());
  };
  for (const int slot : {0, 1}) take("a", slot, "b");
  for (const int slot : {0, 1}) take("b", slot, "c");
  take("m", 1, "n");
  // In one pass: who comes before his inputs would be looked at when he is gone.
  const StatusOr<int> folded = FoldConstants({}, &Evaluate, &graph_);
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(*folded, 2);
  EXPECT_EQ(graph_.FindNode("s")->input_edge(1)->src->type(), "Const");
  for (const char* gone : {"a", "b", "c"}) EXPECT_EQ(graph_.FindNode(gone), nullptr) << gone;
}

TEST_F(RewriteTest, EqualNodesAreMerged) {
  Read(R"(x Placeholder
          a Neg x
          b Neg x
          aa Exp a
          bb Exp b
          sum AddV2 aa bb
          out _Retval sum)");
  Rewrite();
  EXPECT_EQ(Text(), "a Neg x\naa Exp a\nout _Retval sum\nsum AddV2 aa aa\nx Placeholder");
  EXPECT_EQ(counts_.merged, 2);
}

TEST_F(RewriteTest, NodesThatWaitForSomethingElseAreNotEqual) {
  const std::string text =
      "a Neg x\nb Neg x ^first\nfirst NoOp\nout _Retval sum\nsum AddV2 a b\nx Placeholder";
  Read("x Placeholder\nfirst NoOp\na Neg x\nb Neg x ^first\nsum AddV2 a b\nout _Retval sum");
  Rewrite();
  EXPECT_EQ(Text(), text);
}

TEST_F(RewriteTest, AMergedNodeIsWaitedForInPlaceOfTheOther) {
  Read("x Placeholder\na Exp x\nb Exp x\nc Neg b\nlast NoOp ^b\nout _Retval a\ntwo _Retval c");
  Rewrite();
  EXPECT_EQ(Text(), "a Exp x\nc Neg a\nlast NoOp ^a\nout _Retval a\ntwo _Retval c\nx Placeholder");
}

TEST_F(RewriteTest, ArithmeticThatChangesNothingGoes) {
  for (const std::string line : {"y Mul x one", "y Mul one x", "y RealDiv x one", "y Sub x zero",
                                 "y AddV2 x minus_zero", "y Cast x"}) {
    SCOPED_TRACE(line);
    for (Node* node : graph_.OpNodes()) graph_.RemoveNode(node);
    Read("x Placeholder\none Const 1\nzero Const 0\nminus_zero Const -0.0\n" + line +
         "\nout _Retval y");
    Rewrite();
    EXPECT_NE(Text().find("out _Retval x"), std::string::npos) << Text();
    EXPECT_EQ(counts_.simplified, 1);
  }
}

TEST_F(RewriteTest, ArithmeticThatChangesABitStays) {
  for (const std::string line :
       {"y AddV2 x zero", "y Mul x zero", "y RealDiv one x", "y Sub one x", "y Mul x two"}) {
    SCOPED_TRACE(line);
    for (Node* node : graph_.OpNodes()) graph_.RemoveNode(node);
    Read("x Placeholder\none Const 1\nzero Const 0\ntwo Const 2\n" + line + "\nout _Retval y");
    Rewrite();
    EXPECT_NE(Text().find("out _Retval y"), std::string::npos) << Text();
  }
}

TEST_F(RewriteTest, TwoNegationsAreNone) {
  Read("x Placeholder\na Neg x\nb Neg a\nout _Retval b");
  Rewrite();
  EXPECT_EQ(Text(), "out _Retval x\nx Placeholder");
}

TEST_F(RewriteTest, IdentitiesGoUnlessSomethingWaits) {
  Read(R"(x Placeholder
          first NoOp
          a Identity x
          b Identity a
          c Identity x ^first
          d Identity x
          last NoOp ^d
          out _Retval b
          also _Retval c
          third _Retval d)");
  Rewrite({.merge_equal = false});
  EXPECT_EQ(Text(),
            "also _Retval c\nc Identity x ^first\nd Identity x\nfirst NoOp\nlast NoOp ^d\n"
            "out _Retval x\nthird _Retval d\nx Placeholder");
  EXPECT_EQ(counts_.removed, 2);
}

TEST_F(RewriteTest, BranchesAreLeftAlone) {
  Read("x Placeholder\n");
  AttrMap attrs;
  attrs.Set("dtype", kBool);
  ASSERT_TRUE(graph_.AddNode("p", "Placeholder", std::move(attrs)).ok());
  Read("s Switch x p\nm Merge s s:1\nout _Retval m");
  Rewrite();
  EXPECT_EQ(Text(), "m Merge s s:1\nout _Retval m\np Placeholder\ns Switch x p\nx Placeholder");
}

TEST_F(RewriteTest, ANodeThatNobodyReadsMayBeATarget) {
  Read("x Placeholder\na Exp x\nb Exp x");
  Rewrite();
  EXPECT_EQ(Text(), "a Exp x\nb Exp x\nx Placeholder");
}

TEST_F(RewriteTest, AProductTakesItsBiasAndItsActivation) {
  Read(R"(x Placeholder
          w Placeholder
          b Placeholder
          first NoOp
          m MatMul x w ^first
          biased BiasAdd m b
          r Relu biased
          last NoOp ^r
          also Neg r
          out _Retval r
          two _Retval also)");
  Rewrite();
  EXPECT_EQ(Text(),
            "also Neg r\nb Placeholder\nfirst NoOp\nlast NoOp ^r\nout _Retval r\n"
            "r _FusedMatMul x w b ^first\ntwo _Retval also\nw Placeholder\nx Placeholder");
  EXPECT_EQ(counts_.fused, 3);
  const AttrMap& attrs = graph_.FindNode("r")->attrs();
  EXPECT_EQ(*attrs.Get<std::string>("activation"), "Relu");
  EXPECT_EQ(*attrs.Get<std::vector<std::string>>("nodes"),
            (std::vector<std::string>{"m", "biased", "r"}));
}

TEST_F(RewriteTest, AProductTakesNoMoreThanWhatItAloneFeeds) {
  // The biased value has two readers: both still read it.
  Read(R"(x Placeholder
          w Placeholder
          b Placeholder
          m MatMul x w
          biased BiasAdd m b
          r Relu biased
          e Exp biased
          out _Retval r
          two _Retval e)");
  Rewrite();
  EXPECT_EQ(Text(),
            "b Placeholder\nbiased _FusedMatMul x w b\ne Exp biased\nout _Retval r\n"
            "r Relu biased\ntwo _Retval e\nw Placeholder\nx Placeholder");
  EXPECT_EQ(*graph_.FindNode("biased")->attrs().Get<std::string>("activation"), "");
}

TEST_F(RewriteTest, AProductThatOthersReadStaysAsItIs) {
  Read(R"(x Placeholder
          w Placeholder
          b Placeholder
          fetched MatMul x w
          first BiasAdd fetched b
          also _Retval fetched
          awaited MatMul w x
          second BiasAdd awaited b
          last NoOp ^awaited
          shared MatMul x x
          third BiasAdd shared b
          more Neg shared
          out _Retval first
          two _Retval second
          three _Retval third
          four _Retval more)");
  const std::string before = Text();
  Rewrite();
  EXPECT_EQ(Text(), before);
}

TEST_F(RewriteTest, ProductsOf16BitsAreFusedOnlyWhereThereAreKernels) {
  type_ = kHalf;
  Read("x Placeholder\nm MatMul x x\nhalf BiasAdd m x\nout _Retval half");
  type_ = kBfloat16;
  Read("y Placeholder\nn MatMul y y\nbrain BiasAdd n y\ntwo _Retval brain");
  const std::string before = Text();
  Rewrite({.fuse_small_products = false});
  EXPECT_EQ(Text(), before);
  Rewrite();
  EXPECT_EQ(counts_.fused, 4);
  EXPECT_EQ(Text(),
            "brain _FusedMatMul y y y\nhalf _FusedMatMul x x x\nout _Retval half\n"
            "two _Retval brain\nx Placeholder\ny Placeholder");
  EXPECT_EQ(graph_.FindNode("half")->output_types()[0], kHalf);
  EXPECT_EQ(graph_.FindNode("brain")->output_types()[0], kBfloat16);
}

TEST_F(RewriteTest, ConvolutionsOf16BitsAreFusedOnlyWhereThereAreKernels) {
  type_ = kHalf;
  Read("x Placeholder\nc Conv2D x x\nhalf BiasAdd c x\nr Relu half\nout _Retval r");
  type_ = kBfloat16;
  Read("y Placeholder\nd Conv2D y y\nbrain BiasAdd d y\ntwo _Retval brain");
  const std::string before = Text();
  Rewrite({.fuse_small_products = false});
  EXPECT_EQ(Text(), before);
  Rewrite();
  EXPECT_EQ(counts_.fused, 5);
  EXPECT_EQ(Text(),
            "brain _FusedConv2D y y y\nout _Retval r\nr _FusedConv2D x x x\n"
            "two _Retval brain\nx Placeholder\ny Placeholder");
  EXPECT_EQ(graph_.FindNode("r")->output_types()[0], kHalf);
  EXPECT_EQ(*graph_.FindNode("r")->attrs().Get<std::string>("activation"), "Relu");
  EXPECT_EQ(graph_.FindNode("brain")->output_types()[0], kBfloat16);
}

TEST_F(RewriteTest, AProductIsNotABias) {
  Read(R"(x Placeholder
          w Placeholder
          v Placeholder
          m MatMul x w
          biased BiasAdd v m
          t BiasAdd x v
          out _Retval biased
          two _Retval t)");
  const std::string before = Text();
  Rewrite();
  EXPECT_EQ(Text(), before);
}

TEST_F(RewriteTest, WhatNobodyReadsIsWaitedForOnly) {
  // As in TensorFlow's gradients: both are there before either is used.
  Read(R"(x Placeholder
          w Placeholder
          g Exp x
          of_x MatMul g w
          of_w MatMul x g
          both NoOp ^of_x ^of_w
          used Identity of_w ^both
          out _Retval used)");
  Rewrite();
  EXPECT_EQ(Text(),
            "both NoOp ^of_w ^of_x\ng Exp x\nof_w MatMul x g\nof_x NoOp ^g ^w\n"
            "out _Retval used\nused Identity of_w ^both\nw Placeholder\nx Placeholder");
  EXPECT_EQ(counts_.dropped, 1);
}

TEST_F(RewriteTest, WhatOnlyTheUnreadReadIsDroppedToo) {
  Read(R"(before NoOp
          x Placeholder
          y Exp x ^before
          z Neg y
          after NoOp ^z
          out _Retval x ^after)");
  Rewrite();
  EXPECT_EQ(Text(),
            "after NoOp ^z\nbefore NoOp\nout _Retval x ^after\nx Placeholder\n"
            "y NoOp ^before ^x\nz NoOp ^y");
  EXPECT_EQ(counts_.dropped, 2);
}

TEST_F(RewriteTest, WhatArrivesMayBeDeadWhereItsNodeIsNot) {
  Read("w _Recv\nx Placeholder\nm MatMul x w\nafter NoOp ^m\nout _Retval x ^after");
  Rewrite();
  EXPECT_EQ(Text(),
            "after NoOp ^m\nm NoOp ^m/_arrives_1 ^x\nm/_arrives_1 Identity w\n"
            "out _Retval x ^after\nw _Recv\nx Placeholder");
}

TEST_F(RewriteTest, WhatMayDoMoreThanComputeIsNotDropped) {
  Read("x Placeholder\nc CheckNumerics x\nafter NoOp ^c\nlast Neg x\nout _Retval x ^after");
  const std::string before = Text();
  Rewrite();
  EXPECT_EQ(Text(), before);
}

TEST_F(RewriteTest, WhatDrawsNumbersIsNotDropped) {
  type_ = kInt32;
  Read("x Placeholder\nr RandomUniform x\nafter NoOp ^r\nout _Retval x ^after");
  const std::string before = Text();
  Rewrite();
  EXPECT_EQ(Text(), before);
}

TEST_F(RewriteTest, WhatReadsABranchIsNotDropped) {
  type_ = kBool;  // the value alone tells whether it is dead
  Read("x Placeholder\ns Switch x x\nn Identity s:1\nafter NoOp ^n\nout _Retval x ^after");
  const std::string before = Text();
  Rewrite();
  EXPECT_EQ(Text(), before);
}

TEST_F(RewriteTest, EveryPassCanBeSwitchedOff) {
  const std::string text =
      "x Placeholder\none Const 1\nc Neg one\nm Mul x one\ni Identity m\n"
      "n Identity m\ns AddV2 i n\nt AddV2 s c\nu Neg t\np MatMul t t ^u\nb BiasAdd p x\n"
      "out _Retval b";
  Read(text);
  const std::string before = Text();
  Rewrite({.drop_unread = false,
           .fold_constants = false,
           .merge_equal = false,
           .simplify = false,
           .remove_identities = false,
           .fuse_products = false});
  EXPECT_EQ(Text(), before);
  EXPECT_EQ(counts_.total(), 0);
}

}  // namespace
}  // namespace millrace
