// SPDX-License-Identifier: Apache-2.0
// A program outside the tree: fits a line, and says how well.
#include <cstdio>

#include "millrace/millrace.h"

namespace mr = millrace;

mr::Status FitALine() {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output x = mr::Placeholder(root.WithOpName("x"), mr::kFloat, {-1});
  const mr::Output y = mr::Placeholder(root.WithOpName("y"), mr::kFloat, {-1});
  const mr::Variable w = mr::MakeVariable(root, "w", mr::Zeros(root, {}));
  const mr::Output loss =
      mr::ReduceMean(root, mr::ops::SquaredDifference(root, mr::ops::Mul(root, w.read, x), y));
  const mr::Variable step = mr::GlobalStep(root);
  MR_ASSIGN_OR_RETURN(const mr::Operation train,
                      mr::GradientDescent({.learning_rate = 0.1f})->Minimize(root, loss, &step));
  const mr::Operation init = mr::InitializeVariables(root);
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  const mr::Tensor xs = mr::Tensor::FromValues<float>({1, 2}),
                   ys = mr::Tensor::FromValues<float>({2, 4});
  for (int i = 0; i < 50; ++i) {
    MR_RETURN_IF_ERROR(session.Run({{x, xs}, {y, ys}}, {}, {train}).status());
  }
  MR_ASSIGN_OR_RETURN(const auto out, session.Run({}, {w.read}, {}));
  std::printf("w = %.3f\n", out[0].scalar<float>());
  return mr::OkStatus();
}

int main() {
  const mr::Status status = FitALine();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
