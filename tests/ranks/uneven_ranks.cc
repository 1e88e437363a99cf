// SPDX-License-Identifier: Apache-2.0
// A rank with data for as many steps as its number says, and two more: trains, joins, and prints
// what its variable has become.
#include <cstdio>

#include "millrace/core.h"
#include "millrace/data_parallel.h"
#include "millrace/status_macros.h"

namespace mr = millrace;
namespace dp = mr::dp;

mr::Status Train() {
  MR_RETURN_IF_ERROR(dp::Init({.communication = {.timeout_seconds = 30}}));
  const int rank = *dp::Rank();
  mr::Graph graph;
  const mr::Scope scope = graph.root();
  const mr::Variable w =
      mr::MakeVariable(scope, "w", mr::Constant(scope, mr::Tensor::FromValues<float>({0, 0})));
  const mr::Variable b = mr::MakeVariable(scope, "b", mr::Constant(scope, mr::Tensor::Scalar(0.f)));
  // Gradients of one everywhere.
  const mr::Output loss = mr::ReduceSum(scope, w.read) + b.read;
  const auto optimizer = dp::DistributedOptimizer(mr::GradientDescent({.learning_rate = 1.0f}),
                                                  {.op = mr::ReduceOp::kSum, .allow_join = true});
  MR_ASSIGN_OR_RETURN(const mr::Operation train, optimizer->Minimize(scope, loss, nullptr));
  const mr::Operation init = mr::InitializeVariables(scope);
  mr::SessionOptions options;
  MR_RETURN_IF_ERROR(dp::ConfigureSession(&options));
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph, options));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  const int steps = rank + 2;
  for (int i = 0; i < steps; ++i) {
    MR_RETURN_IF_ERROR(session.RunTargets({train}));
  }
  MR_ASSIGN_OR_RETURN(const int last, dp::Join());
  MR_ASSIGN_OR_RETURN(const mr::Tensor value, session.Eval(b.read));
  std::printf("rank %d made %d steps, b is %g, rank %d was the last\n", rank, steps,
              value.scalar<float>(), last);
  MR_RETURN_IF_ERROR(session.Close());
  return dp::Shutdown();
}

int main() {
  const mr::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
