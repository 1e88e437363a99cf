// SPDX-License-Identifier: Apache-2.0
// Branches and loops that C++ builds, and their derivatives against finite differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "millrace/control_flow.h"
#include "millrace/core.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class ControlFlowTest : public ::testing::Test {
 protected:
  ControlFlowTest() : root_(graph_.root()), x_(Placeholder(root_.WithOpName("x"), kDouble, {})) {}

  StatusOr<std::vector<Tensor>> Run(const std::vector<Output>& fetches, double x) {
    StatusOr<Session> session = Session::Create(graph_, options_);
    if (!session.ok()) return session.status();
    const std::vector<Feed> feeds = {{x_, Tensor::Scalar<double>(x)}};
    return session->Run(feeds, fetches);
  }
  double Value(const Output& fetch, double x) {
    const auto values = Run({fetch}, x);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? (*values)[0].scalar<double>() : NAN;
  }
  // dy/dx as Gradients() says, beside the slope of y around x.
  void CheckGradient(const Output& y, std::initializer_list<double> points) {
    ASSERT_TRUE(graph_.status().ok()) << graph_.status();
    const auto dx = Gradients(root_, {&y, 1}, {&x_, 1});
    ASSERT_TRUE(dx.ok()) << dx.status();
    ASSERT_TRUE((*dx)[0].valid());
    for (const double x : points) {
      constexpr double kStep = 1e-5;
      const double slope = (Value(y, x + kStep) - Value(y, x - kStep)) / (2 * kStep);
      EXPECT_NEAR(Value((*dx)[0], x), slope, 1e-6 * (1 + std::abs(slope))) << "x = " << x;
    }
  }
  Output Const(double value) { return ops::Const(root_, Tensor::Scalar<double>(value), kDouble); }

  using ReadElement = std::function<Output()>;
  using TermOf = std::function<Output(const Scope& scope, const ReadElement& read)>;
  // The sum of what `term` makes of the elements x^2 i, i in [0, 4), of an array that one loop
  // fills and another reads. Invalid if it cannot be built.
  Output SumOverArray(bool clear_after_read, const TermOf& term) {
    const int n = 4;
    const auto squares =
        ops::TensorArrayV3(root_, n, kDouble, {.clear_after_read = clear_after_read});
    const Output zero = ops::Const(root_, Tensor::Scalar<int32_t>(0), kInt32);
    const auto below = [&](const Scope& s, std::span<const Output> v) {
      return ops::Less(s, v[0], n);
    };
    const auto filled = WhileLoop(
        root_, {zero, squares.flow}, below, [&](const Scope& s, std::span<const Output> v) {
          const Output value = ops::Mul(s, ops::Square(s, x_), ops::Cast(s, v[0], kDouble));
          return std::vector<Output>{ops::AddV2(s, v[0], 1),
                                     ops::TensorArrayWriteV3(s, squares.handle, v[0], value, v[1])};
        });
    if (filled.size() != 2) return {};
    const auto sums =
        WhileLoop(root_, {zero, Const(0)}, below, [&](const Scope& s, std::span<const Output> v) {
          const Output added = term(s, [&] {
            return ops::TensorArrayReadV3(s, squares.handle, v[0], filled[1], kDouble);
          });
          return std::vector<Output>{ops::AddV2(s, v[0], 1), ops::AddV2(s, v[1], added)};
        });
    return sums.size() == 2 ? sums[1] : Output();
  }

  SessionOptions options_;
  Graph graph_;
  Scope root_;
  Output x_;
};

TEST_F(ControlFlowTest, CondTakesOneBranch) {
  const Output positive = ops::Greater(root_, x_, Const(0));
  const auto y = Cond(
      root_, positive, [&](const Scope& s) { return std::vector<Output>{ops::Square(s, x_)}; },
      [&](const Scope& s) { return std::vector<Output>{ops::Mul(s, x_, 5.0)}; });
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_EQ(Value(y[0], 3), 9);
  EXPECT_EQ(Value(y[0], -3), -15);
  CheckGradient(ops::Sin(root_, y[0]), {2.0, -0.7});
}

