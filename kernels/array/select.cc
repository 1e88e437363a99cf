// Choice between two tensors by a third of truth values, and where it is true.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// The condition has the operands' shape, or is a scalar, or a vector that chooses rows.
class SelectKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &cond = ctx.input(0), &x = ctx.input(1), &y = ctx.input(2);
    const Shape shape = x.shape();
    if (!(shape == y.shape())) {
      return errors::InvalidArgument("'then' and 'else' must have the same size. but received: ",
                                     shape.DebugString(), " vs. ", y.shape().DebugString());
    }
    if (cond.rank() == 0) {
      ctx.SetOutput(0, cond.scalar<bool>() ? x : y);
      return OkStatus();
    }
    const bool same = cond.shape() == shape;
    const bool rows = cond.rank() == 1 && shape.rank() >= 1 && cond.dim(0) == shape.dim(0);
    if (!same && !rows) {
      return errors::InvalidArgument(
          "'cond' must be a scalar, of the shape of 'then', or a vector as long as its first "
          "dimension: ",
          cond.shape().DebugString(), " vs. ", shape.DebugString());
    }
    const int64_t units = cond.num_elements();
    const int64_t run = units == 0 ? 0 : shape.num_elements() / units;
    const bool* choose = cond.data<bool>();
    const void *then = x.raw_data(), *other = y.raw_data();
    const DataType dtype = x.dtype();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({1, 2}, 0, shape));
    void* dst_ptr = out->raw_data();
    const bool movable = DispatchMovable(dtype, [&]<typename T>() {
      const T *a = static_cast<const T*>(then), *b = static_cast<const T*>(other);
      T* dst = static_cast<T*>(dst_ptr);
      ctx.ParallelFor(units, 0.5 * static_cast<double>(run), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* src = (choose[i] ? a : b) + i * run;
          if (src != dst + i * run) std::copy_n(src, run, dst + i * run);
        }
      });
    });
    if (!movable) return errors::Unimplemented("Select of ", DataTypeName(dtype));
    return OkStatus();
  }
};

// All three are broadcast against each other.
class SelectV2Kernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &cond = ctx.input(0), &x = ctx.input(1), &y = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Shape values, BroadcastShapes(x.shape(), y.shape()));
    MR_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes(cond.shape(), values));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    // First all of `y`, then `x` where the condition holds.
    MR_ASSIGN_OR_RETURN(const Dims y_strides, StridesUnder(y.shape(), shape));
    const Dims strides = RowMajorStrides(shape.dims());
    CopyDims dims;
    for (int i = 0; i < shape.rank(); ++i) {
      dims.push_back({shape.dim(i), y_strides[i], strides[i]});
    }
    if (!CopyStrided(ctx, y.dtype(), y.raw_data(), out->raw_data(), std::move(dims))) {
      return errors::Unimplemented("SelectV2 of ", DataTypeName(y.dtype()));
    }
    if (shape.num_elements() == 0) return OkStatus();
    MR_ASSIGN_OR_RETURN(const Dims c_strides, StridesUnder(cond.shape(), shape));
    MR_ASSIGN_OR_RETURN(const Dims x_strides, StridesUnder(x.shape(), shape));
    const bool* choose = cond.data<bool>();
    DispatchMovable(x.dtype(), [&]<typename T>() {
      const T* src = static_cast<const T*>(x.raw_data());
      T* dst = static_cast<T*>(out->raw_data());
      Dims index(shape.rank(), 0);
      int64_t c = 0, s = 0;
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        if (choose[c]) dst[i] = src[s];
        for (int k = shape.rank() - 1; k >= 0; --k) {
          c += c_strides[k];
          s += x_strides[k];
          if (++index[k] < shape.dim(k)) break;
          c -= c_strides[k] * shape.dim(k);
          s -= x_strides[k] * shape.dim(k);
          index[k] = 0;
        }
      }
    });
    return OkStatus();
  }

 private:
  // Strides of `in` along the axes of `out`; 0 where it is repeated.
  static StatusOr<Dims> StridesUnder(const Shape& in, const Shape& out) {
    const Dims own = RowMajorStrides(in.dims());
    const int extra = out.rank() - in.rank();
    if (extra < 0) return errors::InvalidArgument("Incompatible shapes");
    Dims strides(out.rank(), 0);
    for (int i = 0; i < in.rank(); ++i) {
      if (in.dim(i) != 1) strides[extra + i] = own[i];
    }
    return strides;
  }
};

// The coordinates of all elements that are not zero, in row-major order.
class WhereKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    Status status;
    const bool known = DispatchType(JoinTypes<NumberTypes, TypeList<bool>>(), in.dtype(),
                                    [&]<typename T>() { status = Run<T>(ctx, in); });
    if (!known) return errors::Unimplemented("Where of ", DataTypeName(in.dtype()));
    return status;
  }

 private:
  template <typename T>
  static bool IsTrue(T x) {
    return static_cast<ComputeType<T>>(x) != ComputeType<T>(0);
  }
  template <typename T>
  static Status Run(KernelContext& ctx, const Tensor& in) {
    const auto values = in.flat<T>();
    const int64_t count = std::count_if(values.begin(), values.end(), &IsTrue<T>);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({count, in.rank()})));
    int64_t* row = out->data<int64_t>();
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      if (!IsTrue(values[i])) continue;
      int64_t rest = i;
      for (int k = in.rank() - 1; k >= 0; --k) {
        row[k] = rest % in.dim(k);
        rest /= in.dim(k);
      }
      row += in.rank();
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterSelectKernels(KernelRegistry& r) {
  RegisterCpu<SelectKernel>(r, "Select");
  RegisterCpu<SelectV2Kernel>(r, "SelectV2");
  RegisterCpu<WhereKernel>(r, "Where");
}

}  // namespace millrace
