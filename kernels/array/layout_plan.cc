// SPDX-License-Identifier: Apache-2.0
#include "kernels/array/layout_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/kernel_util.h"

namespace millrace {
namespace {

// Rows (before, after) of a matrix of paddings, one behind the other.
StatusOr<Dims> FlatPaddings(const Tensor& paddings, int rank) {
  MR_ASSIGN_OR_RETURN(const Tensor flat, paddings.Reshaped(Shape({2 * rank})));
  return IntVector(flat, "paddings");
}

}  // namespace

StatusOr<LayoutPlan> PlanTranspose(const Shape& in, const Tensor& perm) {
  const int rank = in.rank();
  MR_ASSIGN_OR_RETURN(Dims axes, IntVector(perm, "perm", true));
  if (static_cast<int>(axes.size()) != rank) {
    return errors::InvalidArgument("transpose expects a vector of size ", rank,
                                   ". But input(1) is a vector of size ", axes.size());
  }
  LayoutPlan plan;
  Dims seen(rank, 0);
  plan.same = true;
  for (int i = 0; i < rank; ++i) {
    if (axes[i] < 0) axes[i] += rank;
    if (axes[i] < 0 || axes[i] >= rank) {
      return errors::InvalidArgument(axes[i], " is out of range [0 .. ", rank, ")");
    }
    seen[axes[i]] = 1;
    plan.out.AddDim(in.dim(static_cast<int>(axes[i])));
    plan.same = plan.same && axes[i] == i;
  }
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  if (missing != seen.end()) {
    return errors::InvalidArgument(missing - seen.begin(), " is missing from {", StrJoin(axes, ","),
                                   "}.");
  }
  const Dims src = RowMajorStrides(in.dims()), dst = RowMajorStrides(plan.out.dims());
  for (int i = 0; i < rank; ++i) plan.dims.push_back({plan.out.dim(i), src[axes[i]], dst[i]});
  return plan;
}

StatusOr<LayoutPlan> PlanTile(const Shape& in, const Tensor& multiples) {
  MR_ASSIGN_OR_RETURN(const Dims times, IntVector(multiples, "multiples", true));
  if (static_cast<int>(times.size()) != in.rank()) {
    return errors::InvalidArgument("Expected multiples argument to be a vector of length ",
                                   in.rank(), " but got length ", times.size());
  }
  Dims sizes;
  for (int i = 0; i < in.rank(); ++i) {
    if (times[i] < 0) {
      return errors::InvalidArgument("Expected multiples[", i, "] >= 0, but got ", times[i]);
    }
    int64_t size;
    if (__builtin_mul_overflow(in.dim(i), times[i], &size)) {
      return errors::InvalidArgument("multiples[", i, "] = ", times[i], " is too large");
    }
    sizes.push_back(size);
  }
  LayoutPlan plan;
  MR_ASSIGN_OR_RETURN(plan.out, MakeShape({sizes.data(), sizes.size()}));
  const Dims src = RowMajorStrides(in.dims()), dst = RowMajorStrides(plan.out.dims());
  for (int i = 0; i < in.rank(); ++i) {
    plan.dims.push_back({times[i], 0, dst[i] * in.dim(i)});
    plan.dims.push_back({in.dim(i), src[i], dst[i]});
  }
  return plan;
}

StatusOr<LayoutPlan> PlanBroadcastTo(const Shape& in, const Tensor& shape) {
  LayoutPlan plan;
  MR_ASSIGN_OR_RETURN(plan.out, ShapeFromTensor(shape, "shape"));
  const int extra = plan.out.rank() - in.rank();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < in.rank(); ++i) {
    fits = in.dim(i) == 1 || in.dim(i) == plan.out.dim(extra + i);
  }
  if (!fits) {
    return errors::InvalidArgument("Incompatible shapes: ", in.DebugString(), " vs. ",
                                   plan.out.DebugString());
  }
  plan.same = in == plan.out;
  const Dims src = RowMajorStrides(in.dims()), dst = RowMajorStrides(plan.out.dims());
  for (int i = 0; i < plan.out.rank(); ++i) {
    const bool repeated = i < extra || in.dim(i - extra) == 1;
    plan.dims.push_back({plan.out.dim(i), repeated ? 0 : src[i - extra], dst[i]});
  }
  return plan;
}

StatusOr<LayoutPlan> PlanReverse(const Shape& in, const Tensor& axes) {
  Dims given;
  if (in.rank() > 0 && in.num_elements() > 0) {  // TensorFlow looks at no axis of others
    MR_ASSIGN_OR_RETURN(given, IntVector(axes, "axis", true));
  }
  Dims reversed(in.rank(), 0);
  for (const int64_t axis : given) {
    MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, in.rank(), "axis"));
    if (reversed[i]++) return errors::InvalidArgument("axis ", i, " specified more than once");
  }
  LayoutPlan plan;
  plan.out = in;
  const Dims strides = RowMajorStrides(in.dims());
  for (int i = 0; i < in.rank(); ++i) {
    if (reversed[i] && in.dim(i) > 0) plan.src_offset += (in.dim(i) - 1) * strides[i];
    plan.dims.push_back({in.dim(i), reversed[i] ? -strides[i] : strides[i], strides[i]});
  }
  return plan;
}

