// SPDX-License-Identifier: Apache-2.0
// What becomes of a loss scale over many steps that all overflow, or that never do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "millrace/core.h"
#include "millrace/keras_optimizers.h"

namespace millrace {
namespace {

// One weight, whose gradient is what is fed.
class LossScaleTest : public ::testing::Test {
 protected:
  LossScaleTest()
      : optimizer_(optimizers::Sgd({.learning_rate = 1.0}), {.dynamic_growth_steps = 1}) {
    const Scope root = graph_.root();
    weight_ = MakeVariable(root, "weight", Constant(root, Tensor::Scalar<float>(5)));
    x_ = Placeholder(root, kFloat, PartialShape({}));
    const auto gradients =
        optimizer_.ComputeGradients(root, Expr(root, weight_.read) * Expr(root, x_), {weight_});
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    const auto train = optimizer_.ApplyGradients(root, *gradients, nullptr);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    const Operation init = InitializeVariables(root);
    session_ = std::make_unique<Session>(*Session::Create(graph_));
    EXPECT_TRUE(session_->RunTargets({init}).ok());
  }

  void Step(float x, int times) {
    for (int i = 0; i < times; ++i) {
      const auto out = session_->Run({{x_, Tensor::Scalar<float>(x)}}, {}, {train_});
      ASSERT_TRUE(out.ok()) << out.status();
    }
  }
  float Value(const Variable& v) { return session_->Run({}, {v.read})->at(0).scalar<float>(); }
  float Scale() { return Value(optimizer_.variables()[1]); }

  Graph graph_;
  optimizers::LossScale optimizer_;
  Variable weight_;
  Output x_;
  Operation train_;
  std::unique_ptr<Session> session_;
};

TEST_F(LossScaleTest, IsNotZeroAfterManyStepsThatOverflow) {
  Step(std::numeric_limits<float>::quiet_NaN(), 200);
  EXPECT_GT(Scale(), 0);
  EXPECT_EQ(Value(weight_), 5);
  Step(1, 1);
  EXPECT_EQ(Value(weight_), 4);
}

TEST_F(LossScaleTest, IsNotInfiniteAfterManyStepsThatDoNotOverflow) {
  Step(0, 200);
  EXPECT_TRUE(std::isfinite(Scale()));
  Step(1, 1);
  EXPECT_EQ(Value(weight_), 4);
}

// As a file may hold it.
TEST_F(LossScaleTest, FindsItsWayBackFromAScaleThatIsNone) {
  for (const float scale : {0.0f, std::numeric_limits<float>::infinity()}) {
    const Operation assign = Assign(graph_.root(), optimizer_.variables()[1],
                                    Constant(graph_.root(), Tensor::Scalar<float>(scale)));
    const float before = Value(weight_);
    ASSERT_TRUE(session_->RunTargets({assign}).ok());
    Step(1, 1);
    EXPECT_EQ(Value(weight_), before) << scale;
    Step(1, 1);
    EXPECT_EQ(Value(weight_), before - 1) << scale;
  }
}

}  // namespace
}  // namespace millrace
