// SPDX-License-Identifier: Apache-2.0
// Conv2D and its gradients. float goes to code that oneDNN compiles for the geometry
// (conv_parts.h); the rest, and what oneDNN has no good code for, are matrix products
// (conv_products.h).
#include <algorithm>
#include <memory>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/conv_parts.h"
#include "kernels/nn/conv_products.h"
#include "kernels/nn/epilogue.h"
#include "kernels/nn/onednn_conv.h"
#include "kernels/nn/window.h"

namespace millrace {
namespace {

using Geometry = ConvGeometry;

// What tensors of a type are computed in: 16-bit floats go through float.
DataType ComputedIn(DataType type) { return type == kHalf || type == kBfloat16 ? kFloat : type; }

// A tensor in the type that is computed in: itself, or a float copy of 16-bit floats.
StatusOr<Tensor> Widened(KernelContext& ctx, const Tensor& tensor) {
  if (tensor.dtype() == ComputedIn(tensor.dtype())) return tensor;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, tensor.shape()));
  DispatchType(TypeList<Half, BFloat16>(), tensor.dtype(), [&]<typename T>() {
    const T* in = tensor.data<T>();
    float* out = wide.data<float>();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) out[i] = static_cast<float>(in[i]);
  });
  return wide;
}

// Elements `begin` to `end` of floats, as 16-bit floats of the type of `to`.
void Narrow(const Tensor& from, int64_t begin, int64_t end, Tensor* to) {
  DispatchType(TypeList<Half, BFloat16>(), to->dtype(), [&]<typename T>() {
    const float* const in = from.data<float>();
    T* const out = to->data<T>();
    for (int64_t i = begin; i < end; ++i) out[i] = T(in[i]);
  });
}

// Input `i` holds the sizes of a shape.
StatusOr<Shape> SizesInput(KernelContext& ctx, int i) {
  const Tensor& sizes = ctx.input(i);
  if (sizes.rank() != 1) {
    return errors::InvalidArgument("input_sizes and filter_sizes must be 1-dimensional, got ",
                                   sizes.shape().DebugString());
  }
  const auto flat = sizes.flat<int32_t>();
  const Dims dims(flat.begin(), flat.end());
  return MakeShape({dims.data(), dims.size()});
}

// The operands as tensors, of which the pass makes one.
struct Operands {
  Tensor images, filter, outputs;

  Tensor& made(ConvPass pass) {
    return pass == ConvPass::kForward ? outputs : pass == ConvPass::kInput ? images : filter;
  }
};

template <typename C>
Status RunProducts(ConvPass pass, KernelContext& ctx, const Geometry& g, Operands& o) {
  switch (pass) {
    case ConvPass::kForward:
      return ConvByProducts<C>(ctx, g, o.images.data<C>(), o.filter.data<C>(), o.outputs.data<C>());
    case ConvPass::kInput:
      return ConvInputByProducts<C>(ctx, g, o.filter.data<C>(), o.outputs.data<C>(),
                                    o.images.data<C>());
    case ConvPass::kFilter:
      return ConvFilterByProducts<C>(ctx, g, o.images.data<C>(), o.outputs.data<C>(),
                                     o.filter.data<C>());
  }
  return OkStatus();
}

class ConvKernel : public Kernel {
 public:
  ConvKernel(KernelConstruction& c, ConvPass pass)
      : Kernel(c),
        attrs_(c),
        pass_(pass),
        depthwise_(c.def().name().starts_with("DepthwiseConv2d")),
        cache_(pass) {}

  Status Compute(KernelContext& ctx) override {
    Geometry g;
    MR_ASSIGN_OR_RETURN(Tensor * out, Prepare(ctx, &g));
    if (out->num_elements() == 0) return OkStatus();  // the other axes may be of any size
    return Run(ctx, g, out);
  }