StatusOr<LayoutPlan> PlanPad(const Shape& in, const Tensor& paddings) {
  const int rank = in.rank();
  if (paddings.rank() != 2 || paddings.dim(1) != 2 || paddings.dim(0) != rank) {
    return errors::InvalidArgument("paddings must be a matrix of shape [", rank,
                                   ",2], one row for each dimension of the input, got ",
                                   paddings.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(const Dims pad, FlatPaddings(paddings, rank));
  Dims sizes;
  for (int i = 0; i < rank; ++i) {
    const int64_t before = pad[2 * i], after = pad[2 * i + 1];
    int64_t size;
    if (before < 0 || after < 0) {
      return errors::InvalidArgument("Paddings must be non-negative: ", before, " ", after);
    }
    if (__builtin_add_overflow(in.dim(i), before, &size) ||
        __builtin_add_overflow(size, after, &size)) {
      return errors::InvalidArgument("Paddings are too large: ", before, " ", after);
    }
    sizes.push_back(size);
  }
  LayoutPlan plan;
  MR_ASSIGN_OR_RETURN(plan.out, MakeShape({sizes.data(), sizes.size()}));
  const Dims src = RowMajorStrides(in.dims()), dst = RowMajorStrides(plan.out.dims());
  for (int i = 0; i < rank; ++i) {
    // Of an input without elements there is no first one, whose place would have to fit.
    if (in.num_elements() > 0) plan.dst_offset += pad[2 * i] * dst[i];
    plan.dims.push_back({in.dim(i), src[i], dst[i]});
  }
  return plan;
}

Status CheckPadValue(const Shape& value) {
  if (value.rank() == 0) return OkStatus();
  return errors::InvalidArgument("constant_values must be a scalar, got shape ",
                                 value.DebugString());
}

StatusOr<LayoutPlan> PlanSlice(const Shape& in, const Tensor& begin, const Tensor& size) {
  MR_ASSIGN_OR_RETURN(const Dims first, IntVector(begin, "begin", true));
  MR_ASSIGN_OR_RETURN(Dims sizes, IntVector(size, "size", true));
  const int rank = in.rank();
  if (static_cast<int>(first.size()) != rank || static_cast<int>(sizes.size()) != rank) {
    return errors::InvalidArgument("Expected begin and size arguments to be 1-D tensors of size ",
                                   rank, ", but got ", first.size(), " and ", sizes.size());
  }
  LayoutPlan plan;
  plan.same = true;
  const Dims strides = RowMajorStrides(in.dims());
  for (int i = 0; i < rank; ++i) {
    const int64_t dim = in.dim(i);
    if (first[i] < 0 || first[i] > dim) {
      return errors::InvalidArgument("Expected begin[", i, "] in [0, ", dim, "], but got ",
                                     first[i]);
    }
    if (sizes[i] == -1) sizes[i] = dim - first[i];
    if (sizes[i] < 0 || sizes[i] > dim - first[i]) {
      return errors::InvalidArgument("Expected size[", i, "] in [0, ", dim - first[i],
                                     "], but got ", sizes[i]);
    }
    plan.src_offset += first[i] * strides[i];
    plan.same = plan.same && sizes[i] == dim;
  }
  plan.out = Shape(std::span<const int64_t>(sizes.data(), sizes.size()));
  const Dims dst = RowMajorStrides(plan.out.dims());
  for (int i = 0; i < rank; ++i) plan.dims.push_back({sizes[i], strides[i], dst[i]});
  return plan;
}

// --- Strided slices --------------------------------------------------------------------------

namespace {

StatusOr<StridedSliceSpec> SpecOf(const Shape& in, const StridedSliceOperands& operands,
                                  const StridedSliceMasks& masks) {
  MR_ASSIGN_OR_RETURN(const Dims begin, IntVector(operands.begin, "begin", true));
  MR_ASSIGN_OR_RETURN(const Dims end, IntVector(operands.end, "end", true));
  MR_ASSIGN_OR_RETURN(const Dims strides, IntVector(operands.strides, "strides", true));
  return MakeStridedSliceSpec(in, {begin.data(), begin.size()}, {end.data(), end.size()},
                              {strides.data(), strides.size()}, masks);
}

// From a tensor of the shape `sliced` to a dense one that holds the slice.
LayoutPlan PlanOf(const StridedSliceSpec& spec, const Shape& sliced) {
  LayoutPlan plan;
  plan.out = spec.out;
  const Dims strides = RowMajorStrides(sliced.dims());
  const Dims dense = RowMajorStrides({spec.count.data(), spec.count.size()});
  plan.same = true;
  for (int i = 0; i < sliced.rank(); ++i) {
    plan.same = plan.same && spec.step[i] == 1 && spec.count[i] == sliced.dim(i);
    // The step of an axis of one place may be of any size.
    const int64_t stride = spec.count[i] > 1 ? spec.step[i] * strides[i] : 0;
    if (spec.out.num_elements() > 0) plan.src_offset += spec.begin[i] * strides[i];
    plan.dims.push_back({spec.count[i], stride, dense[i]});
  }
  return plan;
}

}  // namespace

StatusOr<LayoutPlan> PlanStridedSlice(const Shape& in, const StridedSliceOperands& operands,
                                      const StridedSliceMasks& masks) {
  MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec, SpecOf(in, operands, masks));
  return PlanOf(spec, in);
}

StatusOr<LayoutPlan> PlanStridedSliceGrad(const Shape& whole, const StridedSliceOperands& operands,
                                          const StridedSliceMasks& masks, const Shape& gradient) {
  MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec, SpecOf(whole, operands, masks));
  if (!(gradient == spec.out)) {
    return errors::InvalidArgument("shape of dy was ", gradient.DebugString(), " instead of ",
                                   spec.out.DebugString());
  }
  LayoutPlan plan = PlanOf(spec, whole);
  for (CopyDim& dim : plan.dims) std::swap(dim.src_stride, dim.dst_stride);
  std::swap(plan.src_offset, plan.dst_offset);
  plan.out = whole;
  return plan;
}