TEST_F(ControlFlowTest, AFetchOnABranchThatWasNotTakenIsAnErrorThatNamesIt) {
  const auto side = ops::Switch(root_, x_, ops::Greater(root_, x_, Const(0)));
  const Output end = ops::Identity(root_.WithOpName("deadend"), side.output_false);
  EXPECT_EQ(Value(end, -2), -2);
  const Status dead = Run({end}, 2).status();
  EXPECT_EQ(dead.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dead.message()), HasSubstr("deadend"));
  EXPECT_THAT(std::string(dead.message()), HasSubstr("a branch that was not taken"));
}

TEST_F(ControlFlowTest, BranchesMayBeWithinBranchesAndGiveWhatTheyFind) {
  const auto y = Cond(
      root_, ops::Greater(root_, x_, Const(0)),
      [&](const Scope& s) {
        return Cond(
            s, ops::Greater(s, x_, 1.0),
            [&](const Scope& inner) {
              return std::vector<Output>{ops::Mul(inner, x_, ops::Exp(inner, x_))};
            },
            [&](const Scope&) { return std::vector<Output>{x_}; });
      },
      [&](const Scope& s) { return std::vector<Output>{ops::Neg(s, x_)}; });
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_EQ(Value(y[0], 0.5), 0.5);
  EXPECT_EQ(Value(y[0], -4), 4);
  CheckGradient(y[0], {2.0, 0.4, -1.0});
}

// Both give the state after `n` times "state = f(state)".
std::vector<Output> Repeat(const Scope& scope, int n, const Output& start,
                           const std::function<Output(const Scope&, const Output&)>& f) {
  const Output zero = ops::Const(scope, Tensor::Scalar<int32_t>(0), kInt32);
  return WhileLoop(
      scope, {zero, start},
      [&](const Scope& s, std::span<const Output> v) { return ops::Less(s, v[0], n); },
      [&](const Scope& s, std::span<const Output> v) {
        return std::vector<Output>{ops::AddV2(s, v[0], 1), f(s, v[1])};
      });
}

TEST_F(ControlFlowTest, WhileLoopGoesRoundAndMayUseWhatIsOutside) {
  const auto y = Repeat(root_, 5, Const(1),
                        [&](const Scope& s, const Output& v) { return ops::Mul(s, v, x_); });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  EXPECT_EQ(Value(y[1], 3), 243);
}

TEST_F(ControlFlowTest, GradientsGoThroughLoops) {
  const auto y = Repeat(root_, 4, x_, [&](const Scope& s, const Output& v) {
    return ops::AddV2(s, ops::Sin(s, v), ops::Mul(s, x_, x_));
  });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  CheckGradient(y[1], {0.5, -0.3});
}

TEST_F(ControlFlowTest, ALoopThatNeverRunsPassesItsGradientOn) {
  const auto y = Repeat(root_, 0, ops::Square(root_, x_),
                        [&](const Scope& s, const Output& v) { return ops::Mul(s, v, x_); });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  CheckGradient(y[1], {3.0});
}

TEST_F(ControlFlowTest, GradientsGoThroughLoopsWithinLoopsAndBranchesInThem) {
  const auto y = Repeat(root_, 3, x_, [&](const Scope& s, const Output& v) {
    const auto inner = Repeat(s, 2, v, [&](const Scope& t, const Output& w) {
      return Cond(
          t, ops::Greater(t, w, 0.5),
          [&](const Scope& u) { return std::vector<Output>{ops::Mul(u, w, x_)}; },
          [&](const Scope& u) { return std::vector<Output>{ops::AddV2(u, w, x_)}; })[0];
    });
    return inner.size() == 2 ? inner[1] : Output();
  });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  CheckGradient(y[1], {0.3, 1.2});
}

