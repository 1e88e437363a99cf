// SPDX-License-Identifier: Apache-2.0
// Updates of variables: what the ops accept, and the sizes that follow. For the kernels of all
// devices; pure.
#ifndef KERNELS_STATE_VARIABLE_PLAN_H_
#define KERNELS_STATE_VARIABLE_PLAN_H_

#include <cstdint>
#include <string_view>

#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// AssignAddVariableOp and AssignSubVariableOp. InvalidArgument unless the shapes are the same, as
// of all functions here for shapes that do not go together.
Status CheckVariableUpdate(const Shape& variable, const Shape& value);
// AssignAdd and AssignSub, by reference; `op` is the one that is told of.
Status CheckReferenceUpdate(std::string_view op, const Shape& variable, const Shape& value);

// Scatter* and ResourceScatter*: rows of the first axis. `updates` is a scalar for all of them, or
// has a row for each index.
Status CheckRowScatter(const Shape& params, const Shape& indices, const Shape& updates);

// ScatterNd* and ResourceScatterNd*: how many indices name a slice; `updates` has one for each.
StatusOr<int> VariableSliceDepth(const Shape& params, const Shape& indices, const Shape& updates);

}  // namespace millrace

#endif  // KERNELS_STATE_VARIABLE_PLAN_H_
