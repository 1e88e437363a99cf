// Changes of a part of a variable that is not a set of rows: slices with steps, counters.
#include <cstdint>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/common/strided_slice_spec.h"
#include "kernels/host_kernels.h"
#include "kernels/state/variable.h"

namespace millrace {
namespace {

// StridedSliceAssign and ResourceStridedSliceAssign.
class StridedSliceAssignKernel : public Kernel {
 public:
  explicit StridedSliceAssignKernel(KernelConstruction& c)
      : Kernel(c), masks_(StridedSliceMasks::FromAttrs(c.attrs())) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor value = ctx.locked_input(4);
    {
      LockedVariables variable;
      MR_RETURN_IF_ERROR(variable.Lock(ctx, 1, value.dtype()));
      MR_ASSIGN_OR_RETURN(const Dims begin, IntVector(ctx.input(1), "begin", true));
      MR_ASSIGN_OR_RETURN(const Dims end, IntVector(ctx.input(2), "end", true));
      MR_ASSIGN_OR_RETURN(const Dims strides, IntVector(ctx.input(3), "strides", true));
      MR_ASSIGN_OR_RETURN(
          const StridedSliceSpec spec,
          MakeStridedSliceSpec(variable.value(0)->shape(), begin, end, strides, masks_));
      const bool scalar = value.num_elements() == 1 && value.rank() == 0;
      if (!(value.shape() == spec.out) && !scalar) {
        return errors::Unimplemented("sliced l-value shape ", spec.out.DebugString(),
                                     " does not match r-value shape ", value.shape().DebugString(),
                                     ". Automatic broadcasting not yet implemented.");
      }
      if (spec.out.num_elements() > 0) {
        MR_RETURN_IF_ERROR(variable.MakeExclusive(ctx));
        MR_RETURN_IF_ERROR(Copy(ctx, spec, value, scalar, variable.value(0)));
      }
    }
    ForwardFirstRef(ctx);
    return OkStatus();
  }

 private:
  Status Copy(const KernelContext& ctx, const StridedSliceSpec& spec, const Tensor& value,
              bool scalar, Tensor* to) const {
    const Dims dense = RowMajorStrides({spec.count.data(), spec.count.size()});
    const Dims sliced = RowMajorStrides(to->shape().dims());
    int64_t offset = 0;
    CopyDims dims;
    for (int i = 0; i < to->rank(); ++i) {
      offset += spec.begin[i] * sliced[i];
      dims.push_back({spec.count[i], scalar ? 0 : dense[i], sliced[i] * spec.step[i]});
    }
    if (CopyStrided(ctx, value.dtype(), value.raw_data(),
                    ElementAt(to->raw_data(), value.dtype(), offset), std::move(dims))) {
      return OkStatus();
    }
    return errors::Unimplemented(def().name(), " of ", DataTypeName(value.dtype()));
  }

  const StridedSliceMasks masks_;
};

// CountUpTo and ResourceCountUpTo.
class CountUpToKernel : public Kernel {
 public:
  explicit CountUpToKernel(KernelConstruction& c)
      : Kernel(c), limit_(c.attr<int64_t>("limit")), dtype_(c.attr<DataType>("T")) {}

  Status Compute(KernelContext& ctx) override {
    LockedVariables variable;
    MR_RETURN_IF_ERROR(variable.Lock(ctx, 1, dtype_));
    Tensor* value = variable.value(0);
    if (value->rank() != 0) {
      return errors::InvalidArgument("input is not a scalar: ", value->shape().DebugString());
    }
    const int64_t now = dtype_ == kInt32 ? value->scalar<int32_t>() : value->scalar<int64_t>();
    if (now >= limit_) return errors::OutOfRange("Reached limit of ", limit_);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    MR_RETURN_IF_ERROR(variable.MakeExclusive(ctx));
    if (dtype_ == kInt32) {
      out->data<int32_t>()[0] = static_cast<int32_t>(now);
      value->data<int32_t>()[0] = static_cast<int32_t>(now + 1);
    } else {
      out->data<int64_t>()[0] = now;
      value->data<int64_t>()[0] = now + 1;
    }
    return OkStatus();
  }

 private:
  const int64_t limit_;
  const DataType dtype_;
};

}  // namespace

void RegisterVariablePartKernels(KernelRegistry& r) {
  RegisterCpu<StridedSliceAssignKernel>(r, "StridedSliceAssign");
  RegisterCpu<StridedSliceAssignKernel>(r, "ResourceStridedSliceAssign");
  RegisterCpu<CountUpToKernel>(r, "CountUpTo");
  RegisterCpu<CountUpToKernel>(r, "ResourceCountUpTo");
}

}  // namespace millrace
