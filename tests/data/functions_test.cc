// SPDX-License-Identifier: Apache-2.0
// Functions made of lambdas: what they compute, what they capture, and what is said of mistakes.
#include "millrace/functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "millrace/control_flow.h"
#include "millrace/ops.h"
#include "millrace/session.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Outputs = std::vector<Output>;
using Args = std::span<const Output>;

class LambdaFunctionTest : public ::testing::Test {
 protected:
  std::vector<float> Eval(const Output& y, std::vector<Feed> feeds = {}) {
    EXPECT_TRUE(graph_.status().ok()) << graph_.status();
    if (!graph_.status().ok()) return {};
    auto session = Session::Create(graph_);
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return {};
    for (const Variable& v : Variables(graph_)) {
      EXPECT_TRUE(session->RunTargets({v.initializer}).ok());
    }
    const std::vector<Output> fetches = {y};
    const auto values = session->Run(feeds, fetches);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {};
    const auto flat = (*values)[0].flat<float>();
    return {flat.begin(), flat.end()};
  }
  std::string Error() { return std::string(graph_.status().message()); }

  Graph graph_;
  const Scope scope_ = graph_.root();
};

Outputs Twice(const Scope& s, Args x) { return {ops::Mul(s, x[0], 2.0f)}; }

TEST_F(LambdaFunctionTest, ComputesWhatTheLambdaSays) {
  const GraphFunction twice = DefineFunction(scope_, "twice", {{kFloat, {2}}}, Twice);
  ASSERT_TRUE(twice.valid()) << graph_.status();
  EXPECT_EQ(twice.name(), "twice");
  EXPECT_FALSE(twice.is_stateful());
  EXPECT_TRUE(twice.captures().empty());
  const Outputs y = twice(scope_, {{1.0f, 2.5f}});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_EQ(y[0].op().type(), "PartitionedCall");
  EXPECT_EQ(y[0].shape(), PartialShape({2}));
  EXPECT_THAT(Eval(y[0]), ElementsAre(2.0f, 5.0f));
}

TEST_F(LambdaFunctionTest, GivesSeveralResultsAndPassesArgumentsOn) {
  const GraphFunction f = DefineFunction(
      scope_, "f", {{kFloat, {}, "a"}, {kFloat, {}, "b"}}, [](const Scope& s, Args x) -> Outputs {
        return {ops::Sub(s, x[0], x[1]), x[1], Constant(s, Tensor::Scalar(3.0f))};
      });
  const Outputs y = f(scope_, {5.0f, 1.0f});
  ASSERT_EQ(y.size(), 3u) << graph_.status();
  EXPECT_THAT(Eval(ops::Pack(scope_, {y[0], y[1], y[2]})), ElementsAre(4.0f, 1.0f, 3.0f));
}

TEST_F(LambdaFunctionTest, WhatItUsesOfTheGraphIsPassedByEveryCall) {
  const Output x = Placeholder(scope_, kFloat, {2});
  const Output k = Placeholder(scope_, kFloat, {});
  const GraphFunction scale =
      DefineFunction(scope_, "scale", {{kFloat, {2}}},
                     [&](const Scope& s, Args a) -> Outputs { return {ops::Mul(s, a[0], k), k}; });
  EXPECT_THAT(scale.captures(), ElementsAre(k));
  const Outputs y = scale(scope_, {x});
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  EXPECT_THAT(Eval(y[0], {{x, Tensor::FromValues<float>({1, 2})}, {k, Tensor::Scalar(10.0f)}}),
              ElementsAre(10.0f, 20.0f));
}

TEST_F(LambdaFunctionTest, ReadsVariablesMadeBefore) {
  const Variable v =
      MakeVariable(scope_, "v", Constant(scope_, Tensor::Scalar(4.0f)), {.use_resource = true});
  const GraphFunction f = DefineFunction(scope_, "f", {}, [&](const Scope& s, Args) -> Outputs {
    const Output read = ops::ReadVariableOp(s, v.handle, kFloat);
    EXPECT_EQ(read.shape(), PartialShape({}));
    return {ops::Mul(s, read, read)};
  });
  EXPECT_TRUE(f.is_stateful());
  const Outputs y = f(scope_, {});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_THAT(Eval(y[0]), ElementsAre(16.0f));
}