TEST_F(ControlFlowTest, GradientsGoThroughLoopsInTheBranchThatIsTaken) {
  const auto y = Cond(
      root_, ops::Greater(root_, x_, Const(0)),
      [&](const Scope& s) {
        const auto power =
            Repeat(s, 3, x_, [&](const Scope& t, const Output& v) { return ops::Mul(t, v, x_); });
        return power.size() == 2 ? std::vector<Output>{power[1]} : power;
      },
      [&](const Scope& s) {
        const auto sines =
            Repeat(s, 2, x_, [&](const Scope& t, const Output& v) { return ops::Sin(t, v); });
        return sines.size() == 2 ? std::vector<Output>{sines[1]} : sines;
      });
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  EXPECT_EQ(Value(y[0], 2), 16);
  CheckGradient(y[0], {1.5, -0.8});
}

TEST_F(ControlFlowTest, GradientsOfLoopsThatSpanDevices) {
  options_.num_cpu_devices = 2;
  const auto y = Repeat(root_, 3, x_, [&](const Scope& s, const Output& v) {
    const Scope there = s.WithDevice("/device:CPU:1");
    return ops::AddV2(s.WithDevice("/device:CPU:0"), ops::Sin(there, v), ops::Mul(there, v, x_));
  });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  CheckGradient(y[1], {0.5, -0.3});
}

