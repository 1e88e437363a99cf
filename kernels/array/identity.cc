// SPDX-License-Identifier: Apache-2.0
// Ops that hand their inputs on, at most under another shape or type. No bytes move.
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/axis_plan.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class IdentityKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_outputs(); ++i) ctx.SetOutput(i, ctx.locked_input(i));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }
};

// Into a buffer of its own: what changes the input later does not reach the copy.
class CopyKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor in = ctx.locked_input(0);
    if (!in.IsInitialized()) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, in.shape()));
    if (in.num_elements() > 0) CopyRange(in, 0, out, 0, in.num_elements());
    return OkStatus();
  }
};

class EnsureShapeKernel : public Kernel {
 public:
  explicit EnsureShapeKernel(KernelConstruction& c)
      : Kernel(c), shape_(c.attr<PartialShape>("shape")) {}
  Status Compute(KernelContext& ctx) override {
    const Shape& shape = ctx.input(0).shape();
    if (!shape_.IsCompatibleWith(PartialShape(shape))) {
      return errors::InvalidArgument("Shape of tensor ", name(), " ", shape.DebugString(),
                                     " is not compatible with expected shape ",
                                     shape_.DebugString(), ".");
    }
    ctx.SetOutput(0, ctx.input(0));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }

 private:
  const PartialShape shape_;
};

class ReshapeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Dims dims, IntVector(ctx.input(1), "shape", /*vector_only=*/true));
    int unknown = -1;
    bool some_zero = false;
    Dims known;  // without zeros
    for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
      if (dims[i] == -1) {
        if (unknown >= 0) {
          return errors::InvalidArgument("Only one input size may be -1, not both ", unknown,
                                         " and ", i);
        }
        unknown = i;
      } else if (dims[i] < 0) {
        return errors::InvalidArgument("Size ", i, " must be non-negative, not ", dims[i]);
      } else if (dims[i] == 0) {
        some_zero = true;
      } else {
        known.push_back(dims[i]);
      }
    }
    if (unknown >= 0) {
      MR_ASSIGN_OR_RETURN(const Shape rest, MakeShape({known.data(), known.size()}));
      MR_ASSIGN_OR_RETURN(dims[unknown], MissingSize(in.shape(), rest.num_elements(), some_zero));
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({dims.data(), dims.size()}));
    if (shape.num_elements() != in.num_elements()) {
      return errors::InvalidArgument("Input to reshape is a tensor with ", in.num_elements(),
                                     " values, but the requested shape has ", shape.num_elements());
    }
    MR_ASSIGN_OR_RETURN(Tensor out, in.Reshaped(shape));
    ctx.SetOutput(0, std::move(out));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }

 private:
  // The size that was left open beside others of `product`. If one of those is zero, any size
  // would do: then zeros count on neither side, so that a batch of none keeps its other sizes
  // ([0, 3, 4] to [0, -1] is [0, 12]).
  static StatusOr<int64_t> MissingSize(const Shape& in, int64_t product, bool some_zero) {
    Dims counted;
    for (const int64_t dim : in.dims()) {
      if (dim != 0 || !some_zero) counted.push_back(dim);
    }
    const bool left_out = static_cast<int>(counted.size()) < in.rank();
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({counted.data(), counted.size()}));
    const int64_t elements = shape.num_elements();
    if (!left_out && elements % product != 0) {
      return errors::InvalidArgument("Input to reshape is a tensor with ", in.num_elements(),
                                     " values, but the requested shape requires a multiple of ",
                                     product);
    }
    return elements / product;
  }
};

class SqueezeKernel : public Kernel {
 public:
  explicit SqueezeKernel(KernelConstruction& c)
      : Kernel(c), axes_(c.attrs().GetOr<std::vector<int64_t>>("squeeze_dims", {})) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    std::vector<bool> drop(in.rank(), false);
    for (int64_t axis : axes_) {
      MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, in.rank(), "squeeze_dims"));
      if (in.dim(i) != 1) {
        return errors::InvalidArgument("Can not squeeze dim[", i,
                                       "], expected a dimension of 1, got ", in.dim(i));
      }
      drop[i] = true;
    }
    Shape shape;
    for (int i = 0; i < in.rank(); ++i) {
      if (axes_.empty() ? in.dim(i) != 1 : !drop[i]) shape.AddDim(in.dim(i));
    }
    MR_ASSIGN_OR_RETURN(Tensor out, in.Reshaped(shape));
    ctx.SetOutput(0, std::move(out));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }

 private:
  const std::vector<int64_t> axes_;
};

class ExpandDimsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const int64_t axis, OnlyInt(ctx.input(1), "dim"));
    MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, in.rank() + 1, "dim"));
    Shape shape = in.shape();
    shape.InsertDim(i, 1);
    MR_ASSIGN_OR_RETURN(Tensor out, in.Reshaped(shape));
    ctx.SetOutput(0, std::move(out));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }
};

class BitcastKernel : public Kernel {
 public:
  explicit BitcastKernel(KernelConstruction& c) : Kernel(c), to_(BaseType(c.output_types()[0])) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const auto from_size = static_cast<int64_t>(DataTypeSize(in.dtype()));
    const auto to_size = static_cast<int64_t>(DataTypeSize(to_));
    if (!IsMemcpyable(in.dtype()) || !IsMemcpyable(to_) || from_size == 0 || to_size == 0) {
      return errors::InvalidArgument("Cannot bitcast from ", DataTypeName(in.dtype()), " to ",
                                     DataTypeName(to_));
    }
    Shape shape = in.shape();
    if (from_size > to_size) {
      shape.AddDim(from_size / to_size);
    } else if (from_size < to_size) {
      if (in.rank() == 0 || in.dim(in.rank() - 1) != to_size / from_size) {
        return errors::InvalidArgument("Cannot bitcast from ", DataTypeName(in.dtype()), " to ",
                                       DataTypeName(to_), ": the last dimension of ",
                                       shape.DebugString(), " is not ", to_size / from_size);
      }
      shape.RemoveDim(in.rank() - 1);
    }
    ctx.SetOutput(0, Tensor(to_, shape, RefPtr<Buffer>::Share(in.buffer()), in.raw_data()));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }

 private:
  const DataType to_;
};

}  // namespace

void RegisterIdentityKernels(KernelRegistry& r) {
  for (const char* op : {"Identity", "IdentityN", "StopGradient", "PreventGradient",
                         "PlaceholderWithDefault", "Snapshot", "GuaranteeConst"}) {
    RegisterCpu<IdentityKernel>(r, op);
  }
  RegisterCpu<CopyKernel>(r, "Copy");
  RegisterCpu<CopyKernel>(r, "CopyHost");
  r.Register(KernelDef("Conj").Types("T", {kVariant}), MakeKernel<IdentityKernel>);
  RegisterCpu<EnsureShapeKernel>(r, "EnsureShape");
  RegisterCpu<ReshapeKernel>(r, "Reshape");
  RegisterCpu<SqueezeKernel>(r, "Squeeze");
  RegisterCpu<ExpandDimsKernel>(r, "ExpandDims");
  RegisterCpu<BitcastKernel>(r, "Bitcast");
}

}  // namespace millrace