TEST_F(LambdaFunctionTest, AFunctionWithinAFunctionCapturesThroughIt) {
  const Output k = Placeholder(scope_, kFloat, {});
  const GraphFunction outer =
      DefineFunction(scope_, "outer", {{kFloat, {}}}, [&](const Scope& s, Args x) -> Outputs {
        const GraphFunction inner =
            DefineFunction(s, "inner", {{kFloat, {}}}, [&](const Scope& t, Args y) -> Outputs {
              return {ops::AddV2(t, ops::Mul(t, y[0], k), x[0])};
            });
        return inner(s, {x[0]});
      });
  EXPECT_THAT(outer.captures(), ElementsAre(k));
  const Outputs y = outer(scope_, {3.0f});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_THAT(Eval(y[0], {{k, Tensor::Scalar(5.0f)}}), ElementsAre(18.0f));
}

TEST_F(LambdaFunctionTest, AFunctionCallsAnotherOne) {
  const GraphFunction twice = DefineFunction(scope_, "twice", {{kFloat, {}}}, Twice);
  const GraphFunction four = DefineFunction(
      scope_, "four", {{kFloat, {}}},
      [&](const Scope& s, Args x) -> Outputs { return twice(s, {twice(s, {x[0]})[0]}); });
  const Outputs y = four(scope_, {1.5f});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_THAT(Eval(y[0]), ElementsAre(6.0f));
}

TEST_F(LambdaFunctionTest, GradientsGoThroughCallsAndCaptures) {
  const Output x = Placeholder(scope_, kFloat, {});
  const Output k = Placeholder(scope_, kFloat, {});
  const GraphFunction f = DefineFunction(
      scope_, "f", {{kFloat, {}}},
      [&](const Scope& s, Args a) -> Outputs { return {ops::Mul(s, ops::Mul(s, a[0], a[0]), k)}; });
  const Outputs y = f(scope_, {x});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  const auto dxs = Gradients(scope_, y, Outputs{x, k});
  ASSERT_TRUE(dxs.ok()) << dxs.status();
  EXPECT_THAT(Eval(ops::Pack(scope_, {(*dxs)[0], (*dxs)[1]}),
                   {{x, Tensor::Scalar(3.0f)}, {k, Tensor::Scalar(10.0f)}}),
              ElementsAre(60.0f, 9.0f));
}

TEST_F(LambdaFunctionTest, BranchesAndLoopsInABodyUseWhatIsOutside) {
  const Output k = Placeholder(scope_, kFloat, {});
  const GraphFunction f =
      DefineFunction(scope_, "f", {{kFloat, {}}}, [&](const Scope& s, Args x) -> Outputs {
        const Output larger = ops::Greater(s, x[0], k);
        const Outputs most = Cond(
            s, larger, [&](const Scope&) -> Outputs { return {x[0]}; },
            [&](const Scope&) -> Outputs { return {k}; });
        return WhileLoop(
            s, {most[0]},
            [&](const Scope& t, Args v) -> Output { return ops::Less(t, v[0], 100.0f); },
            [&](const Scope& t, Args v) -> Outputs { return {ops::AddV2(t, v[0], k)}; });
      });
  const Outputs y = f(scope_, {3.0f});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_THAT(Eval(y[0], {{k, Tensor::Scalar(40.0f)}}), ElementsAre(120.0f));
  EXPECT_THAT(Eval(y[0], {{k, Tensor::Scalar(1.0f)}}), ElementsAre(100.0f));
}

TEST_F(LambdaFunctionTest, EffectsHappenThoughNobodyReadsThem) {
  const Variable v =
      MakeVariable(scope_, "v", Constant(scope_, Tensor::Scalar(1.0f)), {.use_resource = true});
  const GraphFunction f = DefineFunction(scope_, "f", {}, [&](const Scope& s, Args) -> Outputs {
    ops::AssignAddVariableOp(s, v.handle, 5.0f);
    return {Constant(s, Tensor::Scalar(0.0f))};
  });
  const Outputs y = f(scope_, {});
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_EQ(y[0].op().type(), "StatefulPartitionedCall");
  const Output after =
      ops::ReadVariableOp(scope_.WithControlDependencies({y[0].op()}), v.handle, kFloat);
  EXPECT_THAT(Eval(after), ElementsAre(6.0f));
}

