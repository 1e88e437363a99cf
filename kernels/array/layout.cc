// The same elements in another order or more often: transpose, tile, pad, reverse, broadcast.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

Status CannotMove(DataType dtype) {
  return errors::Unimplemented("elements of type ", DataTypeName(dtype), " cannot be copied");
}

class TransposeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const int rank = in.rank();
    MR_ASSIGN_OR_RETURN(Dims perm, IntVector(ctx.input(1), "perm", true));
    if (static_cast<int>(perm.size()) != rank) {
      return errors::InvalidArgument("transpose expects a vector of size ", rank,
                                     ". But input(1) is a vector of size ", perm.size());
    }
    Shape shape;
    Dims seen(rank, 0);
    bool in_order = true;
    for (int i = 0; i < rank; ++i) {
      if (perm[i] < 0) perm[i] += rank;
      if (perm[i] < 0 || perm[i] >= rank) {
        return errors::InvalidArgument(perm[i], " is out of range [0 .. ", rank, ")");
      }
      if (seen[perm[i]]++) {
        return errors::InvalidArgument(perm[i], " is duplicated in the permutation");
      }
      shape.AddDim(in.dim(static_cast<int>(perm[i])));
      in_order = in_order && perm[i] == i;
    }
    if (in_order) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const Dims src = RowMajorStrides(in.shape().dims()), dst = RowMajorStrides(shape.dims());
    CopyDims dims;
    for (int i = 0; i < rank; ++i) dims.push_back({shape.dim(i), src[perm[i]], dst[i]});
    if (!CopyStrided(ctx, in.dtype(), in.raw_data(), out->raw_data(), std::move(dims))) {
      return CannotMove(in.dtype());
    }
    return OkStatus();
  }
};

class TileKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Dims times, IntVector(ctx.input(1), "multiples", true));
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
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({sizes.data(), sizes.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const Dims src = RowMajorStrides(in.shape().dims()), dst = RowMajorStrides(shape.dims());
    CopyDims dims;
    for (int i = 0; i < in.rank(); ++i) {
      dims.push_back({times[i], 0, dst[i] * in.dim(i)});
      dims.push_back({in.dim(i), src[i], dst[i]});
    }
    if (!CopyStrided(ctx, in.dtype(), in.raw_data(), out->raw_data(), std::move(dims))) {
      return CannotMove(in.dtype());
    }
    return OkStatus();
  }
};

class PadKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const Tensor& paddings = ctx.input(1);
    const int rank = in.rank();
    if (paddings.rank() != 2 || paddings.dim(1) != 2 || paddings.dim(0) != rank) {
      return errors::InvalidArgument("paddings must be a matrix of shape [", rank,
                                     ",2], one row for each dimension of the input, got ",
                                     paddings.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Tensor flat, paddings.Reshaped(Shape({2 * rank})));
    MR_ASSIGN_OR_RETURN(const Dims pad, IntVector(flat, "paddings"));
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
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({sizes.data(), sizes.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    bool movable;
    if (ctx.num_inputs() == 3) {
      if (ctx.input(2).num_elements() != 1) {
        return errors::InvalidArgument("constant_values must be a scalar, got shape ",
                                       ctx.input(2).shape().DebugString());
      }
      movable =
          FillWith(ctx, in.dtype(), ctx.input(2).raw_data(), out->raw_data(), shape.num_elements());
    } else {
      movable = FillZero(ctx, in.dtype(), out->raw_data(), shape.num_elements());
    }
    if (!movable) return CannotMove(in.dtype());
    if (in.num_elements() == 0) return OkStatus();
    const Dims src = RowMajorStrides(in.shape().dims()), dst = RowMajorStrides(shape.dims());
    int64_t offset = 0;
    CopyDims dims;
    for (int i = 0; i < rank; ++i) {
      offset += pad[2 * i] * dst[i];
      dims.push_back({in.dim(i), src[i], dst[i]});
    }
    CopyStrided(ctx, in.dtype(), in.raw_data(), ElementAt(out->raw_data(), in.dtype(), offset),
                std::move(dims));
    return OkStatus();
  }
};

class BroadcastToKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(1), "shape"));
    const int extra = shape.rank() - in.rank();
    bool fits = extra >= 0;
    for (int i = 0; fits && i < in.rank(); ++i) {
      fits = in.dim(i) == 1 || in.dim(i) == shape.dim(extra + i);
    }
    if (!fits) {
      return errors::InvalidArgument("Incompatible shapes: ", in.shape().DebugString(), " vs. ",
                                     shape.DebugString());
    }
    if (in.shape() == shape) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const Dims src = RowMajorStrides(in.shape().dims()), dst = RowMajorStrides(shape.dims());
    CopyDims dims;
    for (int i = 0; i < shape.rank(); ++i) {
      const bool repeated = i < extra || in.dim(i - extra) == 1;
      dims.push_back({shape.dim(i), repeated ? 0 : src[i - extra], dst[i]});
    }
    if (!CopyStrided(ctx, in.dtype(), in.raw_data(), out->raw_data(), std::move(dims))) {
      return CannotMove(in.dtype());
    }
    return OkStatus();
  }
};

class ReverseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Dims axes, IntVector(ctx.input(1), "axis", true));
    Dims reversed(in.rank(), 0);
    for (int64_t axis : axes) {
      MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, in.rank(), "axis"));
      if (reversed[i]++) return errors::InvalidArgument("axis ", i, " specified more than once");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    const Dims strides = RowMajorStrides(in.shape().dims());
    CopyDims dims;
    int64_t offset = 0;
    for (int i = 0; i < in.rank(); ++i) {
      const int64_t step = reversed[i] ? -strides[i] : strides[i];
      if (reversed[i]) offset += (in.dim(i) - 1) * strides[i];
      dims.push_back({in.dim(i), step, strides[i]});
    }
    if (!CopyStrided(ctx, in.dtype(), ElementAt(in.raw_data(), in.dtype(), offset), out->raw_data(),
                     std::move(dims))) {
      return CannotMove(in.dtype());
    }
    return OkStatus();
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
      c.SetError(errors::Unimplemented("only data_format NHWC is supported on the CPU"));
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
  RegisterCpu<TransposeKernel>(r, "Transpose");
  RegisterCpu<TileKernel>(r, "Tile");
  RegisterCpu<PadKernel>(r, "Pad");
  RegisterCpu<PadKernel>(r, "PadV2");
  RegisterCpu<BroadcastToKernel>(r, "BroadcastTo");
  RegisterCpu<ReverseKernel>(r, "ReverseV2");
  RegisterCpu<DepthSpaceKernel<true>>(r, "SpaceToDepth");
  RegisterCpu<DepthSpaceKernel<false>>(r, "DepthToSpace");
}

}  // namespace millrace