// --- Mirrored padding ------------------------------------------------------------------------

namespace {

StatusOr<Dims> MirrorPaddings(const Tensor& paddings, int rank) {
  if (paddings.rank() != 2 || paddings.dim(0) != rank || paddings.dim(1) != 2) {
    return errors::InvalidArgument("paddings must be a matrix with 2 columns and as many rows ",
                                   "as the input has dimensions: ", paddings.shape().DebugString());
  }
  return FlatPaddings(paddings, rank);
}

// Of an axis of `size` elements without the padding.
Status CheckMirrored(int64_t front, int64_t back, int64_t size, int skip) {
  const int64_t most = std::max<int64_t>(size - skip, 0);
  if (front >= 0 && back >= 0 && front <= most && back <= most) return OkStatus();
  return errors::InvalidArgument("paddings must be no greater than the dimension size",
                                 skip != 0 ? " minus one" : "", ": ", front, ", ", back,
                                 " greater than ", size);
}

}  // namespace

StatusOr<MirrorPlan> PlanMirrorPad(const Shape& in, const Tensor& paddings, int skip) {
  MR_ASSIGN_OR_RETURN(const Dims pad, MirrorPaddings(paddings, in.rank()));
  MirrorPlan plan;
  Dims sizes;
  for (int i = 0; i < in.rank(); ++i) {
    const int64_t front = pad[2 * i], back = pad[2 * i + 1];
    MR_RETURN_IF_ERROR(CheckMirrored(front, back, in.dim(i), skip));
    int64_t size;
    if (__builtin_add_overflow(in.dim(i), front, &size) ||
        __builtin_add_overflow(size, back, &size)) {
      return errors::InvalidArgument("Paddings are too large: ", front, " ", back);
    }
    plan.inner.push_back(in.dim(i));
    plan.before.push_back(front);
    sizes.push_back(size);
  }
  MR_ASSIGN_OR_RETURN(plan.out, MakeShape({sizes.data(), sizes.size()}));
  return plan;
}

StatusOr<MirrorPlan> PlanMirrorPadGrad(const Shape& gradient, const Tensor& paddings, int skip) {
  MR_ASSIGN_OR_RETURN(const Dims pad, MirrorPaddings(paddings, gradient.rank()));
  MirrorPlan plan;
  for (int i = 0; i < gradient.rank(); ++i) {
    const int64_t front = pad[2 * i], back = pad[2 * i + 1];
    if (front < 0 || back < 0 || front > gradient.dim(i) || back > gradient.dim(i) - front) {
      return errors::InvalidArgument("Paddings must be non-negative and no greater than the ",
                                     "output's size: ", front, ", ", back);
    }
    const int64_t size = gradient.dim(i) - front - back;
    MR_RETURN_IF_ERROR(CheckMirrored(front, back, size, skip));
    plan.before.push_back(front);
    plan.inner.push_back(size);
  }
  plan.out = Shape(std::span<const int64_t>(plan.inner.data(), plan.inner.size()));
  return plan;
}

}  // namespace millrace
