// SPDX-License-Identifier: Apache-2.0
// use_scaled_sum LIBRARY [TARGET]: computes ScaledSum and its gradient, here or at a server.
#include <cstdio>
#include <source_location>
#include <string>

#include "millrace/core.h"
#include "millrace/custom_op.h"

namespace mr = millrace;

namespace {

mr::Status Use(const std::string& library, const std::string& target) {
  MR_RETURN_IF_ERROR(mr::LoadLibrary(library));  // before the first graph
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output x = mr::ops::Const(root, mr::Tensor::FromValues<float>({1, 2, 3}), mr::kFloat);
  const mr::Output y =
      mr::ops::Const(root, mr::Tensor::FromValues<float>({10, 20, 30}), mr::kFloat);
  const mr::Input inputs[] = {x, y};
  const mr::Output z =
      root.AddOp("ScaledSum", inputs, {{"scale", 0.5f}}, std::source_location::current()).output(0);
  MR_RETURN_IF_ERROR(graph.status());
  const mr::Output ys[] = {z}, xs[] = {x};
  MR_ASSIGN_OR_RETURN(const std::vector<mr::Output> gradients, mr::Gradients(root, ys, xs));
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph, {.target = target}));
  MR_ASSIGN_OR_RETURN(const std::vector<mr::Tensor> out, session.Run({}, {z, gradients[0]}, {}));
  std::printf("shape %s, z %g %g %g, dx %g\n", z.shape().DebugString().c_str(),
              out[0].flat<float>()[0], out[0].flat<float>()[1], out[0].flat<float>()[2],
              out[1].flat<float>()[0]);
  return mr::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: use_scaled_sum LIBRARY [TARGET]\n");
    return 2;
  }
  const mr::Status status = Use(argv[1], argc > 2 ? argv[2] : "");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
