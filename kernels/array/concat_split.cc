// SPDX-License-Identifier: Apache-2.0
// Joining tensors along an axis and cutting them up: rows of bytes between two layouts.
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/axis_plan.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

Status CannotMove(DataType dtype) {
  return errors::Unimplemented("elements of type ", DataTypeName(dtype), " cannot be copied");
}

// Elements before and after `axis`: [outer, size of the axis, inner].
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
};
AxisView ViewAround(const Shape& shape, int axis) {
  AxisView v;
  for (int i = 0; i < axis; ++i) v.outer *= shape.dim(i);
  v.size = shape.dim(axis);
  for (int i = axis + 1; i < shape.rank(); ++i) v.inner *= shape.dim(i);
  return v;
}

// Copies `rows` runs of `run` elements.
bool CopyRuns(KernelContext& ctx, DataType dtype, int64_t rows, int64_t run, const void* src,
              int64_t src_step, void* dst, int64_t dst_step) {
  return CopyStrided(ctx, dtype, src, dst, {{rows, src_step, dst_step}, {run, 1, 1}});
}

// The axis is the last input; of Concat, the first.
class ConcatKernel : public Kernel {
 public:
  explicit ConcatKernel(KernelConstruction& c)
      : Kernel(c), first_(c.def().name() == "Concat" ? 1 : 0) {}
  Status Compute(KernelContext& ctx) override {
    const int n = ctx.num_inputs() - 1;
    const Tensor& head = ctx.input(first_);
    MR_ASSIGN_OR_RETURN(const int64_t given, ConcatAxis(ctx.input(first_ == 1 ? 0 : n)));
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, head.rank(),
                                                      "ConcatOp: Expected concatenating "
                                                      "dimension"));
    Shape shape = head.shape();
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      const Shape& s = ctx.input(first_ + i).shape();
      if (s.rank() != head.rank()) {
        return errors::InvalidArgument(
            "ConcatOp : Ranks of all input tensors should match: "
            "shape[0] = ",
            head.shape().DebugString(), " vs. shape[", i, "] = ", s.DebugString());
      }
      for (int k = 0; k < s.rank(); ++k) {
        if (k != axis && s.dim(k) != head.dim(k)) {
          return errors::InvalidArgument(
              "ConcatOp : Dimension ", k,
              " in both shapes must be equal: shape[0] = ", head.shape().DebugString(),
              " vs. shape[", i, "] = ", s.DebugString());
        }
      }
      if (__builtin_add_overflow(total, s.dim(axis), &total)) {
        return errors::InvalidArgument("ConcatOp : dimension ", axis,
                                       " of all inputs together does not fit in an int64");
      }
    }
    shape.SetDim(axis, total);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const AxisView view = ViewAround(shape, axis);
    int64_t at = 0;
    for (int i = 0; i < n; ++i) {
      const Tensor& in = ctx.input(first_ + i);
      const int64_t run = in.dim(axis) * view.inner;
      if (!CopyRuns(ctx, in.dtype(), view.outer, run, in.raw_data(), run,
                    ElementAt(out->raw_data(), in.dtype(), at), view.size * view.inner)) {
        return CannotMove(in.dtype());
      }
      at += run;
    }
    return OkStatus();
  }

 private:
  const int first_;
};

class PackKernel : public Kernel {
 public:
  explicit PackKernel(KernelConstruction& c)
      : Kernel(c), axis_(c.attrs().GetOr<int64_t>("axis", 0)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& head = ctx.input(0);
    const int n = ctx.num_inputs();
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_, head.rank() + 1, "axis"));
    for (int i = 1; i < n; ++i) {
      if (!(ctx.input(i).shape() == head.shape())) {
        return errors::InvalidArgument(
            "Shapes of all inputs must match: values[0].shape = ", head.shape().DebugString(),
            " != values[", i, "].shape = ", ctx.input(i).shape().DebugString());
      }
    }
    Shape shape = head.shape();
    shape.InsertDim(axis, n);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const AxisView view = ViewAround(shape, axis);
    for (int i = 0; i < n; ++i) {
      const Tensor& in = ctx.input(i);
      if (!CopyRuns(ctx, in.dtype(), view.outer, view.inner, in.raw_data(), view.inner,
                    ElementAt(out->raw_data(), in.dtype(), i * view.inner), n * view.inner)) {
        return CannotMove(in.dtype());
      }
    }
    return OkStatus();
  }

 private:
  const int64_t axis_;
};

