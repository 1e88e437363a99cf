// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/variable_plan.h"

#include "base/errors.h"

namespace millrace {

Status CheckVariableUpdate(const Shape& variable, const Shape& value) {
  if (variable == value) return OkStatus();
  return errors::InvalidArgument("Cannot update variable with shape ", variable.DebugString(),
                                 " using a Tensor with shape ", value.DebugString(),
                                 ", shapes must be equal.");
}

Status CheckReferenceUpdate(std::string_view op, const Shape& variable, const Shape& value) {
  if (variable == value) return OkStatus();
  return errors::InvalidArgument(op, " requires shapes of both tensors to match. lhs shape= ",
                                 variable.DebugString(), " rhs shape= ", value.DebugString());
}

Status CheckRowScatter(const Shape& params, const Shape& indices, const Shape& updates) {
  if (params.rank() < 1) {
    return errors::InvalidArgument("params must be at least 1-D, got shape ", params.DebugString());
  }
  Shape expected = indices;
  for (int i = 1; i < params.rank(); ++i) expected.AddDim(params.dim(i));
  if (updates.rank() == 0 || updates == expected) return OkStatus();
  return errors::InvalidArgument(
      "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got "
      "updates.shape ",
      updates.DebugString(), ", indices.shape ", indices.DebugString(), ", params.shape ",
      params.DebugString());
}

StatusOr<int> VariableSliceDepth(const Shape& params, const Shape& indices, const Shape& updates) {
  const int64_t depth = indices.rank() < 1 ? -1 : indices.dim(indices.rank() - 1);
  if (depth < 0 || depth > params.rank()) {
    return errors::InvalidArgument("indices of shape ", indices.DebugString(),
                                   " do not address a variable of shape ", params.DebugString());
  }
  Shape expected(indices.dims().first(indices.rank() - 1));
  for (int i = static_cast<int>(depth); i < params.rank(); ++i) expected.AddDim(params.dim(i));
  if (!(updates == expected)) {
    return errors::InvalidArgument(
        "Must have updates.shape = indices.shape[:-1] + params.shape[indices.shape[-1]:] = ",
        expected.DebugString(), ", got ", updates.DebugString());
  }
  return static_cast<int>(depth);
}

}  // namespace millrace