TEST_F(ControlFlowTest, ALoopThatNobodyDifferentiatesMayBeWiredInAnyWay) {
  const Output odd = ops::Enter(root_, x_, "odd");
  const Output back = ops::Exit(root_, odd);
  CheckGradient(ops::Square(root_, x_), {3.0});
  const Status refused = Gradients(root_, {&back, 1}, {&x_, 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no Merge behind an Enter"));
}

TEST_F(ControlFlowTest, WhatLeavesALoopTwiceBringsBothGradients) {
  const auto y =
      Repeat(root_, 2, x_, [&](const Scope& s, const Output& v) { return ops::Mul(s, v, x_); });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  const Output again = ops::Exit(root_, y[1].op().input(0));
  CheckGradient(ops::AddV2(root_, y[1], ops::Square(root_, again)), {0.9, -1.2});
}

TEST_F(ControlFlowTest, TheGradientOfAPowerIsItsClosedForm) {
  // y = c * x^n; the loop takes c as its start and x from outside.
  const Output c = Placeholder(root_.WithOpName("c"), kDouble, {});
  const auto power =
      Repeat(root_, 7, c, [&](const Scope& s, const Output& v) { return ops::Mul(s, v, x_); });
  ASSERT_EQ(power.size(), 2u) << graph_.status();
  const Output xs[] = {x_, c};
  const auto dxs = Gradients(root_, {&power[1], 1}, xs);
  ASSERT_TRUE(dxs.ok()) << dxs.status();
  auto session = Session::Create(graph_);
  ASSERT_TRUE(session.ok()) << session.status();
  const Feed feeds[] = {{x_, Tensor::Scalar<double>(1.5)}, {c, Tensor::Scalar<double>(3)}};
  for (int i = 0; i < 3; ++i) {
    const auto values = session->Run(feeds, *dxs);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_NEAR((*values)[0].scalar<double>(), 3 * 7 * std::pow(1.5, 6), 1e-9);
    EXPECT_NEAR((*values)[1].scalar<double>(), std::pow(1.5, 7), 1e-9);
  }
}

TEST_F(ControlFlowTest, WhatALoopRunsAfterHasRunBeforeItBegins) {
  const Output v = ops::VarHandleOp(root_, kDouble, {}, {.shared_name = "v"});
  const Operation set = ops::AssignVariableOp(root_, v, x_);
  const auto y = WhileLoop(
      root_, {Const(0)},
      [&](const Scope& s, std::span<const Output> i) { return ops::Less(s, i[0], 3.0); },
      [&](const Scope& s, std::span<const Output> i) {
        const Scope after = s.WithControlDependencies({set});
        return std::vector<Output>{ops::AddV2(after, i[0], ops::ReadVariableOp(after, v, kDouble))};
      });
  ASSERT_EQ(y.size(), 1u) << graph_.status();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Value(y[0], 2), 4);
}

TEST_F(ControlFlowTest, GradientsGoThroughTensorArraysThatALoopFillsAndReads) {
  const Output sum = SumOverArray(
      true, [](const Scope& s, const ReadElement& read) { return ops::Sin(s, read()); });
  ASSERT_TRUE(sum.valid()) << graph_.status();
  CheckGradient(sum, {0.7, -1.1});
  CheckGradient(sum, {0.4});  // a second gradient has arrays of its own
}

TEST_F(ControlFlowTest, GradientsGoThroughArraysThatAreStackedAndUnstacked) {
  const Output row = ops::Pack(root_, {x_, ops::Square(root_, x_), Const(2)});
  const auto array = ops::TensorArrayV3(root_, 3, kDouble);
  const Output indices = ops::Const(root_, Tensor::FromValues<int32_t>({0, 1, 2}), kInt32);
  const Output flow = ops::TensorArrayScatterV3(root_, array.handle, indices, row, array.flow);
  const Output all = ops::TensorArrayGatherV3(root_, array.handle, indices, flow, kDouble);
  CheckGradient(ops::Prod(root_, all, Tensor::FromValues<int32_t>({0})), {1.3, -0.2});
}

TEST_F(ControlFlowTest, GradientsGoThroughListsThatALoopMakesAndTakesApart) {
  const Output scalar = ops::Const(root_, Tensor(kInt32, Shape({0})), kInt32);
  const auto pushed =
      Repeat(root_, 5, ops::EmptyTensorList(root_, scalar, -1, kDouble),
             [&](const Scope& s, const Output& list) {
               const Output length = ops::Cast(s, ops::TensorListLength(s, list), kDouble);
               return ops::TensorListPushBack(s, list, ops::Sin(s, ops::Mul(s, x_, length)));
             });
  ASSERT_EQ(pushed.size(), 2u) << graph_.status();
  const Output stacked = ops::TensorListStack(root_, pushed[1], scalar, kDouble);
  const Output zero = ops::Const(root_, Tensor::Scalar<int32_t>(0), kInt32);
  const auto popped = WhileLoop(
      root_, {zero, pushed[1], Const(1)},
      [&](const Scope& s, std::span<const Output> v) { return ops::Less(s, v[0], 3); },
      [&](const Scope& s, std::span<const Output> v) {
        const auto last = ops::TensorListPopBack(s, v[1], scalar, kDouble);
        return std::vector<Output>{ops::AddV2(s, v[0], 1), last.output_handle,
                                   ops::Mul(s, v[2], last.tensor)};
      });
  ASSERT_EQ(popped.size(), 3u) << graph_.status();
  const Output sum = ops::Sum(root_, stacked, Tensor::FromValues<int32_t>({0}));
  CheckGradient(ops::AddV2(root_, popped[2], sum), {0.9, -0.3});
}

// One thread keeps a value in one place, whoever reads it.
TEST_F(ControlFlowTest, AListIsNotTakenFromThoseThatReadItLater) {
  const Output scalar = ops::Const(root_, Tensor(kInt32, Shape({0})), kInt32);
  Output list = ops::EmptyTensorList(root_, scalar, -1, kDouble);
  list = ops::TensorListPushBack(root_, list, x_);
  list = ops::TensorListPushBack(root_, list, ops::Mul(root_, x_, 10.0));
  std::vector<Output> fetches;
  for (int i = 0; i < 3; ++i) {
    const auto popped = ops::TensorListPopBack(root_, list, scalar, kDouble);
    const Output longer = ops::TensorListPushBack(root_, list, x_);
    fetches.push_back(popped.tensor);
    fetches.push_back(ops::TensorListLength(root_, popped.output_handle));
    fetches.push_back(ops::TensorListLength(root_, longer));
  }
  for (const int threads : {-1, 2}) {
    options_.inter_op_threads = threads;
    auto session = Session::Create(graph_, options_);
    ASSERT_TRUE(session.ok()) << session.status();
    for (int step = 0; step < 20; ++step) {
      const std::vector<Feed> feeds = {{x_, Tensor::Scalar<double>(step)}};
      const auto values = session->Run(feeds, fetches);
      ASSERT_TRUE(values.ok()) << values.status();
      for (std::size_t i = 0; i < values->size(); i += 3) {
        EXPECT_EQ((*values)[i].scalar<double>(), 10.0 * step);
        EXPECT_EQ((*values)[i + 1].scalar<int32_t>(), 1);
        EXPECT_EQ((*values)[i + 2].scalar<int32_t>(), 3);
      }
    }
  }
}

TEST_F(ControlFlowTest, GradientsReachVariablesThatAreReadInLoopsAndBranches) {
  // y = v^3 * (p ? v : 1), with v = 2.
  const Output v = ops::VarHandleOp(root_, kDouble, {}, {.shared_name = "v"});
  const Operation set = ops::AssignVariableOp(root_, v, Const(2));
  const auto power = Repeat(root_, 3, Const(1), [&](const Scope& s, const Output& y) {
    return ops::Mul(s, y, ops::ReadVariableOp(s, v, kDouble));
  });
  ASSERT_EQ(power.size(), 2u) << graph_.status();
  const auto factor = Cond(
      root_, ops::Greater(root_, x_, Const(0)),
      [&](const Scope& s) { return std::vector<Output>{ops::ReadVariableOp(s, v, kDouble)}; },
      [&](const Scope& s) {
        return std::vector<Output>{ops::Const(s, Tensor::Scalar<double>(1), kDouble)};
      });
  ASSERT_EQ(factor.size(), 1u) << graph_.status();
  const Output y = ops::Mul(root_, power[1], factor[0]);
  const auto dv = Gradients(root_, {&y, 1}, {&v, 1});
  ASSERT_TRUE(dv.ok()) << dv.status();
  ASSERT_TRUE((*dv)[0].valid());
  auto session = Session::Create(graph_);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({set}).ok());
  const auto slope = [&](double x) {
    const Feed feed = {x_, Tensor::Scalar<double>(x)};
    const auto values = session->Run({&feed, 1}, *dv);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? (*values)[0].scalar<double>() : NAN;
  };
  EXPECT_EQ(slope(1), 32);   // d v^4
  EXPECT_EQ(slope(-1), 12);  // d v^3
}

