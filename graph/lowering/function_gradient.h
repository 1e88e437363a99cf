// SPDX-License-Identifier: Apache-2.0
// The derivative of a function, as a function.
#ifndef GRAPH_LOWERING_FUNCTION_GRADIENT_H_
#define GRAPH_LOWERING_FUNCTION_GRADIENT_H_

#include <memory>

#include "graph/functions/function_body.h"
#include "millrace/status.h"

namespace millrace {

// The body of SymbolicGradient of `function`: takes the function's arguments and what arrives
// at each of its results, gives what arrives at each argument (zeros where nothing does). The
// library's gradient of the function if it has one. Fails as InstantiateFunction does;
// Unimplemented, naming the node, if an op on the way has no gradient.
StatusOr<std::unique_ptr<FunctionBody>> InstantiateGradient(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const FunctionName& function);

}  // namespace millrace

#endif  // GRAPH_LOWERING_FUNCTION_GRADIENT_H_
