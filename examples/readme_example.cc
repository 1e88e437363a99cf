// SPDX-License-Identifier: Apache-2.0
// Fits a line to points: the example of the README, compiled and run as a test.
#include <cmath>
#include <cstdio>

#include "millrace/millrace.h"

namespace mr = millrace;

mr::StatusOr<float> FitLine() {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output x = mr::Placeholder(root.WithOpName("x"), mr::kFloat, {-1});
  const mr::Output y = mr::Placeholder(root.WithOpName("y"), mr::kFloat, {-1});
  const mr::Variable w = mr::MakeVariable(root, "w", mr::Zeros(root, {}));
  const mr::Variable b = mr::MakeVariable(root, "b", mr::Zeros(root, {}));
  const mr::Output line = mr::ops::Add(root, mr::ops::Mul(root, w.read, x), b.read);
  const mr::Output loss = mr::ReduceMean(root, mr::ops::SquaredDifference(root, line, y));
  const mr::Variable step = mr::GlobalStep(root);
  auto train = mr::GradientDescent({.learning_rate = 0.2f})->Minimize(root, loss, &step);
  if (!train.ok()) return train.status();

  const mr::Operation init = mr::InitializeVariables(root);
  auto session = mr::Session::Create(graph);  // or {.target = "grpc://127.0.0.1:2222"}
  if (!session.ok()) return session.status();
  if (mr::Status status = session->RunTargets({init}); !status.ok()) return status;
  const mr::Tensor xs = mr::Tensor::FromValues<float>({-1, 0, 1, 2});
  const mr::Tensor ys = mr::Tensor::FromValues<float>({-1, 1, 3, 5});  // y = 2 x + 1
  for (int i = 0; i < 200; ++i) {
    auto out = session->Run({{x, xs}, {y, ys}}, {loss}, {*train});
    if (!out.ok()) return out.status();
  }
  auto slope = session->Eval(w.read);
  if (!slope.ok()) return slope.status();
  return slope->scalar<float>();
}

int main() {
  const mr::StatusOr<float> slope = FitLine();
  std::printf("%s\n", slope.ok() ? "slope found:" : slope.status().ToString().c_str());
  if (slope.ok()) std::printf("%.3f\n", *slope);
  return slope.ok() && std::abs(*slope - 2.0f) < 0.01f ? 0 : 1;
}
