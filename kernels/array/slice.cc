// SPDX-License-Identifier: Apache-2.0
// Slice, StridedSlice and its gradient.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/layout_plan.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/common/strided_slice_spec.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class SliceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(LayoutPlan plan, PlanSlice(in.shape(), ctx.input(1), ctx.input(2)));
    if (plan.same) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    if (!CopyStrided(ctx, in.dtype(), ElementAt(in.raw_data(), in.dtype(), plan.src_offset),
                     out->raw_data(), std::move(plan.dims))) {
      return errors::Unimplemented("Slice of ", DataTypeName(in.dtype()));
    }
    return OkStatus();
  }
};

// Inputs 1 to 3, of the op and of its gradient.
StridedSliceOperands OperandsOf(const KernelContext& ctx) {
  return {ctx.input(1), ctx.input(2), ctx.input(3)};
}

class StridedSliceKernel : public Kernel {
 public:
  explicit StridedSliceKernel(KernelConstruction& c)
      : Kernel(c), masks_(StridedSliceMasks::FromAttrs(c.attrs())) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(LayoutPlan plan, PlanStridedSlice(in.shape(), OperandsOf(ctx), masks_));
    if (plan.same) {
      MR_ASSIGN_OR_RETURN(Tensor same, in.Reshaped(plan.out));
      ctx.SetOutput(0, std::move(same));
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    if (!CopyStrided(ctx, in.dtype(), ElementAt(in.raw_data(), in.dtype(), plan.src_offset),
                     out->raw_data(), std::move(plan.dims))) {
      return errors::Unimplemented("StridedSlice of ", DataTypeName(in.dtype()));
    }
    return OkStatus();
  }

 private:
  const StridedSliceMasks masks_;
};

class StridedSliceGradKernel : public Kernel {
 public:
  explicit StridedSliceGradKernel(KernelConstruction& c)
      : Kernel(c), masks_(StridedSliceMasks::FromAttrs(c.attrs())) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& dy = ctx.input(4);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(LayoutPlan plan,
                        PlanStridedSliceGrad(shape, OperandsOf(ctx), masks_, dy.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!FillZero(ctx, out->dtype(), out->raw_data(), shape.num_elements())) {
      return errors::Unimplemented("StridedSliceGrad of ", DataTypeName(dy.dtype()));
    }
    CopyStrided(ctx, dy.dtype(), dy.raw_data(),
                ElementAt(out->raw_data(), dy.dtype(), plan.dst_offset), std::move(plan.dims));
    return OkStatus();
  }

 private:
  const StridedSliceMasks masks_;
};

}  // namespace

void RegisterSliceKernels(KernelRegistry& r) {
  RegisterCpu<SliceKernel>(r, "Slice");
  RegisterCpu<StridedSliceKernel>(r, "StridedSlice");
  RegisterCpu<StridedSliceGradKernel>(r, "StridedSliceGrad");
}

}  // namespace millrace
