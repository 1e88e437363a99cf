// SPDX-License-Identifier: Apache-2.0
// Gradients of tables by the rows that were taken of them, and what optimizers make of those.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "millrace/core.h"

namespace millrace {
namespace {

std::vector<float> Floats(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.num_elements()};
}

class SparseGradientsTest : public ::testing::TestWithParam<bool> {
 protected:
  SparseGradientsTest() {
    table_ = MakeVariable(
        root_, "table",
        Constant(root_, Tensor::FromValues<float>({1, 2, 3, 4, 5, 6, 7, 8}, Shape({4, 2}))),
        {.use_resource = GetParam()});
  }
  std::vector<float> Run(const Output& output) {
    if (!init_.valid()) {
      init_ = InitializeVariables(root_);
      auto session = Session::Create(graph_);
      EXPECT_TRUE(session.ok()) << session.status();
      session_ = std::make_unique<Session>(*std::move(session));
      EXPECT_TRUE(session_->RunTargets({init_}).ok());
    }
    auto value = session_->Eval(output);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? Floats(*value) : std::vector<float>();
  }

  Graph graph_;
  const Scope root_ = graph_.root();
  Variable table_;
  Operation init_;
  std::unique_ptr<Session> session_;
};

TEST_P(SparseGradientsTest, RowsThatWereTakenComeWithTheirIndices) {
  const Output rows = ops::GatherV2(root_, table_.read, {2, 0, 2}, 0);
  const Output loss = ReduceSum(root_, ops::Square(root_, rows));
  auto gradients = SparseGradients(root_, {{loss}}, {{table_.handle}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_TRUE((*gradients)[0].is_sparse());
  EXPECT_EQ(Run((*gradients)[0].values), (std::vector<float>{10, 12, 2, 4, 10, 12}));
  EXPECT_EQ(Run(ops::Cast(root_, (*gradients)[0].indices, kFloat)), (std::vector<float>{2, 0, 2}));
}

TEST_P(SparseGradientsTest, SeveralLookUpsAreOneGradientAndIndicesMayHaveAnyShape) {
  const Output one = ops::GatherV2(root_, table_.read, {1}, 0);
  const Output four =
      ops::Gather(root_, table_.read, Tensor::FromValues<int64_t>({0, 1, 2, 3}, Shape({2, 2})));
  const Output loss = ops::Add(root_, ReduceSum(root_, one), ReduceSum(root_, four));
  auto gradients = SparseGradients(root_, {{loss}}, {{table_.handle}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_TRUE((*gradients)[0].is_sparse());
  const GradientAndVariable g{(*gradients)[0].values, table_, (*gradients)[0].indices};
  EXPECT_EQ(Run(DenseGradient(root_, g)), (std::vector<float>{1, 1, 2, 2, 1, 1, 1, 1}));
}

TEST_P(SparseGradientsTest, OtherUsesMakeTheGradientDense) {
  const Output rows = ops::GatherV2(root_, table_.read, {3}, 0);
  const Output loss = ops::Add(root_, ReduceSum(root_, rows), ReduceSum(root_, table_.read));
  auto gradients = SparseGradients(root_, {{loss}}, {{table_.handle}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_FALSE((*gradients)[0].is_sparse());
  EXPECT_EQ(Run((*gradients)[0].values), (std::vector<float>{1, 1, 1, 1, 1, 1, 2, 2}));
}

TEST_P(SparseGradientsTest, GradientsStaysDense) {
  const Output rows = ops::GatherV2(root_, table_.read, {3, 3}, 0);
  auto gradients = Gradients(root_, {{ReduceSum(root_, rows)}}, {{table_.handle}});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(Run((*gradients)[0]), (std::vector<float>{0, 0, 0, 0, 0, 0, 2, 2}));
}

TEST_P(SparseGradientsTest, OptimizersChangeTheRowsThatAreNamed) {
  const Output rows = ops::GatherV2(root_, table_.read, {2, 2}, 0);
  auto train = Momentum({.learning_rate = 1.0f})->Minimize(root_, ReduceSum(root_, rows), nullptr);
  ASSERT_TRUE(train.ok()) << train.status();
  bool by_rows = false;
  for (const Operation& op : graph_.operations()) {
    by_rows |= op.type() == "SparseApplyMomentum" || op.type() == "ResourceSparseApplyMomentum";
  }
  EXPECT_TRUE(by_rows);
  Run(table_.read);
  ASSERT_TRUE(session_->RunTargets({*train}).ok());
  EXPECT_EQ(Run(table_.read), (std::vector<float>{1, 2, 3, 4, 3, 4, 7, 8}));
}

INSTANTIATE_TEST_SUITE_P(Variables, SparseGradientsTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Resource" : "Reference"; });

TEST(ResourceGatherTest, HasAGradientWithAndWithoutIndices) {
  Graph graph;
  const Scope root = graph.root();
  const Variable table = MakeVariable(
      root, "table", Constant(root, Tensor::FromValues<float>({1, 2, 3}, Shape({3, 1}))),
      {.use_resource = true});
  const Output rows = ops::ResourceGather(root, table.handle, {1, 1}, kFloat);
  const Output loss = ReduceSum(root, rows);
  auto sparse = SparseGradients(root, {{loss}}, {{table.handle}});
  auto dense = Gradients(root, {{loss}}, {{table.handle}});
  ASSERT_TRUE(sparse.ok() && dense.ok()) << sparse.status() << dense.status();
  EXPECT_TRUE((*sparse)[0].is_sparse());
  const Operation init = InitializeVariables(root);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok() && session->RunTargets({init}).ok());
  EXPECT_EQ(Floats(*session->Eval((*sparse)[0].values)), (std::vector<float>{1, 1}));
  EXPECT_EQ(Floats(*session->Eval((*dense)[0])), (std::vector<float>{0, 2, 0}));
}

}  // namespace
}  // namespace millrace