TEST_F(LambdaFunctionTest, CaseRunsOneOfItsBranches) {
  const Output index = Placeholder(scope_, kInt32, {});
  const Output a = Placeholder(scope_, kFloat, {});
  const Output b = Placeholder(scope_, kFloat, {});
  using Branch = std::function<Outputs(const Scope&)>;
  const std::vector<Branch> branches = {
      [&](const Scope& s) -> Outputs { return {ops::Mul(s, a, 2.0f)}; },
      [&](const Scope& s) -> Outputs { return {ops::AddV2(s, b, a)}; },
      [&](const Scope& s) -> Outputs { return {Constant(s, Tensor::Scalar(-1.0f))}; }};
  const Outputs y = Case(scope_, index, branches);
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  const auto at = [&](int32_t i) {
    return Eval(
        y[0], {{index, Tensor::Scalar(i)}, {a, Tensor::Scalar(3.0f)}, {b, Tensor::Scalar(10.0f)}});
  };
  EXPECT_THAT(at(0), ElementsAre(6.0f));
  EXPECT_THAT(at(1), ElementsAre(13.0f));
  EXPECT_THAT(at(2), ElementsAre(-1.0f));
  EXPECT_THAT(at(7), ElementsAre(-1.0f));
  const auto dxs = Gradients(scope_, y, Outputs{a});
  ASSERT_TRUE(dxs.ok()) << dxs.status();
  const auto slope = [&](int32_t i) {
    return Eval(
        (*dxs)[0],
        {{index, Tensor::Scalar(i)}, {a, Tensor::Scalar(3.0f)}, {b, Tensor::Scalar(10.0f)}});
  };
  EXPECT_THAT(slope(0), ElementsAre(2.0f));
  EXPECT_THAT(slope(2), ElementsAre(0.0f));
}

TEST_F(LambdaFunctionTest, OpsTakeItAsAnAttribute) {
  const GraphFunction goes_on =
      DefineFunction(scope_, "goes_on", {{kFloat, {}}},
                     [](const Scope& s, Args x) -> Outputs { return {ops::Less(s, x[0], 50.0f)}; });
  const GraphFunction twice = DefineFunction(scope_, "twice", {{kFloat, {}}}, Twice);
  const Output start = Placeholder(scope_, kFloat, {});
  const Outputs last = ops::StatelessWhile(scope_, {start}, goes_on.attr(), twice.attr());
  ASSERT_EQ(last.size(), 1u) << graph_.status();
  EXPECT_THAT(Eval(last[0], {{start, Tensor::Scalar(3.0f)}}), ElementsAre(96.0f));
}

TEST_F(LambdaFunctionTest, NamesAreMadeUnique) {
  EXPECT_EQ(DefineFunction(scope_, "f", {{kFloat, {}}}, Twice).name(), "f");
  EXPECT_EQ(DefineFunction(scope_, "f", {{kFloat, {}}}, Twice).name(), "f_1");
  // A function of an op's name would be called in the op's place.
  EXPECT_NE(DefineFunction(scope_, "MatMul", {{kFloat, {}}}, Twice).name(), "MatMul");
  EXPECT_TRUE(graph_.status().ok()) << graph_.status();
}

TEST_F(LambdaFunctionTest, SurvivesTheWayThroughAGraphDef) {
  const GraphFunction twice =
      DefineFunction(scope_, "twice", {{kFloat, {}}}, Twice, {.attrs = {{"_noinline", true}}});
  const Outputs y = twice(scope_.WithOpName("y"), {4.0f});
  const auto bytes = graph_.ToGraphDef();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  Graph copy;
  const Status imported = copy.ImportGraphDef(*bytes);
  ASSERT_TRUE(imported.ok()) << imported;
  auto session = Session::Create(copy);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto value = session->Eval(copy.FindOperation(y[0].op().name()).output(0));
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->scalar<float>(), 8.0f);
}

// --- Mistakes
// -------------------------------------------------------------------------------------

TEST_F(LambdaFunctionTest, AMistakeInTheBodyNamesItsLineAndTheFunction) {
  int line = 0;
  const GraphFunction f =
      DefineFunction(scope_, "broken", {{kFloat, {2, 3}}}, [&](const Scope& s, Args x) -> Outputs {
        line = __LINE__ + 1;
        return {ops::MatMul(s, x[0], x[0])};
      });
  EXPECT_FALSE(f.valid());
  EXPECT_THAT(Error(), HasSubstr(StrCat("functions_test.cc:", line)));
  EXPECT_THAT(Error(), HasSubstr("in the function 'broken'"));
  EXPECT_TRUE(f(scope_, {1.0f}).empty());
}

TEST_F(LambdaFunctionTest, CallsAreChecked) {
  const GraphFunction twice = DefineFunction(scope_, "twice", {{kFloat, {2}, "x"}}, Twice);
  {
    twice(scope_, {});
    EXPECT_THAT(Error(), HasSubstr("the function 'twice' takes 1 arguments, not 0"));
    EXPECT_THAT(Error(), HasSubstr(StrCat("functions_test.cc:", __LINE__ - 2)));
  }
}