 protected:
  // The geometry, and the output's memory.
  StatusOr<Tensor*> Prepare(KernelContext& ctx, Geometry* geometry) const {
    Shape image_shape = ctx.input(0).shape(), filter_shape = ctx.input(1).shape();
    if (pass_ == ConvPass::kInput) {
      MR_ASSIGN_OR_RETURN(image_shape, SizesInput(ctx, 0));
    } else if (pass_ == ConvPass::kFilter) {
      MR_ASSIGN_OR_RETURN(filter_shape, SizesInput(ctx, 1));
    }
    MR_ASSIGN_OR_RETURN(const ConvSizes sizes,
                        PlanConv(attrs_, depthwise_, image_shape, filter_shape));
    *geometry = sizes.geometry;
    if (pass_ != ConvPass::kForward) {
      MR_RETURN_IF_ERROR(CheckConvGradient(sizes.outputs, ctx.input(2).shape()));
    }
    const Shape& made = pass_ == ConvPass::kForward  ? sizes.outputs
                        : pass_ == ConvPass::kFilter ? filter_shape
                                                     : image_shape;
    return ctx.AllocateOutput(0, made);
  }

  const OneDnnConvCache& cache() const { return cache_; }

 private:
  // The operands, with channels last and in the type that is computed in.
  Status Run(KernelContext& ctx, const Geometry& g, Tensor* out) const {
    const bool moves = attrs_.channels_first();
    const bool moves_out = moves && pass_ != ConvPass::kFilter;
    Operands o;
    if (pass_ != ConvPass::kInput) {
      MR_ASSIGN_OR_RETURN(o.images, Operand(ctx, ctx.input(0), moves));
    }
    if (pass_ != ConvPass::kFilter) {
      MR_ASSIGN_OR_RETURN(o.filter, Operand(ctx, ctx.input(1), false));
    }
    if (pass_ != ConvPass::kForward) {
      MR_ASSIGN_OR_RETURN(o.outputs, Operand(ctx, ctx.input(2), moves));
    }
    const DataType type = out->dtype(), computed = ComputedIn(type);
    Tensor& result = o.made(pass_);
    if (type == computed && !moves_out) {
      result = *out;
    } else {
      const Shape shape = moves_out ? WithChannelsLast(out->shape()) : out->shape();
      MR_ASSIGN_OR_RETURN(result, ctx.AllocateTemp(computed, shape));
    }
    MR_RETURN_IF_ERROR(RunPass(ctx, g, o));
    if (type == computed) return moves_out ? CopyChannelsFirst(ctx, result, out) : OkStatus();
    Tensor narrow = *out;
    if (moves_out) {
      MR_ASSIGN_OR_RETURN(narrow, ctx.AllocateTemp(type, result.shape()));
    }
    Narrow(result, 0, result.num_elements(), &narrow);
    return moves_out ? CopyChannelsFirst(ctx, narrow, out) : OkStatus();
  }

  static StatusOr<Tensor> Operand(KernelContext& ctx, const Tensor& tensor, bool moves) {
    if (!moves) return Widened(ctx, tensor);
    MR_ASSIGN_OR_RETURN(const Tensor moved, CopyChannelsLast(ctx, tensor));
    return Widened(ctx, moved);
  }

  Status RunPass(KernelContext& ctx, const Geometry& g, Operands& o) const {
    if (o.made(pass_).dtype() == kDouble) return RunProducts<double>(pass_, ctx, g, o);
    if (o.made(pass_).dtype() == kInt32) return RunProducts<int32_t>(pass_, ctx, g, o);
    MR_ASSIGN_OR_RETURN(const bool done,
                        ConvByOneDnn(pass_, cache_, ctx, g, o.images.data<float>(),
                                     o.filter.data<float>(), o.outputs.data<float>(), nullptr));
    return done ? OkStatus() : RunProducts<float>(pass_, ctx, g, o);
  }

  const WindowAttrs attrs_;
  const ConvPass pass_;
  const bool depthwise_;
  const OneDnnConvCache cache_;
};

// With a bias, and perhaps an activation (graph/rewrite/fuse_products.cc); channels last. 16-bit
// floats are rounded where the nodes rounded them: after the product, the bias and the activation.
class FusedConvKernel : public ConvKernel {
 public:
  explicit FusedConvKernel(KernelConstruction& c)
      : ConvKernel(c, ConvPass::kForward), epilogue_(c) {}

