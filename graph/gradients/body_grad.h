// SPDX-License-Identifier: Apache-2.0
// The derivative of the body of a function.
#ifndef GRAPH_GRADIENTS_BODY_GRAD_H_
#define GRAPH_GRADIENTS_BODY_GRAD_H_

#include <memory>
#include <string>
#include <vector>

#include "graph/functions/function_body.h"
#include "millrace/status.h"

namespace millrace {

struct BodyGradient {
  // Takes the arguments of the body, then what arrives at each of the results that were named;
  // gives what arrives at each of the arguments that were named, zeros where nothing does. For
  // the handle of a variable it is what arrives at the value; a scalar if nobody reads that.
  std::unique_ptr<FunctionBody> body;
  std::vector<bool> depends;  // by argument that was named: whether anything arrives there
};

// Unimplemented, naming the node, if an op on the way has no gradient.
// `source`: GradContext::source().
StatusOr<BodyGradient> DifferentiateBody(const std::string& source,
                                         std::unique_ptr<FunctionBody> body,
                                         const std::vector<int>& results,
                                         const std::vector<int>& args);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_BODY_GRAD_H_
