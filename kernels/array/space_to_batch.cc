// SPDX-License-Identifier: Apache-2.0
// SpaceToBatchND and BatchToSpaceND: blocks of space become entries of the batch, and back.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// The two tensors of either op: `space` [batch, space..., rest], and `blocks`
// [batch * product of blocks, space / block..., rest], after padding or before cropping.
struct Blocks {
  Dims block, before, after;  // by spatial axis
  Dims space, small;          // sizes of the spatial axes
  int64_t batch = 0, rest = 1;
  int64_t offsets = 1;  // product of blocks

  int axes() const { return static_cast<int>(block.size()); }
};

StatusOr<Blocks> ReadBlocks(KernelContext& ctx) {
  Blocks b;
  MR_ASSIGN_OR_RETURN(b.block, IntVector(ctx.input(1), "block_shape", true));
  const Tensor& pads = ctx.input(2);
  if (ctx.input(0).rank() < 1 + b.axes()) {
    return errors::InvalidArgument("input rank should be >= ", 1 + b.axes(), " instead of ",
                                   ctx.input(0).rank());
  }
  if (pads.rank() != 2 || pads.dim(0) != b.axes() || pads.dim(1) != 2) {
    return errors::InvalidArgument("paddings and crops should have shape [", b.axes(),
                                   ", 2] instead of ", pads.shape().DebugString());
  }
  for (int i = 0; i < b.axes(); ++i) {
    const auto pad = [&](int side) {
      return pads.dtype() == kInt32 ? int64_t{pads.data<int32_t>()[2 * i + side]}
                                    : pads.data<int64_t>()[2 * i + side];
    };
    if (b.block[i] < 1) {
      return errors::InvalidArgument("All values in block_shape must be positive, got value, ",
                                     b.block[i], " at index ", i, ".");
    }
    b.before.push_back(pad(0));
    b.after.push_back(pad(1));
    if (b.before[i] < 0 || b.after[i] < 0) {
      return errors::InvalidArgument("Paddings and crops must be non-negative");
    }
    if (__builtin_mul_overflow(b.offsets, b.block[i], &b.offsets)) {
      return errors::InvalidArgument("block_shape is too large");
    }
  }
  return b;
}

// Calls f(offset in `blocks`, offset in `space`, inside) for all runs of `rest` elements of
// `blocks`; not inside means that it lies in the padding.
template <typename F>
void ForEachRun(const Blocks& b, F&& f) {
  const int axes = b.axes();
  int64_t places = 1;
  for (int64_t s : b.small) places *= s;
  int64_t at = 0;
  for (int64_t entry = 0; entry < b.offsets * b.batch; ++entry) {
    const int64_t n = entry % b.batch;
    Dims offset(axes);
    for (int64_t i = axes - 1, left = entry / b.batch; i >= 0; --i) {
      offset[i] = left % b.block[i];
      left /= b.block[i];
    }
    for (int64_t place = 0; place < places; ++place, ++at) {
      int64_t in = 0, step = 1, left = place;
      bool inside = true;
      for (int i = axes - 1; i >= 0; --i) {
        const int64_t x = left % b.small[i] * b.block[i] + offset[i] - b.before[i];
        left /= b.small[i];
        inside = inside && x >= 0 && x < b.space[i];
        in += x * step;
        step *= b.space[i];
      }
      f(at * b.rest, (n * step + in) * b.rest, inside);
    }
  }
}

Status CannotMove(DataType dtype) {
  return errors::Unimplemented("the input is of ", DataTypeName(dtype),
                               ", whose elements are not moved one by one: it must be of numbers, "
                               "bools, strings or resources");
}

class SpaceToBatchKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Blocks b, ReadBlocks(ctx));
    b.batch = in.dim(0);
    Dims dims;
    int64_t entries;
    if (__builtin_mul_overflow(b.batch, b.offsets, &entries)) {
      return errors::InvalidArgument("block_shape is too large");
    }
    dims.push_back(entries);
    for (int i = 0; i < b.axes(); ++i) {
      b.space.push_back(in.dim(1 + i));
      const int64_t padded = in.dim(1 + i) + b.before[i] + b.after[i];
      if (padded % b.block[i] != 0) {
        return errors::InvalidArgument("padded_shape[", i, "]=", padded,
                                       " is not divisible by block_shape[", i, "]=", b.block[i]);
      }
      b.small.push_back(padded / b.block[i]);
      dims.push_back(b.small[i]);
    }
    for (int i = 1 + b.axes(); i < in.rank(); ++i) {
      dims.push_back(in.dim(i));
      b.rest *= in.dim(i);
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({dims.data(), dims.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    const bool moved = DispatchMovable(in.dtype(), [&]<typename T>() {
      const T* from = static_cast<const T*>(in.raw_data());
      T* to = static_cast<T*>(out->raw_data());
      ForEachRun(b, [&](int64_t block, int64_t space, bool inside) {
        if (inside) {
          std::copy_n(from + space, b.rest, to + block);
        } else {
          std::fill_n(to + block, b.rest, T());
        }
      });
    });
    return moved ? OkStatus() : CannotMove(in.dtype());
  }
};

class BatchToSpaceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Blocks b, ReadBlocks(ctx));
    if (in.dim(0) % b.offsets != 0) {
      return errors::InvalidArgument("Input batch dimension (", in.dim(0),
                                     ") is not divisible by product of block sizes (", b.offsets,
                                     ")");
    }
    b.batch = in.dim(0) / b.offsets;
    Dims dims{b.batch};
    for (int i = 0; i < b.axes(); ++i) {
      int64_t size;
      b.small.push_back(in.dim(1 + i));
      if (__builtin_mul_overflow(in.dim(1 + i), b.block[i], &size)) {
        return errors::InvalidArgument("block_shape is too large");
      }
      size -= b.before[i] + b.after[i];
      if (size < 0) {
        return errors::InvalidArgument("cropped_shape[", i, "]=", size, " must be non-negative");
      }
      b.space.push_back(size);
      dims.push_back(size);
    }
    for (int i = 1 + b.axes(); i < in.rank(); ++i) {
      dims.push_back(in.dim(i));
      b.rest *= in.dim(i);
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({dims.data(), dims.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    const bool moved = DispatchMovable(in.dtype(), [&]<typename T>() {
      const T* from = static_cast<const T*>(in.raw_data());
      T* to = static_cast<T*>(out->raw_data());
      ForEachRun(b, [&](int64_t block, int64_t space, bool inside) {
        if (inside) std::copy_n(from + block, b.rest, to + space);
      });
    });
    return moved ? OkStatus() : CannotMove(in.dtype());
  }
};

}  // namespace

void RegisterSpaceToBatchKernels(KernelRegistry& r) {
  RegisterCpu<SpaceToBatchKernel>(r, "SpaceToBatchND");
  RegisterCpu<BatchToSpaceKernel>(r, "BatchToSpaceND");
}

}  // namespace millrace
