// SPDX-License-Identifier: Apache-2.0
// The same elements in another order or more often: transpose, tile, pad, reverse, broadcast.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/layout_plan.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

Status CannotMove(DataType dtype) {
  return errors::Unimplemented("elements of type ", DataTypeName(dtype), " cannot be copied");
}

Status MoveAsPlanned(KernelContext& ctx, const Tensor& in, LayoutPlan plan, Tensor* out) {
  if (!CopyStrided(ctx, in.dtype(), ElementAt(in.raw_data(), in.dtype(), plan.src_offset),
                   ElementAt(out->raw_data(), in.dtype(), plan.dst_offset), std::move(plan.dims))) {
    return CannotMove(in.dtype());
  }
  return OkStatus();
}

// Of an op whose second input says where the elements of the first go.
using PlanFn = StatusOr<LayoutPlan> (*)(const Shape& in, const Tensor& operand);

template <PlanFn kPlan>
class MoveKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(LayoutPlan plan, kPlan(in.shape(), ctx.input(1)));
    if (plan.same) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    return MoveAsPlanned(ctx, in, std::move(plan), out);
  }
};

class PadKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(LayoutPlan plan, PlanPad(in.shape(), ctx.input(1)));
    const bool has_value = ctx.num_inputs() == 3;
    if (has_value) MR_RETURN_IF_ERROR(CheckPadValue(ctx.input(2).shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    const int64_t n = out->num_elements();
    const bool movable =
        has_value ? FillWith(ctx, in.dtype(), ctx.input(2).raw_data(), out->raw_data(), n)
                  : FillZero(ctx, in.dtype(), out->raw_data(), n);
    if (!movable) return CannotMove(in.dtype());
    return MoveAsPlanned(ctx, in, std::move(plan), out);
  }
};

// -1, which no shape has, if it does not fit.
int64_t Product(std::initializer_list<int64_t> sizes) { return Shape(sizes).num_elements(); }

// Blocks of pixels to channels and back, for the NHWC layout.
template <bool kToDepth>
class DepthSpaceKernel : public Kernel {
 public:
  explicit DepthSpaceKernel(KernelConstruction& c)
      : Kernel(c), block_(c.attr<int64_t>("block_size")) {
    if (c.attrs().GetOr<std::string>("data_format", "NHWC") != "NHWC") {
      c.SetError(errors::InvalidArgument("only data_format NHWC is supported on the CPU"));
    } else if (block_ < 2 || block_ > INT32_MAX) {
      c.SetError(errors::InvalidArgument("block_size should be at least 2 and at most ", INT32_MAX,
                                         ", got ", block_));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() != 4) {
      return errors::InvalidArgument("input must be of rank 4, got ", in.shape().DebugString());
    }
    const int64_t n = in.dim(0), b = block_;
    int64_t h = in.dim(1), w = in.dim(2), d = in.dim(3);
    // [n, h, b, w, b, d] on the spatial side, [n, h, w, b, b, d] on the deep side.
    if (kToDepth) {
      if (h % b != 0 || w % b != 0) {
        return errors::InvalidArgument("Image height ", h, " and width ", w,
                                       " should be divisible by block_size: ", b);
      }
      h /= b, w /= b;
    } else {
      if (d % (b * b) != 0) {
        return errors::InvalidArgument("Input depth dimension ", d,
                                       " should be divisible by: ", b * b);
      }
      d /= b * b;
    }
    const Shape deep({n, h, w, Product({d, b, b})});
    const Shape spatial({n, Product({h, b}), Product({w, b}), d});
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, kToDepth ? deep : spatial));
    if (out->num_elements() == 0) return OkStatus();
    const Dims s = RowMajorStrides(std::initializer_list<int64_t>{n, h, b, w, b, d});
    const Dims t = RowMajorStrides(std::initializer_list<int64_t>{n, h, w, b, b, d});
    const int64_t sizes[] = {n, h, b, w, b, d};
    const int64_t on_spatial[] = {s[0], s[1], s[2], s[3], s[4], s[5]};
    const int64_t on_deep[] = {t[0], t[1], t[3], t[2], t[4], t[5]};
    CopyDims dims;
    for (int i = 0; i < 6; ++i) {
      dims.push_back(
          {sizes[i], kToDepth ? on_spatial[i] : on_deep[i], kToDepth ? on_deep[i] : on_spatial[i]});
    }
    if (!CopyStrided(ctx, in.dtype(), in.raw_data(), out->raw_data(), std::move(dims))) {
      return CannotMove(in.dtype());
    }
    return OkStatus();
  }

 private:
  const int64_t block_;
};

}  // namespace

void RegisterLayoutKernels(KernelRegistry& r) {
  RegisterCpu<MoveKernel<&PlanTranspose>>(r, "Transpose");
  RegisterCpu<MoveKernel<&PlanTile>>(r, "Tile");
  RegisterCpu<PadKernel>(r, "Pad");
  RegisterCpu<PadKernel>(r, "PadV2");
  RegisterCpu<MoveKernel<&PlanBroadcastTo>>(r, "BroadcastTo");
  RegisterCpu<MoveKernel<&PlanReverse>>(r, "ReverseV2");
  RegisterCpu<DepthSpaceKernel<true>>(r, "SpaceToDepth");
  RegisterCpu<DepthSpaceKernel<false>>(r, "DepthToSpace");
}

}  // namespace millrace
