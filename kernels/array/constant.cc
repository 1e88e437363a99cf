// SPDX-License-Identifier: Apache-2.0
// Values that come from the graph itself: constants, placeholders, fills.
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/common/variant_codec.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class ConstKernel : public Kernel {
 public:
  explicit ConstKernel(KernelConstruction& c) : Kernel(c), value_(c.attr<Tensor>("value")) {
    if (c.status().ok()) c.SetError(CheckConstant(value_.dtype(), c.output_types()[0]));
    if (!c.status().ok() || value_.dtype() != kVariant) return;
    StatusOr<Tensor> decoded = DecodedObjects(value_);
    if (decoded.ok()) {
      value_ = *std::move(decoded);
    } else {
      c.SetError(CannotParse(decoded.status()));
    }
  }
  // The kernel keeps its share, so nobody may write to the value.
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, value_);
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }

 private:
  static Status CannotParse(const Status& why) {
    return errors::InvalidArgument("Cannot parse tensor from proto: ", Message(why));
  }
  Tensor value_;
};

class PlaceholderKernel : public Kernel {
 public:
  explicit PlaceholderKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(BaseType(c.output_types()[0])),
        shape_(c.attrs().GetOr<PartialShape>("shape", PartialShape())) {}

  Status Compute(KernelContext& ctx) override {
    if (shape_.rank() > 0) {
      return errors::InvalidArgument("You must feed a value for placeholder tensor '", name(),
                                     "' with dtype ", DataTypeName(dtype_), " and shape ",
                                     shape_.DebugString());
    }
    return errors::InvalidArgument("You must feed a value for placeholder tensor '", name(),
                                   "' with dtype ", DataTypeName(dtype_));
  }
  bool IsExpensive() const override { return false; }

 private:
  const DataType dtype_;
  const PartialShape shape_;
};

class FillKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor value = ctx.input(1);
    if (ctx.input(0).rank() != 1) {
      return errors::InvalidArgument("dims must represent a vector, got shape ",
                                     ctx.input(0).shape().DebugString());
    }
    if (value.num_elements() != 1 || value.rank() > 1) {
      return errors::InvalidArgument("value must represent a scalar, got shape ",
                                     value.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "dims"));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!FillWith(ctx, value.dtype(), value.raw_data(), out->raw_data(), shape.num_elements())) {
      return errors::Unimplemented("Fill of ", DataTypeName(value.dtype()));
    }
    return OkStatus();
  }
};

class ZerosLikeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    if (!FillZero(ctx, out->dtype(), out->raw_data(), shape.num_elements())) {
      return errors::Unimplemented("ZerosLike of ", DataTypeName(out->dtype()));
    }
    return OkStatus();
  }
};

class OnesLikeKernel : public Kernel {
 public:
  explicit OnesLikeKernel(KernelConstruction& c) : Kernel(c) {
    const DataType dtype = BaseType(c.output_types()[0]);
    const bool known = DispatchType(
        JoinTypes<NumberTypes, TypeList<bool>>(), dtype,
        [&]<typename T>() { one_ = Tensor::Scalar<T>(static_cast<T>(ComputeType<T>(1))); });
    if (!known)
      c.SetError(errors::Unimplemented("OnesLike of ", DataTypeName(dtype),
                                       ", which has no 1: the input must "
                                       "be of numbers or bools"));
  }
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    FillWith(ctx, one_.dtype(), one_.raw_data(), out->raw_data(), shape.num_elements());
    return OkStatus();
  }

 private:
  Tensor one_;
};

}  // namespace

void RegisterConstantKernels(KernelRegistry& r) {
  RegisterCpu<ConstKernel>(r, "Const");
  RegisterCpu<ConstKernel>(r, "HostConst");
  RegisterCpu<PlaceholderKernel>(r, "Placeholder");
  RegisterCpu<PlaceholderKernel>(r, "PlaceholderV2");
  RegisterCpu<FillKernel>(r, "Fill");
  RegisterCpu<ZerosLikeKernel>(r, "ZerosLike");
  r.Register(
      KernelDef("OnesLike").Types("T", DataTypesOf(JoinTypes<NumberTypes, TypeList<bool>>())),
      &MakeKernel<OnesLikeKernel>);
}

}  // namespace millrace
