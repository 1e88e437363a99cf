// SPDX-License-Identifier: Apache-2.0
// Operators on outputs and variables.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "millrace/core.h"

namespace millrace {
namespace {

std::vector<float> Floats(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.num_elements()};
}

TEST(MathTest, OutputsAndVariablesAreAddedAndMultiplied) {
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root, kFloat, {2});
  const Variable w = MakeVariable(root, "w", Constant(root, Tensor::Scalar<float>(3)));
  const Output line = w * x + 1;
  const Output back = 1 - 6 / (2 * x) - -x;
  const Output big = x > w;
  const Operation init = InitializeVariables(root);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok() && session->RunTargets({init}).ok());
  auto out = session->Run({{x, Tensor::FromValues<float>({1, 6})}}, {line, back, big});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Floats((*out)[0]), (std::vector<float>{4, 19}));
  EXPECT_EQ(Floats((*out)[1]), (std::vector<float>{-1, 6.5f}));
  EXPECT_FALSE((*out)[2].data<bool>()[0]);
  EXPECT_TRUE((*out)[2].data<bool>()[1]);
}

TEST(MathTest, ErrorsNameTheLineOfTheOperator) {
  Graph graph;
  const Output x = Placeholder(graph.root(), kFloat, {2});
  const Output y = Placeholder(graph.root(), kFloat, {3});
  const Output sum = x + y;
  EXPECT_FALSE(sum.valid());
  EXPECT_NE(graph.status().ToString().find("math_test.cc"), std::string::npos) << graph.status();
}

}  // namespace
}  // namespace millrace