  Status Compute(KernelContext& ctx) override {
    Geometry g;
    StatusOr<Tensor*> prepared = Prepare(ctx, &g);
    if (!prepared.ok()) return epilogue_.OfProduct(std::move(prepared).status());
    Tensor* const out = *prepared;
    MR_RETURN_IF_ERROR(epilogue_.Check(ctx.input(2), g.out_channels));
    if (out->num_elements() == 0) return OkStatus();
    if (out->dtype() != kDouble) return RunFloats(ctx, g, out);
    MR_RETURN_IF_ERROR(ConvByProducts<double>(ctx, g, ctx.input(0).data<double>(),
                                              ctx.input(1).data<double>(), out->data<double>()));
    FinishAll(ctx, g, *out, out);
    return OkStatus();
  }

 private:
  Status RunFloats(KernelContext& ctx, const Geometry& g, Tensor* out) const {
    MR_ASSIGN_OR_RETURN(const Tensor wide_images, Widened(ctx, ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const Tensor wide_filter, Widened(ctx, ctx.input(1)));
    Tensor product = *out;
    if (out->dtype() != kFloat) {
      MR_ASSIGN_OR_RETURN(product, ctx.AllocateTemp(kFloat, out->shape()));
    }
    const float* const images = wide_images.data<float>();
    const float* const filter = wide_filter.data<float>();
    float* const outputs = product.data<float>();
    const auto finish = [&](float* part, int64_t count) {
      const int64_t pixels = g.rows.output * g.cols.output;
      const int64_t first = (part - outputs) / g.out_channels;
      Finish(ctx, g, product, first, first + count * pixels, out);
    };
    const ConvPartDone part_done = finish;
    MR_ASSIGN_OR_RETURN(const bool done, ConvByOneDnn(ConvPass::kForward, cache(), ctx, g, images,
                                                      filter, outputs, &part_done));
    if (done) return OkStatus();
    MR_RETURN_IF_ERROR(ConvByProducts<float>(ctx, g, images, filter, outputs));
    FinishAll(ctx, g, product, out);
    return OkStatus();
  }

  void FinishAll(KernelContext& ctx, const Geometry& g, const Tensor& product, Tensor* out) const {
    ctx.ParallelFor(out->num_elements() / g.out_channels, 0.5 * static_cast<double>(g.out_channels),
                    [&](int64_t begin, int64_t end) { Finish(ctx, g, product, begin, end, out); });
  }
  // Pixels `begin` to `end`; `product` is the output, or floats that become it.
  void Finish(KernelContext& ctx, const Geometry& g, const Tensor& product, int64_t begin,
              int64_t end, Tensor* out) const {
    const int64_t row = g.out_channels;
    const auto size = static_cast<int64_t>(DataTypeSize(out->dtype()));
    if (out->dtype() != product.dtype()) Narrow(product, begin * row, end * row, out);
    epilogue_.Apply(static_cast<char*>(out->raw_data()) + begin * row * size, end - begin, row, row,
                    ctx.input(2).raw_data());
  }

  const Epilogue epilogue_;
};

template <ConvPass kPass>
std::unique_ptr<Kernel> MakeConv(KernelConstruction& c) {
  return std::make_unique<ConvKernel>(c, kPass);
}

}  // namespace

void RegisterConvKernels(KernelRegistry& registry) {
  for (const std::string op : {"Conv2D", "DepthwiseConv2dNative"}) {
    const auto floats = DataTypesOf(FloatTypes());
    registry.Register(KernelDef(op).Types("T", floats), MakeConv<ConvPass::kForward>);
    registry.Register(KernelDef(op + "BackpropInput").Types("T", floats),
                      MakeConv<ConvPass::kInput>);
    registry.Register(KernelDef(op + "BackpropFilter").Types("T", floats),
                      MakeConv<ConvPass::kFilter>);
  }
  registry.Register(KernelDef("_FusedConv2D").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<FusedConvKernel>);
  registry.Register(KernelDef("Conv2D").Type<int32_t>("T"), MakeConv<ConvPass::kForward>);
  registry.Register(KernelDef("Conv2DBackpropInput").Type<int32_t>("T"),
                    MakeConv<ConvPass::kInput>);
}

}  // namespace millrace