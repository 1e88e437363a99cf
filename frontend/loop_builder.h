// SPDX-License-Identifier: Apache-2.0
// WhileLoop for those whose body gives more than the next values of its variables.
#ifndef FRONTEND_LOOP_BUILDER_H_
#define FRONTEND_LOOP_BUILDER_H_

#include <functional>
#include <source_location>
#include <span>
#include <vector>

#include "millrace/control_flow.h"
#include "millrace/scan.h"

namespace millrace {

// What every iteration keeps: `values`, each at place `index` (an int32 scalar) of its array.
struct KeptOutputs {
  Output index;
  std::vector<Output> values;
};
using KeepingBody = std::function<std::vector<Output>(
    const Scope& scope, std::span<const Output> variables, KeptOutputs* kept)>;

// As WhileLoop. Behind the loop `arrays` are those of the kept values, of `count` elements (an
// int32 scalar) each.
StatusOr<std::vector<Output>> BuildKeepingLoop(
    const Scope& scope, const std::vector<Output>& initial, const LoopCondition& condition,
    const KeepingBody& body, const Output& count, const WhileOptions& options,
    std::source_location where, std::vector<TensorArray>* arrays);

}  // namespace millrace

#endif  // FRONTEND_LOOP_BUILDER_H_
