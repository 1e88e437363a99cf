// SPDX-License-Identifier: Apache-2.0
// A loop in the graph that ends by what it has found: Newton's square roots, until the next step
// changes nothing that counts, or after a bound on the steps.
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "millrace/core.h"

namespace mr = millrace;

mr::Status Roots() {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output a = mr::Placeholder(root.WithOpName("a"), mr::kFloat, {});
  const mr::Output zero = mr::Constant(root, mr::Tensor::Scalar<int32_t>(0));
  // The variables of the loop: how many steps there were, the guess, and how far it moved.
  const std::vector<mr::Output> found = mr::WhileLoop(
      root, {zero, a, a},
      [](const mr::Scope& s, std::span<const mr::Output> v) {
        const mr::Output moves = mr::ops::Greater(s, mr::ops::Abs(s, v[2]), 1e-6f);
        return mr::ops::LogicalAnd(s, moves, mr::ops::Less(s, v[0], 50));
      },
      [&a](const mr::Scope& s, std::span<const mr::Output> v) -> std::vector<mr::Output> {
        // A scope beside an output: what is computed belongs to the body.
        const mr::Expr guess(s, v[1]);
        const mr::Expr next = 0.5f * (guess + mr::Expr(s, a) / guess);
        return {mr::ops::Add(s, v[0], 1), next, next - guess};
      });
  MR_RETURN_IF_ERROR(graph.status());

  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  for (const float value : {2.0f, 144.0f, 1e4f}) {
    MR_ASSIGN_OR_RETURN(const std::vector<mr::Tensor> out,
                        session.Run({{a, mr::Tensor::Scalar(value)}}, {found[1], found[0]}));
    const float guess = out[0].scalar<float>();
    std::printf("the root of %g is %.6g, after %d steps\n", value, guess, out[1].scalar<int32_t>());
    if (std::abs(guess - std::sqrt(value)) > 1e-5f * guess) {
      return mr::Status(mr::StatusCode::kInternal, "that is not its root");
    }
  }
  return mr::OkStatus();
}

int main() {
  const mr::Status status = Roots();
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