TEST_F(ControlFlowTest, WhatIsRandomInALoopIsTheSameForItsGradient) {
  const auto random = [&](const Scope& s) {
    return ops::RandomUniform(s, ops::Const(s, Tensor(kInt32, Shape({0})), kInt32), kDouble);
  };
  // y = x^3 * r1 * r2 * r3: x * dy/dx = 3 y in the same step.
  const auto y = Repeat(root_, 3, Const(1), [&](const Scope& s, const Output& v) {
    return ops::Mul(s, ops::Mul(s, v, x_), random(s));
  });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  const auto dx = Gradients(root_, {&y[1], 1}, {&x_, 1});
  ASSERT_TRUE(dx.ok()) << dx.status();
  for (int i = 0; i < 5; ++i) {
    const auto values = Run({y[1], (*dx)[0]}, 2);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_NEAR(2 * (*values)[1].scalar<double>(), 3 * (*values)[0].scalar<double>(), 1e-12);
  }

  const auto nested = Repeat(root_, 2, x_, [&](const Scope& s, const Output& v) {
    const auto inner =
        Repeat(s, 2, v, [&](const Scope& t, const Output& w) { return ops::Mul(t, w, random(t)); });
    return inner.size() == 2 ? inner[1] : Output();
  });
  ASSERT_EQ(nested.size(), 2u) << graph_.status();
  const Status refused = Gradients(root_, {&nested[1], 1}, {&x_, 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("RandomUniform"));
}

TEST_F(ControlFlowTest, DerivativesOfLoopsHaveDerivatives) {
  // x^4, three times.
  const auto power =
      Repeat(root_, 3, x_, [&](const Scope& s, const Output& v) { return ops::Mul(s, v, x_); });
  ASSERT_EQ(power.size(), 2u) << graph_.status();
  Output y = power[1];
  const double values[] = {16, 32, 48, 48};  // and its derivatives, where x is 2
  for (const double value : values) {
    EXPECT_EQ(Value(y, 2), value);
    const auto dx = Gradients(root_, {&y, 1}, {&x_, 1});
    ASSERT_TRUE(dx.ok()) << dx.status();
    ASSERT_TRUE((*dx)[0].valid());
    CheckGradient(y, {0.7, -1.3});
    y = (*dx)[0];
  }
}

TEST_F(ControlFlowTest, ASessionThatRanAGradientRunsItsDerivativeToo) {
  const auto y = Repeat(root_, 4, x_, [&](const Scope& s, const Output& v) {
    return ops::AddV2(s, ops::Sin(s, v), ops::Mul(s, x_, x_));
  });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  const auto dx = Gradients(root_, {&y[1], 1}, {&x_, 1});
  ASSERT_TRUE(dx.ok()) << dx.status();
  auto session = Session::Create(graph_);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto at = [&](const Output& fetch, double x) {
    const auto value = session->Run({{x_, Tensor::Scalar<double>(x)}}, {fetch});
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? (*value)[0].scalar<double>() : NAN;
  };
  const double before = at((*dx)[0], 0.4);
  const auto ddx = Gradients(root_, {&(*dx)[0], 1}, {&x_, 1});
  ASSERT_TRUE(ddx.ok()) << ddx.status();
  EXPECT_EQ(at((*dx)[0], 0.4), before);
  const double slope = (at((*dx)[0], 0.4 + 1e-5) - at((*dx)[0], 0.4 - 1e-5)) / 2e-5;
  EXPECT_NEAR(at((*ddx)[0], 0.4), slope, 1e-6 * (1 + std::abs(slope)));
}

TEST_F(ControlFlowTest, DerivativesOfLoopsThatFillAndReadArraysHaveDerivatives) {
  // Each element is read twice.
  const Output sum = SumOverArray(false, [&](const Scope& s, const ReadElement& read) {
    const Output once = read(), twice = read();
    return ops::Mul(s, ops::Sin(s, once), ops::Mul(s, twice, x_));
  });
  ASSERT_TRUE(sum.valid()) << graph_.status();
  CheckGradient(sum, {0.7, -1.1});
  const auto dx = Gradients(root_, {&sum, 1}, {&x_, 1});
  ASSERT_TRUE(dx.ok()) << dx.status();
  CheckGradient((*dx)[0], {0.7, -1.1});
}

TEST_F(ControlFlowTest, DerivativesOfLoopsWithinLoopsHaveDerivatives) {
  const auto y = Repeat(root_, 3, x_, [&](const Scope& s, const Output& v) {
    const auto inner = Repeat(
        s, 2, v, [&](const Scope& t, const Output& w) { return ops::Sin(t, ops::Mul(t, w, x_)); });
    return inner.size() == 2 ? ops::AddV2(s, inner[1], v) : Output();
  });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  const auto dx = Gradients(root_, {&y[1], 1}, {&x_, 1});
  ASSERT_TRUE(dx.ok()) << dx.status();
  CheckGradient((*dx)[0], {0.6, -1.2});
}

// As a graph of TensorFlow's may have it: the loop takes apart what nobody says who stacked.
TEST_F(ControlFlowTest, ValuesOfAStackThatGradientsDidNotMakeHaveNoDerivative) {
  const Output stack = ops::StackV2(root_, 10, kDouble);
  const Output pushed = ops::StackPushV2(root_, stack, x_);
  const auto y = Repeat(root_.WithControlDependencies({pushed.op()}), 1, x_,
                        [&](const Scope& s, const Output& v) {
                          return ops::Mul(s, v, ops::StackPopV2(s, stack, kDouble));
                        });
  ASSERT_EQ(y.size(), 2u) << graph_.status();
  const Status refused = Gradients(root_, {&y[1], 1}, {&x_, 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("that Gradients() did not make"));
}

TEST_F(ControlFlowTest, WhatIsWrongIsSaidWithThePlaceOfTheCall) {
  Cond(
      root_, ops::Greater(root_, x_, Const(0)),
      [&](const Scope&) { return std::vector<Output>{x_}; },
      [&](const Scope&) { return std::vector<Output>{}; });
  EXPECT_THAT(std::string(graph_.status().message()), HasSubstr("branches of a Cond give 1 and 0"));
  EXPECT_THAT(std::string(graph_.status().message()), HasSubstr("control_flow_test.cc"));
}

}  // namespace
}  // namespace millrace
