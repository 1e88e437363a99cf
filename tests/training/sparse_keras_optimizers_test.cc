// SPDX-License-Identifier: Apache-2.0
// Keras's optimizers given rows of a gradient: what they make of them is what they make of the
// whole gradient, and what they compute does not grow with the table where no row without a
// gradient moves.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/core.h"
#include "millrace/keras_optimizers.h"

namespace millrace {
namespace {

using optimizers::KerasOptimizer;

struct Case {
  std::string name;
  std::function<std::unique_ptr<KerasOptimizer>()> make;
  // Slots that decay whole; -1: all rows move, so all of it is computed.
  int whole_slots;
};

std::vector<Case> Cases() {
  namespace keras = optimizers;
  return {
      {"Sgd", [] { return keras::Sgd({.learning_rate = 0.1}); }, 0},
      {"SgdClipped",
       [] { return keras::Sgd({.learning_rate = 0.1, .common = {.clip_value = 0.4}}); }, 0},
      {"Adagrad", [] { return keras::Adagrad({.learning_rate = 0.1}); }, 0},
      {"AdagradNorm",
       [] { return keras::Adagrad({.learning_rate = 0.1, .common = {.clip_norm = 0.7}}); }, 0},
      {"AdagradScaled",
       [] { return keras::Adagrad({.learning_rate = 0.1, .common = {.loss_scale_factor = 4.0}}); },
       0},
      {"Adadelta", [] { return keras::Adadelta({.learning_rate = 1.0}); }, 2},
      {"RmsProp", [] { return keras::RmsProp({.learning_rate = 0.1}); }, 1},
      {"RmsPropCentered", [] { return keras::RmsProp({.learning_rate = 0.1, .centered = true}); },
       2},
      {"RmsPropMomentum", [] { return keras::RmsProp({.learning_rate = 0.1, .momentum = 0.5}); },
       -1},
      {"Momentum", [] { return keras::Sgd({.learning_rate = 0.1, .momentum = 0.9}); }, -1},
      {"Adam", [] { return keras::Adam({.learning_rate = 0.1}); }, -1},
      {"Ftrl", [] { return keras::Ftrl({.learning_rate = 0.1}); }, -1},
      {"AdagradDecay",
       [] { return keras::Adagrad({.learning_rate = 0.1, .common = {.weight_decay = 0.01}}); }, -1},
  };
}

constexpr int64_t kRows = 23, kWidth = 3, kNamed = 5;

// The same weights trained from the rows of a gradient, or from all of it.
class Table {
 public:
  Table(const Case& c, bool use_resource, bool sparse) : optimizer_(c.make()) {
    const Scope root = graph_.root();
    std::vector<float> initial;
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      initial.push_back(0.1f * static_cast<float>(i % 17) - 0.7f);
    }
    table_ = MakeVariable(
        root, "table", Constant(root, Tensor::FromValues<float>(initial, Shape({kRows, kWidth}))),
        {.use_resource = use_resource});
    values_ = Placeholder(root, kFloat, PartialShape({kNamed, kWidth}));
    indices_ = Placeholder(root, kInt64, PartialShape({kNamed}));
    applies_ = Placeholder(root, kBool, PartialShape({}));
    GradientAndVariable g{values_, table_, indices_};
    if (!sparse) g = {DenseGradient(root, g), table_};
    const std::size_t before = graph_.operations().size();
    auto train = optimizer_->ApplyGradientsIf(root, {{g}}, applies_, nullptr);
    EXPECT_TRUE(train.ok()) << train.status();
    if (!train.ok()) return;
    train_ = *train;
    const std::vector<Operation> all = graph_.operations();
    added_.assign(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
    const Operation init = InitializeVariables(root);
    auto session = Session::Create(graph_);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
    EXPECT_TRUE(session_->RunTargets({init}).ok());
  }

  void Step(int i) {
    std::vector<float> values;
    std::vector<int64_t> rows;
    for (int64_t k = 0; k < kNamed; ++k) {
      // One row is named twice in each step; some rows are named in several steps, most in none.
      rows.push_back(k == kNamed - 1 ? rows[0] : (3 * i + 5 * k) % 12);
      for (int64_t c = 0; c < kWidth; ++c) {
        values.push_back(0.3f * static_cast<float>((7 * i + 3 * k + c) % 9) - 1.1f);
      }
    }
    auto out = session_->Run({{values_, Tensor::FromValues<float>(values, Shape({kNamed, kWidth}))},
                              {indices_, Tensor::FromValues<int64_t>(rows, Shape({kNamed}))},
                              {applies_, Tensor::Scalar<bool>(i != 3)}},
                             {}, {train_});
    ASSERT_TRUE(out.ok()) << out.status();
  }

  // The weights and then each variable of the optimizer that is as large.
  std::vector<std::vector<float>> State() {
    std::vector<std::vector<float>> state = {Value(table_)};
    for (const Variable& v : optimizer_->variables()) {
      if (v.shape().rank() == 2) state.push_back(Value(v));
    }
    return state;
  }

  // Ops of the update that compute something as large as the table.
  std::vector<std::string> WholeOps() const {
    std::vector<std::string> found;
    for (const Operation& op : added_) {
      if (op.name().find("Initializer") != std::string::npos) continue;
      for (const char* type : {"Mul", "Sub", "Add", "RealDiv", "Sqrt", "Square",
                               "UnsortedSegmentSum", "Maximum", "Pow"}) {
        if (op.type() != type) continue;
        const PartialShape shape = op.output(0).shape();
        if (shape.rank() == 2 && shape.dim(0) == kRows) found.push_back(op.type());
      }
    }
    return found;
  }

 private:
  std::vector<float> Value(const Variable& v) {
    auto value = session_->Eval(v.read);
    EXPECT_TRUE(value.ok()) << value.status();
    if (!value.ok()) return {};
    return {value->data<float>(), value->data<float>() + value->num_elements()};
  }

  const std::unique_ptr<KerasOptimizer> optimizer_;
  Graph graph_;
  Variable table_;
  Output values_, indices_, applies_;
  Operation train_;
  std::vector<Operation> added_;
  std::unique_ptr<Session> session_;
};

class SparseKerasOptimizersTest : public ::testing::TestWithParam<bool> {};

TEST_P(SparseKerasOptimizersTest, RowsGiveWhatTheWholeGradientGives) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    Table rows(c, GetParam(), /*sparse=*/true), whole(c, GetParam(), /*sparse=*/false);
    ASSERT_FALSE(HasFatalFailure() || HasNonfatalFailure());
    for (int i = 0; i < 7; ++i) {
      rows.Step(i);
      whole.Step(i);
      const auto got = rows.State(), want = whole.State();
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t v = 0; v < got.size(); ++v) {
        ASSERT_EQ(got[v].size(), want[v].size());
        for (std::size_t k = 0; k < got[v].size(); ++k) {
          ASSERT_NEAR(got[v][k], want[v][k], 2e-6 * (1 + std::abs(want[v][k])))
              << "step " << i << ", variable " << v << ", element " << k;
        }
      }
    }
  }
}

TEST_P(SparseKerasOptimizersTest, OnlyWhatDecaysIsComputedWhole) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    Table rows(c, GetParam(), /*sparse=*/true);
    const std::vector<std::string> whole = rows.WholeOps();
    if (c.whole_slots < 0) {
      EXPECT_GT(whole.size(), 2u);
    } else {
      EXPECT_EQ(whole, std::vector<std::string>(c.whole_slots, "Mul"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variables, SparseKerasOptimizersTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Resource" : "Reference"; });

}  // namespace
}  // namespace millrace
