// Slice, StridedSlice and its gradient.
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
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
    MR_ASSIGN_OR_RETURN(const Dims begin, IntVector(ctx.input(1), "begin", true));
    MR_ASSIGN_OR_RETURN(Dims size, IntVector(ctx.input(2), "size", true));
    const int rank = in.rank();
    if (static_cast<int>(begin.size()) != rank || static_cast<int>(size.size()) != rank) {
      return errors::InvalidArgument("Expected begin and size arguments to be 1-D tensors of size ",
                                     rank, ", but got ", begin.size(), " and ", size.size());
    }
    const Dims strides = RowMajorStrides(in.shape().dims());
    int64_t offset = 0;
    bool whole = true;
    for (int i = 0; i < rank; ++i) {
      const int64_t dim = in.dim(i);
      if (begin[i] < 0 || begin[i] > dim) {
        return errors::InvalidArgument("Expected begin[", i, "] in [0, ", dim, "], but got ",
                                       begin[i]);
      }
      if (size[i] == -1) size[i] = dim - begin[i];
      if (size[i] < 0 || size[i] > dim - begin[i]) {
        return errors::InvalidArgument("Expected size[", i, "] in [0, ", dim - begin[i],
                                       "], but got ", size[i]);
      }
      offset += begin[i] * strides[i];
      whole = whole && size[i] == dim;
    }
    if (whole) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    const Shape shape(std::span<const int64_t>(size.data(), size.size()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const Dims out_strides = RowMajorStrides(shape.dims());
    CopyDims dims;
    for (int i = 0; i < rank; ++i) dims.push_back({size[i], strides[i], out_strides[i]});
    if (!CopyStrided(ctx, in.dtype(), ElementAt(in.raw_data(), in.dtype(), offset), out->raw_data(),
                     std::move(dims))) {
      return errors::Unimplemented("Slice of ", DataTypeName(in.dtype()));
    }
    return OkStatus();
  }
};

StatusOr<StridedSliceSpec> SpecFromInputs(const KernelContext& ctx, int first, const Shape& in,
                                          const StridedSliceMasks& masks) {
  Dims operands[3];
  static constexpr const char* kNames[] = {"begin", "end", "strides"};
  for (int i = 0; i < 3; ++i) {
    MR_ASSIGN_OR_RETURN(operands[i], IntVector(ctx.input(first + i), kNames[i], true));
  }
  return MakeStridedSliceSpec(in, {operands[0].data(), operands[0].size()},
                              {operands[1].data(), operands[1].size()},
                              {operands[2].data(), operands[2].size()}, masks);
}

// The axes of the slice, seen from the sliced tensor (`sliced`) and from the dense one, and
// where the slice begins in the sliced tensor.
struct SliceLayout {
  int64_t offset = 0;
  Dims sliced_strides, dense_strides;
};
SliceLayout LayoutOf(const StridedSliceSpec& spec, const Shape& sliced) {
  SliceLayout layout;
  layout.sliced_strides = RowMajorStrides(sliced.dims());
  layout.dense_strides = RowMajorStrides({spec.count.data(), spec.count.size()});
  for (int i = 0; i < sliced.rank(); ++i) {
    layout.offset += spec.begin[i] * layout.sliced_strides[i];
    layout.sliced_strides[i] *= spec.step[i];
  }
  return layout;
}

class StridedSliceKernel : public Kernel {
 public:
  explicit StridedSliceKernel(KernelConstruction& c)
      : Kernel(c), masks_(StridedSliceMasks::FromAttrs(c.attrs())) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec, SpecFromInputs(ctx, 1, in.shape(), masks_));
    bool whole = true;
    for (int i = 0; i < in.rank(); ++i) {
      whole = whole && spec.step[i] == 1 && spec.count[i] == in.dim(i);
    }
    if (whole) {
      MR_ASSIGN_OR_RETURN(Tensor same, in.Reshaped(spec.out));
      ctx.SetOutput(0, std::move(same));
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, spec.out));
    if (spec.out.num_elements() == 0) return OkStatus();
    const SliceLayout layout = LayoutOf(spec, in.shape());
    CopyDims dims;
    for (int i = 0; i < in.rank(); ++i) {
      dims.push_back({spec.count[i], layout.sliced_strides[i], layout.dense_strides[i]});
    }
    if (!CopyStrided(ctx, in.dtype(), ElementAt(in.raw_data(), in.dtype(), layout.offset),
                     out->raw_data(), std::move(dims))) {
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
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec, SpecFromInputs(ctx, 1, shape, masks_));
    if (!(dy.shape() == spec.out)) {
      return errors::InvalidArgument("shape of dy was ", dy.shape().DebugString(), " instead of ",
                                     spec.out.DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!FillZero(ctx, out->dtype(), out->raw_data(), shape.num_elements())) {
      return errors::Unimplemented("StridedSliceGrad of ", DataTypeName(dy.dtype()));
    }
    if (dy.num_elements() == 0) return OkStatus();
    const SliceLayout layout = LayoutOf(spec, shape);
    CopyDims dims;
    for (int i = 0; i < shape.rank(); ++i) {
      dims.push_back({spec.count[i], layout.dense_strides[i], layout.sliced_strides[i]});
    }
    CopyStrided(ctx, dy.dtype(), dy.raw_data(),
                ElementAt(out->raw_data(), dy.dtype(), layout.offset), std::move(dims));
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
