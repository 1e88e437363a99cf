// SPDX-License-Identifier: Apache-2.0
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

// A slice that is written, by an op with the inputs (tensor, begin, end, strides, value).
class SliceWriter {
 public:
  explicit SliceWriter(KernelConstruction& c) : masks_(StridedSliceMasks::FromAttrs(c.attrs())) {}

  StatusOr<StridedSliceSpec> SpecOf(KernelContext& ctx, const Shape& shape) const {
    const Shape &from = ctx.input(1).shape(), &to = ctx.input(2).shape(),
                &by = ctx.input(3).shape();
    if (from.rank() != 1 || !(from == to) || !(from == by)) {
      return errors::InvalidArgument(
          "Expected begin, end, and strides to be 1D equal size tensors, but got shapes ",
          from.DebugString(), ", ", to.DebugString(), ", and ", by.DebugString(), " instead.");
    }
    MR_ASSIGN_OR_RETURN(const Dims begin, IntVector(ctx.input(1), "begin", true));
    MR_ASSIGN_OR_RETURN(const Dims end, IntVector(ctx.input(2), "end", true));
    MR_ASSIGN_OR_RETURN(const Dims strides, IntVector(ctx.input(3), "strides", true));
    return MakeStridedSliceSpec(shape, begin, end, strides, masks_);
  }

  // InvalidArgument unless a tensor of shape `value` can be repeated to fill the slice. A slice
  // without elements takes any, as in TensorFlow.
  static Status Check(const StridedSliceSpec& spec, const Shape& value) {
    if (spec.out.num_elements() == 0) return OkStatus();
    const int more = value.rank() - spec.out.rank();
    bool fits = true;
    for (int i = 0; i < value.rank(); ++i) {
      fits &= value.dim(i) == 1 || (i >= more && value.dim(i) == spec.out.dim(i - more));
    }
    if (fits) return OkStatus();
    return errors::InvalidArgument("Cannot broadcast input shape ", value.DebugString(),
                                   " into final shape ", spec.out.DebugString());
  }

  // `given` has been checked. Unimplemented if elements of its type cannot be moved.
  static Status Write(KernelContext& ctx, const StridedSliceSpec& spec, const Tensor& given,
                      Tensor* to) {
    if (spec.out.num_elements() == 0) return OkStatus();
    MR_ASSIGN_OR_RETURN(const Tensor value, Repeated(ctx, given, spec.out));
    // Axes that are new or shrunk have one element: they move nothing.
    const Dims dense = RowMajorStrides({spec.count.data(), spec.count.size()});
    const Dims sliced = RowMajorStrides(to->shape().dims());
    int64_t offset = 0;
    CopyDims dims;
    for (int i = 0; i < to->rank(); ++i) {
      offset += spec.begin[i] * sliced[i];
      dims.push_back(
          {spec.count[i], value.num_elements() == 1 ? 0 : dense[i], sliced[i] * spec.step[i]});
    }
    return Copy(ctx, value, ElementAt(to->raw_data(), value.dtype(), offset), std::move(dims));
  }

 private:
  // `value` with all elements of `shape`, or with one for all of them.
  static StatusOr<Tensor> Repeated(KernelContext& ctx, const Tensor& value, const Shape& shape) {
    if (value.num_elements() == 1 || value.num_elements() == shape.num_elements()) return value;
    MR_ASSIGN_OR_RETURN(Tensor all, ctx.AllocateTemp(value.dtype(), shape));
    const Dims own = RowMajorStrides(value.shape().dims()), dense = RowMajorStrides(shape.dims());
    const int more = value.rank() - shape.rank();
    CopyDims dims;
    for (int i = 0; i < shape.rank(); ++i) {
      const bool repeats = i + more < 0 || value.dim(i + more) == 1;
      dims.push_back({shape.dim(i), repeats ? 0 : own[i + more], dense[i]});
    }
    MR_RETURN_IF_ERROR(Copy(ctx, value, all.raw_data(), std::move(dims)));
    return all;
  }

  static Status Copy(KernelContext& ctx, const Tensor& value, void* to, CopyDims dims) {
    if (CopyStrided(ctx, value.dtype(), value.raw_data(), to, std::move(dims))) return OkStatus();
    return errors::Unimplemented("slices of ", DataTypeName(value.dtype()), " cannot be written");
  }

  const StridedSliceMasks masks_;
};

// StridedSliceAssign and ResourceStridedSliceAssign.
class StridedSliceAssignKernel : public Kernel {
 public:
  explicit StridedSliceAssignKernel(KernelConstruction& c) : Kernel(c), writer_(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor value = ctx.locked_input(4);
    {
      LockedVariables variable;
      MR_RETURN_IF_ERROR(variable.Lock(ctx, 1, value.dtype()));
      MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                          writer_.SpecOf(ctx, variable.value(0)->shape()));
      MR_RETURN_IF_ERROR(SliceWriter::Check(spec, value.shape()));
      if (spec.out.num_elements() > 0) {
        MR_RETURN_IF_ERROR(variable.MakeExclusive(ctx));
        MR_RETURN_IF_ERROR(SliceWriter::Write(ctx, spec, value, variable.value(0)));
      }
    }
    ForwardFirstRef(ctx);
    return OkStatus();
  }

 private:
  const SliceWriter writer_;
};

// A copy of a tensor with a slice of it written anew.
class TensorStridedSliceUpdateKernel : public Kernel {
 public:
  explicit TensorStridedSliceUpdateKernel(KernelConstruction& c) : Kernel(c), writer_(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor input = ctx.locked_input(0), value = ctx.locked_input(4);
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec, writer_.SpecOf(ctx, input.shape()));
    MR_RETURN_IF_ERROR(SliceWriter::Check(spec, value.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    const int64_t n = input.num_elements();
    if (!CopyStrided(ctx, input.dtype(), input.raw_data(), out->raw_data(), {{n, 1, 1}})) {
      return errors::Unimplemented("slices of ", DataTypeName(input.dtype()), " cannot be written");
    }
    return SliceWriter::Write(ctx, spec, value, out);
  }

 private:
  const SliceWriter writer_;
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
  RegisterCpu<TensorStridedSliceUpdateKernel>(r, "TensorStridedSliceUpdate");
  RegisterCpu<CountUpToKernel>(r, "CountUpTo");
  RegisterCpu<CountUpToKernel>(r, "ResourceCountUpTo");
}

}  // namespace millrace
