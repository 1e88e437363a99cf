// SPDX-License-Identifier: Apache-2.0
// FusedPadConv2D and FusedResizeAndPadConv2D: a convolution of images that are resized (bilinearly)
// and then padded as if by a mirror. Both steps are one table of places along rows and one along
// columns, by which the images that the convolution sees are made.
#include "kernels/nn/fused_pad_conv.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/layout_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/nn/conv_plan.h"
#include "kernels/nn/conv_products.h"

namespace millrace {
namespace {

// Where along an axis something is read: between two neighbours, of which `weight` is the upper
// one's.
struct Place {
  int64_t lower, upper;
  float weight;
};

// Of an axis of `in` pixels, resized to `resized` and padded to `padded` with `before` in front.
std::vector<Place> PlacesOf(int64_t in, int64_t resized, int64_t before, int64_t padded, int skip,
                            bool align_corners) {
  const float scale = align_corners && resized > 1
                          ? static_cast<float>(in - 1) / static_cast<float>(resized - 1)
                          : static_cast<float>(in) / static_cast<float>(resized);
  std::vector<Place> places(static_cast<std::size_t>(padded));
  for (int64_t i = 0; i < padded; ++i) {
    int64_t at = i - before;
    if (at < 0) at = -at - 1 + skip;
    if (at >= resized) at = 2 * resized - 1 - at - skip;
    if (in == resized) {
      places[i] = {at, at, 0};
      continue;
    }
    const float exact = static_cast<float>(at) * scale;
    const int64_t lower = std::min(static_cast<int64_t>(exact), in - 1);
    places[i] = {lower, std::min(lower + 1, in - 1), exact - static_cast<float>(lower)};
  }
  return places;
}

class FusedPadConvKernel : public Kernel {
 public:
  explicit FusedPadConvKernel(KernelConstruction& c)
      : Kernel(c),
        attrs_(c),
        resizes_(c.def().name() == "FusedResizeAndPadConv2D"),
        align_corners_(c.attrs().GetOr<bool>("resize_align_corners", false)),
        skip_(c.attr<std::string>("mode") == "REFLECT" ? 1 : 0) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    if (images.rank() != 4) {
      return errors::InvalidArgument("input must be 4-dimensional", images.shape().DebugString());
    }
    Shape resized = images.shape();
    if (resizes_) {
      MR_ASSIGN_OR_RETURN(resized, ResizedShape(images.shape(), ctx.input(1)));
    }
    MR_ASSIGN_OR_RETURN(const MirrorPlan pad,
                        PlanMirrorPad(resized, ctx.input(resizes_ ? 2 : 1), skip_));
    if (pad.out.dim(0) != resized.dim(0) || pad.out.dim(3) != resized.dim(3)) {
      return errors::InvalidArgument("neither the batch nor the channels can be padded, got ",
                                     resized.DebugString(), " padded to ", pad.out.DebugString());
    }
    const Tensor& filter = ctx.input(ctx.num_inputs() - 1);
    if (filter.rank() != 4) {
      return errors::InvalidArgument("filter must be 4-dimensional: ",
                                     filter.shape().DebugString());
    }
    if (filter.dim(2) != images.dim(3)) {
      return errors::InvalidArgument("input and filter must have the same depth: ", images.dim(3),
                                     " vs ", filter.dim(2));
    }
    MR_ASSIGN_OR_RETURN(const ConvSizes sizes, PlanConv(attrs_, false, pad.out, filter.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, sizes.outputs));
    if (out->num_elements() == 0) return OkStatus();
    Status status;
    DispatchType(FloatTypes(), images.dtype(), [&]<typename T>() {
      status = Run<T>(ctx, resized, pad, sizes.geometry, filter, out);
    });
    return status;
  }