TEST_F(LambdaFunctionTest, ArgumentsOfAnotherTypeOrShapeAreRefused) {
  const GraphFunction twice = DefineFunction(scope_, "twice", {{kFloat, {2}, "x"}}, Twice);
  const Output wrong = Placeholder(scope_, kInt32, {2});
  twice(scope_, {wrong});
  EXPECT_THAT(Error(), HasSubstr("argument 0 ('x') of the function 'twice' is float, not int32"));
}

TEST_F(LambdaFunctionTest, ShapesOfArgumentsAreChecked) {
  const GraphFunction twice = DefineFunction(scope_, "twice", {{kFloat, {2}, "x"}}, Twice);
  twice(scope_, {Placeholder(scope_, kFloat, {3})});
  EXPECT_THAT(Error(), HasSubstr("has shape [2], not [3]"));
}

TEST_F(LambdaFunctionTest, AFunctionThatCallsItselfIsRefusedWithTheReason) {
  GraphFunction f;
  f = DefineFunction(scope_, "f", {{kFloat, {}}},
                     [&](const Scope& s, Args x) -> Outputs { return f(s, {x[0]}); });
  EXPECT_FALSE(f.valid());
  EXPECT_THAT(Error(), HasSubstr("a function cannot call itself"));
}

TEST_F(LambdaFunctionTest, ADefinitionThatDefinesItselfEnds) {
  std::function<Outputs(const Scope&, Args)> body = [&](const Scope& s, Args x) -> Outputs {
    return DefineFunction(s, "f", {{kFloat, {}}}, body)(s, {x[0]});
  };
  EXPECT_FALSE(DefineFunction(scope_, "f", {{kFloat, {}}}, body).valid());
  EXPECT_THAT(Error(), HasSubstr("A function cannot contain itself"));
}

TEST_F(LambdaFunctionTest, WhatIsMadeInABodyCannotBeUsedOutside) {
  Output inside;
  DefineFunction(scope_, "f", {{kFloat, {}}}, [&](const Scope& s, Args x) -> Outputs {
    inside = ops::Mul(s, x[0], 2.0f);
    return {inside};
  });
  ASSERT_TRUE(graph_.status().ok()) << graph_.status();
  ops::Mul(scope_, inside, 2.0f);
  EXPECT_THAT(Error(), HasSubstr("belongs to another graph"));
}

TEST_F(LambdaFunctionTest, OutputsOfOtherGraphsAreNoCaptures) {
  Graph other;
  const Output x = Placeholder(other.root(), kFloat, {});
  DefineFunction(scope_, "f", {},
                 [&](const Scope& s, Args) -> Outputs { return {ops::Mul(s, x, 2.0f)}; });
  EXPECT_THAT(Error(), HasSubstr("belongs to another graph"));
  EXPECT_TRUE(other.status().ok());
}

TEST_F(LambdaFunctionTest, VariablesAreMadeOutside) {
  DefineFunction(scope_, "f", {}, [](const Scope& s, Args) -> Outputs {
    return {MakeVariable(s, "w", Constant(s, Tensor::Scalar(1.0f))).read};
  });
  EXPECT_THAT(Error(), HasSubstr("the body makes the variable 'w'"));
}

TEST_F(LambdaFunctionTest, PlaceholdersInABodyCannotBeFed) {
  DefineFunction(scope_, "f", {},
                 [](const Scope& s, Args) -> Outputs { return {Placeholder(s, kFloat, {})}; });
  EXPECT_THAT(Error(), HasSubstr("nothing can be fed"));
}

TEST_F(LambdaFunctionTest, ControlDependenciesOnTheGraphAroundBelongToTheCall) {
  const Output x = Placeholder(scope_, kFloat, {});
  DefineFunction(scope_, "f", {{kFloat, {}}}, [&](const Scope& s, Args a) -> Outputs {
    return {ops::Identity(s.WithControlDependencies({x.op()}), a[0])};
  });
  EXPECT_THAT(Error(), HasSubstr("belongs to another graph"));
}

TEST_F(LambdaFunctionTest, BranchesOfACaseGiveTheSame) {
  const Output index = Placeholder(scope_, kInt32, {});
  using Branch = std::function<Outputs(const Scope&)>;
  const std::vector<Branch> branches = {
      [](const Scope& s) -> Outputs { return {Constant(s, Tensor::Scalar(1.0f))}; },
      [](const Scope& s) -> Outputs { return {Constant(s, Tensor::Scalar(1))}; }};
  EXPECT_TRUE(Case(scope_, index, branches).empty());
  EXPECT_THAT(Error(), HasSubstr("branch 1 of a Case"));
}

}  // namespace
}  // namespace millrace
