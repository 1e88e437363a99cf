// SPDX-License-Identifier: Apache-2.0
#include "kernels/array/scatter_plan.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

bool StartsWith(const Shape& shape, const Shape& prefix) {
  return shape.rank() >= prefix.rank() &&
         std::equal(prefix.dims().begin(), prefix.dims().end(), shape.dims().begin());
}

// Of indices whose last axis, of `depth`, has been checked, and of updates for them.
SlicesPlan SlicesOf(const Shape& whole, const Shape& indices, int depth) {
  SlicesPlan plan;
  plan.depth = depth;
  plan.count = Shape(indices.dims().first(indices.rank() - 1)).num_elements();
  for (int i = depth; i < whole.rank(); ++i) plan.inner *= whole.dim(i);
  return plan;
}

// A vector of indices names rows, although its length has passed for the depth of one index:
// TensorFlow asks for both, which leaves vectors of no indices.
Status CheckRowNumbers(const Shape& tensor, const Shape& indices, const Shape& updates) {
  if (indices.dim(0) != updates.dim(0)) {
    return errors::InvalidArgument("Dimensions [0,1) of indices[shape=", indices.DebugString(),
                                   "] = ", indices.dim(0), " must match dimensions [0,1) of ",
                                   "updates[shape=", updates.DebugString(), "] = ", updates.dim(0));
  }
  if (updates.rank() == tensor.rank()) return OkStatus();
  return errors::InvalidArgument("Dimensions [1,", tensor.rank(),
                                 ") of input[shape=", tensor.DebugString(),
                                 "] must match dimensions [1,", updates.rank(),
                                 ") of updates[shape=", updates.DebugString(), "]");
}

}  // namespace

StatusOr<SlicesPlan> PlanScatterNd(const Shape& out, const Shape& indices, const Shape& updates) {
  if (indices.rank() < 1) return errors::InvalidArgument("indices must be at least a vector");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > out.rank()) {
    return errors::InvalidArgument("indices.shape[-1] (", depth,
                                   ") must be at most the rank of the output, ", out.rank());
  }
  Shape want(indices.dims().first(indices.rank() - 1));
  for (int i = static_cast<int>(depth); i < out.rank(); ++i) want.AddDim(out.dim(i));
  if (!(updates == want)) {
    return errors::InvalidArgument("updates must be of shape ", want.DebugString(), ", got ",
                                   updates.DebugString());
  }
  return SlicesOf(out, indices, static_cast<int>(depth));
}

StatusOr<SlicesPlan> PlanTensorScatter(const Shape& tensor, const Shape& indices,
                                       const Shape& updates) {
  if (indices.rank() < 1) {
    return errors::InvalidArgument("Indices shape must have rank at least one. Found:",
                                   indices.DebugString());
  }
  if (updates.rank() < 1) {
    return errors::InvalidArgument("Updates shape must have rank at least one. Found:",
                                   updates.DebugString());
  }
  const bool nothing = indices.num_elements() == 0 && updates.num_elements() == 0;
  if (!nothing &&
      (tensor.num_elements() == 0 || indices.num_elements() == 0 || updates.num_elements() == 0)) {
    return errors::InvalidArgument("Indices and updates specified for empty output shape");
  }
  // Updates are of the shape of the indices without their last axis, then that of a slice.
  const auto outer = indices.dims().first(indices.rank() - 1);
  const int64_t depth = indices.dim(indices.rank() - 1);
  const auto dims = updates.dims();
  if (dims.size() < outer.size() || !std::equal(outer.begin(), outer.end(), dims.begin())) {
    return errors::InvalidArgument("Outer dimensions of indices and update must match. Indices ",
                                   "shape: ", indices.DebugString(),
                                   ", updates shape:", updates.DebugString());
  }
  const auto rest = dims.subspan(outer.size());
  if (tensor.rank() - depth != static_cast<int64_t>(rest.size())) {
    return errors::InvalidArgument("Inner dimensions of output shape must match inner ",
                                   "dimensions of updates shape. Output: ", tensor.DebugString(),
                                   " updates: ", updates.DebugString());
  }
  const auto inner = tensor.dims().subspan(static_cast<std::size_t>(depth));
  if (!std::equal(inner.begin(), inner.end(), rest.begin(), rest.end())) {
    return errors::InvalidArgument("The inner ", inner.size(),
                                   " dimensions of output.shape=", tensor.DebugString(),
                                   " must match the inner ", rest.size(),
                                   " dimensions of updates.shape=", updates.DebugString());
  }
  if (indices.rank() == 1) MR_RETURN_IF_ERROR(CheckRowNumbers(tensor, indices, updates));
  return SlicesOf(tensor, indices, static_cast<int>(depth));
}

Shape RowShape(const Shape& data, const Shape& indices) {
  Shape row;
  for (int i = indices.rank(); i < data.rank(); ++i) row.AddDim(data.dim(i));
  return row;
}

Status CheckPartitions(const Shape& data, const Shape& partitions) {
  if (StartsWith(data, partitions)) return OkStatus();
  return errors::InvalidArgument("data.shape must start with partitions.shape, got ",
                                 data.DebugString(), " and ", partitions.DebugString());
}

Status CheckStitched(int i, const Tensor& indices, const Shape& data, const Shape& first_indices,
                     const Shape& first_data) {
  if (!StartsWith(data, indices.shape())) {
    return errors::InvalidArgument("data[", i, "].shape = ", data.DebugString(),
                                   " does not start with indices[", i,
                                   "].shape = ", indices.shape().DebugString());
  }
  if (!(RowShape(data, indices.shape()) == RowShape(first_data, first_indices))) {
    return errors::InvalidArgument("Need data[0].shape[", first_indices.rank(), ":] = data[", i,
                                   "].shape[", indices.rank(),
                                   ":], got data[0].shape = ", first_data.DebugString(), ", data[",
                                   i, "].shape = ", data.DebugString());
  }
  for (const int32_t x : indices.flat<int32_t>()) {
    if (x < 0) return errors::InvalidArgument("indices[", i, "] is out of range: ", x);
  }
  return OkStatus();
}

}  // namespace millrace
