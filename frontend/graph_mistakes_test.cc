// SPDX-License-Identifier: Apache-2.0
// What programs do wrong while they build graphs, and what they are told: the line of theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/control_flow.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const Status& status) { return std::string(Message(status)); }

Tensor Floats(const Shape& shape) {
  Tensor t(kFloat, shape);
  for (float& x : t.flat<float>()) x = 0;
  return t;
}

// No error names a file of the library.
void ExpectMadeHere(const Status& status, int line) {
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status), HasSubstr(StrCat("graph_mistakes_test.cc:", line)));
  for (const char* file : {"variables.cc", "_builder.cc", "_grad.cc", "gradients.cc"}) {
    EXPECT_THAT(Text(status), Not(HasSubstr(file)));
  }
}

TEST(Graph, NamesTheLineOfACallThatMakesManyNodes) {
  {
    Graph graph;
    const int line = std::source_location::current().line() + 1;
    Zeros(graph.root(), {-2});
    ExpectMadeHere(graph.status(), line);
  }
  {
    Graph graph;
    const Output pred = Placeholder(graph.root(), kFloat, PartialShape({}));
    const auto one = [](const Scope& s) { return std::vector{Constant(s, Floats({1}))}; };
    const int line = std::source_location::current().line() + 1;
    Cond(graph.root(), pred, one, one);
    ExpectMadeHere(graph.status(), line);
  }
  {
    Graph graph;
    const Output pred = Placeholder(graph.root(), kBool, PartialShape({}));
    const auto one = [](const Scope& s) { return std::vector{Constant(s, Floats({1}))}; };
    const auto two = [](const Scope& s) { return std::vector{Constant(s, Tensor::Scalar(1))}; };
    const int line = std::source_location::current().line() + 1;
    Cond(graph.root(), pred, one, two);
    ExpectMadeHere(graph.status(), line);
  }
  {
    Graph graph;
    const Output x = Placeholder(graph.root(), kFloat, PartialShape({2}));
    const Output row = ops::Reshape(graph.root(), x, {1, 2});
    const Output y = ops::MatMul(graph.root(), row, ops::Reshape(graph.root(), x, {2, 1}));
    const Output wrong = Constant(graph.root(), Floats({7, 7}));
    const int line = std::source_location::current().line() + 1;
    const Status status = Gradients(graph.root(), {{y}}, {{x}}, {{wrong}}).status();
    ExpectMadeHere(status, line);
  }
}

TEST(Graph, NamesTheLineOfABranchThatAProgramBuilds) {
  Graph graph;
  const Output pred = Placeholder(graph.root(), kBool, PartialShape({}));
  int line = 0;
  const auto wrong = [&](const Scope& s) {
    line = std::source_location::current().line() + 1;
    return std::vector{ops::MatMul(s, Floats({2, 3}), Floats({2, 3}))};
  };
  Cond(graph.root(), pred, wrong, wrong);
  ExpectMadeHere(graph.status(), line);
}

TEST(Graph, NamesBothLinesOfAGradientThatIsMissing) {
  Graph graph;
  const Output x = Placeholder(graph.root(), kFloat, PartialShape({3, 3}));
  const int made = std::source_location::current().line() + 1;
  const Output y = ops::NextAfter(graph.root(), x, x);
  const int called = std::source_location::current().line() + 1;
  const Status status = Gradients(graph.root(), {{y}}, {{x}}).status();
  EXPECT_TRUE(errors::IsUnimplemented(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr(StrCat("made at graph_mistakes_test.cc:", made)));
  EXPECT_THAT(Text(status), HasSubstr(StrCat("(at graph_mistakes_test.cc:", called, ")")));
}

TEST(Graph, RefusesIllegalNamesWhereTheyAreGiven) {
  Graph graph;
  const int line = std::source_location::current().line() + 1;
  ops::NoOp(graph.root().WithOpName("my op!"));
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
  EXPECT_THAT(Text(graph.status()), HasSubstr("Illegal op name 'my op!'"));
  ExpectMadeHere(graph.status(), line);
  Graph other;
  ops::NoOp(other.root().Named("my scope"));
  EXPECT_THAT(Text(other.status()), HasSubstr("'my scope/NoOp'"));
}

TEST(Graph, TakesTheNameOfAScopeOnce) {
  Graph graph;
  const Scope scope = graph.root().Named("train");
  ops::NoOp(scope);
  EXPECT_EQ(ops::NoOp(scope.WithScopeName()).name(), "train");
  EXPECT_EQ(ops::NoOp(scope.WithScopeName()).name(), "train_1");
  EXPECT_EQ(ops::NoOp(graph.root().Named("train").WithScopeName()).name(), "train_2");
  EXPECT_TRUE(graph.status().ok()) << graph.status();
}

// --- Lifetimes ------------------------------------------------------------------------------
TEST(Graph, SaysThatItWasMovedFrom) {
  Graph graph;
  const Output x = Placeholder(graph.root(), kFloat, PartialShape({}));
  Graph moved = std::move(graph);
  EXPECT_TRUE(errors::IsFailedPrecondition(graph.status())) << graph.status();
  EXPECT_FALSE(ops::NoOp(graph.root()).valid());
  EXPECT_FALSE(graph.FindOperation("Placeholder").valid());
  EXPECT_TRUE(graph.operations().empty());
  EXPECT_TRUE(errors::IsFailedPrecondition(graph.ToGraphDef().status()));
  EXPECT_TRUE(errors::IsFailedPrecondition(graph.ImportGraphDef("")));
  EXPECT_TRUE(moved.status().ok());
  EXPECT_EQ(moved.FindOperation("Placeholder"), x.op());
  graph = Graph();
  EXPECT_TRUE(ops::NoOp(graph.root()).valid());
}

TEST(Scope, KeepsTheNodesOfAGraphThatIsGone) {
  const Scope scope = Graph().root();
  const Operation op = ops::NoOp(scope);
  EXPECT_EQ(op.name(), "NoOp");
  Scope other = scope;
  const Scope moved = std::move(other);
  EXPECT_TRUE(ops::NoOp(other).valid()) << "a scope stays one";
}

// --- Sizes ----------------------------------------------------------------------------------
TEST(Graph, IsNoMessageBeyondTwoGiB) {
  Graph graph;
  const Tensor shared(kUint8, Shape({5 << 20}));  // one buffer for all
  for (int i = 0; i < 420; ++i) Constant(graph.root(), shared);
  Constant(graph.root().WithOpName("biggest"), Tensor(kUint8, Shape({6 << 20})));
  for (const Status& status : {graph.ToGraphDef().status(), graph.ToText().status()}) {
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status),
                HasSubstr("'biggest' (6291456 bytes, made at graph_mistakes_test.cc"));
    EXPECT_THAT(Text(status), HasSubstr("421 constants"));
  }
  EXPECT_TRUE(graph.status().ok()) << "it can be run in this process";
}

}  // namespace
}  // namespace millrace
