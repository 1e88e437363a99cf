#include "kernels/array/scatter_plan.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/gather_plan.h"

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
  MR_ASSIGN_OR_RETURN(const int depth, SliceDepth(indices, tensor.rank()));
  // Updates are of the shape of the indices without their last axis, then that of a slice.
  const auto outer = indices.dims().first(indices.rank() - 1);
  const auto inner = tensor.dims().subspan(static_cast<std::size_t>(depth));
  const auto dims = updates.dims();
  if (dims.size() < outer.size() || !std::equal(outer.begin(), outer.end(), dims.begin())) {
    return errors::InvalidArgument("Outer dimensions of indices and update must match. Indices ",
                                   "shape: ", indices.DebugString(),
                                   ", updates shape:", updates.DebugString());
  }
  const auto rest = dims.subspan(outer.size());
  if (!std::equal(inner.begin(), inner.end(), rest.begin(), rest.end())) {
    return errors::InvalidArgument("Inner dimensions of output shape must match inner ",
                                   "dimensions of updates shape. Output: ", tensor.DebugString(),
                                   " updates: ", updates.DebugString());
  }
  return SlicesOf(tensor, indices, depth);
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