// Inputs with one row each, as the rows of the output.
class ParallelConcatKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& head = ctx.input(0);
    const int n = ctx.num_inputs();
    for (int i = 0; i < n; ++i) {
      const Shape& shape = ctx.input(i).shape();
      if (shape.rank() > 0 && shape.dim(0) == 1 && shape == head.shape()) continue;
      return errors::InvalidArgument("values[", i, "] must have one row and the shape of the ",
                                     "others, got ", shape.DebugString(), " and ",
                                     head.shape().DebugString());
    }
    Shape shape = head.shape();
    shape.SetDim(0, n);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t row = head.num_elements();
    for (int i = 0; i < n; ++i) {
      const Tensor& in = ctx.input(i);
      if (!CopyRuns(ctx, in.dtype(), 1, row, in.raw_data(), row,
                    ElementAt(out->raw_data(), in.dtype(), i * row), row)) {
        return CannotMove(in.dtype());
      }
    }
    return OkStatus();
  }
};

class UnpackKernel : public Kernel {
 public:
  explicit UnpackKernel(KernelConstruction& c)
      : Kernel(c), axis_(c.attrs().GetOr<int64_t>("axis", 0)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_, in.rank(), "axis"));
    const int n = ctx.num_outputs();
    if (in.dim(axis) != n) {
      return errors::InvalidArgument("Input shape axis ", axis, " must equal ", n, ", got shape ",
                                     in.shape().DebugString());
    }
    Shape shape = in.shape();
    shape.RemoveDim(axis);
    const AxisView view = ViewAround(in.shape(), axis);
    for (int i = 0; i < n; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, shape));
      if (!CopyRuns(ctx, in.dtype(), view.outer, view.inner,
                    ElementAt(in.raw_data(), in.dtype(), i * view.inner), n * view.inner,
                    out->raw_data(), view.inner)) {
        return CannotMove(in.dtype());
      }
    }
    return OkStatus();
  }

 private:
  const int64_t axis_;
};

// Cuts `in` along `axis` into the outputs, of the given sizes.
Status SplitInto(KernelContext& ctx, const Tensor& in, int axis, std::span<const int64_t> sizes) {
  const AxisView view = ViewAround(in.shape(), axis);
  int64_t at = 0;
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    Shape shape = in.shape();
    shape.SetDim(axis, sizes[i]);
    const int64_t run = sizes[i] * view.inner;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, shape));
    if (!CopyRuns(ctx, in.dtype(), view.outer, run, ElementAt(in.raw_data(), in.dtype(), at),
                  view.size * view.inner, out->raw_data(), run)) {
      return CannotMove(in.dtype());
    }
    at += run;
  }
  return OkStatus();
}

class SplitKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const int64_t given, IntScalar(ctx.input(0), "split_dim"));
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank(), "split_dim"));
    const int n = ctx.num_outputs();
    if (in.dim(axis) % n != 0) {
      return errors::InvalidArgument(
          "Number of ways to split should evenly divide the split dimension, but got split_dim ",
          axis, " (size = ", in.dim(axis), ") and num_split ", n);
    }
    return SplitInto(ctx, in, axis, Dims(n, in.dim(axis) / n));
  }
};

class SplitVKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Dims sizes, IntVector(ctx.input(1), "size_splits", true));
    MR_ASSIGN_OR_RETURN(const int64_t given, OnlyInt(ctx.input(2), "split_dim"));
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank(), "split_dim"));
    if (static_cast<int>(sizes.size()) != ctx.num_outputs()) {
      return errors::InvalidArgument("size_splits must have ", ctx.num_outputs(), " elements, got ",
                                     sizes.size());
    }
    int64_t known = 0;
    int unknown = -1;
    for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
      if (sizes[i] == -1 && unknown < 0) {
        unknown = i;
      } else if (sizes[i] < 0 || sizes[i] > in.dim(axis)) {
        return errors::InvalidArgument("Split size at index ", i, " must be >= 0 and at most ",
                                       in.dim(axis), ", got ", sizes[i]);
      } else {
        known += sizes[i];
      }
    }
    if (unknown >= 0 && known <= in.dim(axis)) {
      sizes[unknown] = in.dim(axis) - known;
      known = in.dim(axis);
    }
    if (known != in.dim(axis)) {
      return errors::InvalidArgument("Determined shape must match input shape along split_dim ",
                                     axis, ": sizes add up to ", known, ", the dimension is ",
                                     in.dim(axis));
    }
    return SplitInto(ctx, in, axis, {sizes.data(), sizes.size()});
  }
};

}  // namespace

void RegisterConcatSplitKernels(KernelRegistry& r) {
  RegisterCpu<ConcatKernel>(r, "Concat");
  RegisterCpu<ConcatKernel>(r, "ConcatV2");
  RegisterCpu<PackKernel>(r, "Pack");
  RegisterCpu<ParallelConcatKernel>(r, "ParallelConcat");
  RegisterCpu<UnpackKernel>(r, "Unpack");
  RegisterCpu<SplitKernel>(r, "Split");
  RegisterCpu<SplitVKernel>(r, "SplitV");
}

}  // namespace millrace
