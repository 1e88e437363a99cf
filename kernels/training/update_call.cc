// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/update_call.h"

#include <algorithm>

#include "base/errors.h"

namespace millrace {

rules::UpdateFlags UpdateFlagsOf(const KernelConstruction& c) {
  const rules::UpdateFlags unset;
  return {c.attrs().GetOr<bool>("use_nesterov", unset.use_nesterov),
          c.attrs().GetOr<bool>("update_slots", unset.update_slots),
          c.attrs().GetOr<bool>("multiply_linear_by_lr", unset.multiply_linear_by_lr)};
}

int FindInput(const KernelConstruction& c, std::string_view name) {
  for (int i = 0; i < c.def().input_arg_size(); ++i) {
    if (c.def().input_arg(i).name() == name) return i;
  }
  return -1;
}

int FindGradient(const KernelConstruction& c) {
  return std::max(FindInput(c, "grad"), FindInput(c, "delta"));
}

Status CheckRowShapes(const Tensor& var, const Tensor& gradient, const Tensor& indices) {
  if (var.rank() < 1) return errors::InvalidArgument("var must be at least 1 dimensional");
  if (indices.rank() != 1) return errors::InvalidArgument("indices must be one-dimensional");
  bool fits = gradient.rank() == var.rank() && gradient.dim(0) == indices.dim(0);
  for (int i = 1; fits && i < var.rank(); ++i) fits = var.dim(i) == gradient.dim(i);
  if (fits) return OkStatus();
  return errors::InvalidArgument("grad of shape ", gradient.shape().DebugString(), " with ",
                                 indices.dim(0), " indices does not match var of shape ",
                                 var.shape().DebugString());
}

}  // namespace millrace
