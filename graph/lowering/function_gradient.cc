// SPDX-License-Identifier: Apache-2.0
#include "graph/lowering/function_gradient.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/gradients/body_grad.h"
#include "graph/lowering/lower_functions.h"

namespace millrace {

StatusOr<std::unique_ptr<FunctionBody>> InstantiateGradient(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const FunctionName& function) {
  if (library != nullptr) {
    const std::string& gradient = library->GradientOf(function.name);
    if (!gradient.empty()) {
      return InstantiateFunction(ops, library, FunctionName{gradient, function.attrs});
    }
  }
  // A function that differentiates itself would never end.
  constexpr int kMaxDepth = 4;
  thread_local int depth = 0;
  if (depth >= kMaxDepth) {
    return errors::InvalidArgument("gradients of functions are nested more than ", kMaxDepth,
                                   " deep at function ", function.name);
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<FunctionBody> body,
                      InstantiateFunction(ops, library, function));
  // Calls within it are differentiated as what they do.
  ++depth;
  const Status lowered = LowerBody(nullptr, body.get(), {.everything = true});
  --depth;
  MR_RETURN_IF_ERROR(lowered);
  std::vector<int> results(body->results.size()), args(body->args.size());
  std::iota(results.begin(), results.end(), 0);
  std::iota(args.begin(), args.end(), 0);
  StatusOr<BodyGradient> made =
      DifferentiateBody(StrCat(function.name, " gradients"), std::move(body), results, args);
  if (made.ok() && made->body->graph->library() != library) {
    return errors::Unimplemented("the gradient of function ", function.name,
                                 ", within which a call of itself remains");
  }
  if (made.ok()) return std::move(made->body);
  return Annotate(made.status(), StrCat("\n\t In the gradient of function ", function.name));
}

}  // namespace millrace