 private:
  static StatusOr<Shape> ResizedShape(const Shape& images, const Tensor& size) {
    if (size.rank() != 1 || size.dim(0) != 2) {
      return errors::InvalidArgument("shape_t must have two elements", size.shape().DebugString());
    }
    const int64_t rows = size.data<int32_t>()[0], columns = size.data<int32_t>()[1];
    if (rows <= 0 || columns <= 0) {
      return errors::InvalidArgument("output dimensions must be positive");
    }
    if (images.dim(1) <= 0 || images.dim(2) <= 0) {
      return errors::InvalidArgument("input image must be of non-zero size");
    }
    return MakeShape(Dims{images.dim(0), rows, columns, images.dim(3)});
  }

  template <typename T>
  Status Run(KernelContext& ctx, const Shape& resized, const MirrorPlan& pad,
             const ConvGeometry& geometry, const Tensor& filter, Tensor* out) const {
    using C = ComputeType<T>;
    MR_ASSIGN_OR_RETURN(Tensor seen, ctx.AllocateTemp(DataTypeOf<C>(), pad.out));
    if (seen.num_elements() > 0) Read<T>(ctx, resized, pad, seen.data<C>());
    if constexpr (std::is_same_v<T, C>) {
      return ConvByProducts<C>(ctx, geometry, seen.data<C>(), filter.data<C>(), out->data<C>());
    } else {
      MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(DataTypeOf<C>(), filter.shape()));
      MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(DataTypeOf<C>(), out->shape()));
      std::transform(filter.data<T>(), filter.data<T>() + filter.num_elements(), wide.data<C>(),
                     [](const T& x) { return static_cast<C>(x); });
      MR_RETURN_IF_ERROR(
          ConvByProducts<C>(ctx, geometry, seen.data<C>(), wide.data<C>(), sums.data<C>()));
      std::transform(sums.data<C>(), sums.data<C>() + sums.num_elements(), out->data<T>(),
                     [](const C& x) { return T(x); });
      return OkStatus();
    }
  }

  // The images, resized and padded.
  template <typename T>
  void Read(KernelContext& ctx, const Shape& resized, const MirrorPlan& pad,
            ComputeType<T>* out) const {
    using C = ComputeType<T>;
    const Tensor& images = ctx.input(0);
    const int64_t in_rows = images.dim(1), in_columns = images.dim(2), channels = images.dim(3);
    const int64_t out_rows = pad.out.dim(1), out_columns = pad.out.dim(2);
    const auto rows =
        PlacesOf(in_rows, resized.dim(1), pad.before[1], out_rows, skip_, align_corners_);
    const auto columns =
        PlacesOf(in_columns, resized.dim(2), pad.before[2], out_columns, skip_, align_corners_);
    const T* const in = images.data<T>();
    const auto between = [](const T& a, const T& b, float weight) {
      return static_cast<C>(a) + (static_cast<C>(b) - static_cast<C>(a)) * static_cast<C>(weight);
    };
    const auto read_row = [&](int64_t row) {
      const Place& y = rows[row % out_rows];
      const T* const image = in + row / out_rows * in_rows * in_columns * channels;
      const T* const top = image + y.lower * in_columns * channels;
      const T* const bottom = image + y.upper * in_columns * channels;
      C* to = out + row * out_columns * channels;
      for (const Place& x : columns) {
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t left = x.lower * channels + c, right = x.upper * channels + c;
          const C above = between(top[left], top[right], x.weight);
          const C below = between(bottom[left], bottom[right], x.weight);
          // Without a weight what lies below does not count, an infinity neither.
          *to++ = y.weight == 0 ? above : above + (below - above) * static_cast<C>(y.weight);
        }
      }
    };
    ctx.ParallelFor(pad.out.dim(0) * out_rows, 3.0 * static_cast<double>(out_columns * channels),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) read_row(row);
                    });
  }

  const WindowAttrs attrs_;
  const bool resizes_, align_corners_;
  const int skip_;
};

}  // namespace

void RegisterFusedPadConvKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("FusedPadConv2D").Types("T", DataTypesOf(FloatTypes())),
                    &MakeKernel<FusedPadConvKernel>);
  registry.Register(KernelDef("FusedResizeAndPadConv2D").Types("T", {kHalf, kFloat, kDouble}),
                    &MakeKernel<FusedPadConvKernel>);
}

}  // namespace millrace
