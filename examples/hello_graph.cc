// SPDX-License-Identifier: Apache-2.0
// The smallest program: builds a graph, runs it twice with other values, prints what comes back.
#include <cstdio>
#include <vector>

#include "millrace/core.h"

namespace mr = millrace;

mr::Status Hello() {
  // A graph says what is computed; nothing is computed yet. A mistake is kept in its status.
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output x = mr::Placeholder(root.WithOpName("x"), mr::kFloat, {3});
  const mr::Output norm = mr::ops::Sqrt(root, mr::ReduceSum(root, x * x));
  MR_RETURN_IF_ERROR(graph.status());

  // A session runs it on the devices of this process; .target would name a server.
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  for (const float scale : {1.0f, 10.0f}) {
    const mr::Tensor value = mr::Tensor::FromValues<float>({2 * scale, 3 * scale, 6 * scale});
    MR_ASSIGN_OR_RETURN(const std::vector<mr::Tensor> out, session.Run({{x, value}}, {norm}));
    std::printf("the length of (2, 3, 6) times %g is %g\n", scale, out[0].scalar<float>());
    if (out[0].scalar<float>() != 7 * scale) {
      return mr::Status(mr::StatusCode::kInternal, "that is not its length");
    }
  }
  return mr::OkStatus();
}

int main() {
  const mr::Status status = Hello();
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
