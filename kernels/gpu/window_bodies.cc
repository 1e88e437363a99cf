// SPDX-License-Identifier: Apache-2.0
// Pools, and convolutions and matrix products element by element.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/products.h"
#include "kernels/linear_algebra/matmul_plan.h"
#include "kernels/nn/bias_plan.h"
#include "kernels/nn/conv_plan.h"

namespace millrace::gpu {

WindowParams ToParams(const WindowAxis& axis) {
  return {axis.input, axis.output, axis.size, axis.stride, axis.dilation, axis.pad_before};
}

ImageStrides StridesOf(int64_t height, int64_t width, int64_t channels, bool channels_first) {
  if (channels_first) return {channels * height * width, width, 1, height * width};
  return {height * width * channels, width * channels, channels, 1};
}

StatusOr<ConvGeometryParams> PlanConvolution(const WindowAttrs& attrs, bool depthwise,
                                             const Shape& images, const Shape& filter) {
  MR_ASSIGN_OR_RETURN(const ConvSizes sizes, PlanConv(attrs, depthwise, images, filter));
  const ConvGeometry& geometry = sizes.geometry;
  ConvGeometryParams g;
  g.batch = geometry.batch;
  g.channels = geometry.channels;
  g.outputs = geometry.out_channels;
  g.groups = geometry.groups;
  g.rows = ToParams(geometry.rows);
  g.cols = ToParams(geometry.cols);
  g.channels_first = attrs.channels_first();
  g.output_shape = sizes.outputs;
  return g;
}

ConvKind ConvKindOf(std::string_view op) {
  if (op.ends_with("BackpropInput")) return ConvKind::kInput;
  return op.ends_with("BackpropFilter") ? ConvKind::kFilter : ConvKind::kForward;
}

StatusOr<ConvGeometryParams> PlanConvolution(const WindowAttrs& attrs, bool depthwise,
                                             ConvKind kind, const StreamCall& call) {
  const Shape images = kind == ConvKind::kInput ? call.outputs[0].shape() : call.inputs[0].shape();
  const Shape filter = kind == ConvKind::kFilter ? call.outputs[0].shape() : call.inputs[1].shape();
  MR_ASSIGN_OR_RETURN(const ConvGeometryParams g,
                      PlanConvolution(attrs, depthwise, images, filter));
  if (kind == ConvKind::kForward) {
    MR_RETURN_IF_ERROR(CheckRoom(g.output_shape, call.outputs[0]));
  } else {
    MR_RETURN_IF_ERROR(CheckConvGradient(g.output_shape, call.inputs[2].shape()));
  }
  return g;
}

ProductAttrs::ProductAttrs(KernelConstruction& c)
    : transpose_a(c.attrs().GetOr<bool>("transpose_a", false) ||
                  c.attrs().GetOr<bool>("adj_x", false)),
      transpose_b(c.attrs().GetOr<bool>("transpose_b", false) ||
                  c.attrs().GetOr<bool>("adj_y", false)),
      batches(c.def().name().starts_with("Batch")),
      broadcasts(c.def().name() == "BatchMatMulV2") {}

StatusOr<ProductParams> PlanProduct(const ProductAttrs& attrs, const Tensor& a, const Tensor& b,
                                    const Tensor& out) {
  ProductParams p;
  p.transpose_a = attrs.transpose_a;
  p.transpose_b = attrs.transpose_b;
  ProductSizes sizes;
  if (!attrs.batches) {
    MR_ASSIGN_OR_RETURN(sizes,
                        PlanMatMul(a.shape(), b.shape(), attrs.transpose_a, attrs.transpose_b));
    MR_RETURN_IF_ERROR(CheckRoom({sizes.m, sizes.n}, out));
  } else {
    MR_ASSIGN_OR_RETURN(const BatchProductSizes batch,
                        PlanBatchMatMul(a.shape(), b.shape(), attrs.transpose_a, attrs.transpose_b,
                                        attrs.broadcasts));
    MR_RETURN_IF_ERROR(CheckRoom(batch.out, out));
    sizes = batch.each;
    p.count = batch.batches.out.num_elements();
    for (const BroadcastPlan::Dim& dim : batch.batches.dims) {
      if (!p.batches.Add(dim.size,
                         {dim.a_stride * sizes.m * sizes.k, dim.b_stride * sizes.k * sizes.n})) {
        return TooManyAxes();
      }
    }
  }
  p.m = sizes.m;
  p.n = sizes.n;
  p.k = sizes.k;
  p.batches.Finish();
  return p;
}

Status CheckBias(const Tensor& bias, const Tensor& out) {
  return CheckColumnBiases(bias.shape(), out.dim(out.rank() - 1));
}

Status AddBiasAndActivate(const Loops& loops, Queue queue, const Tensor& bias,
                          std::string_view activation, const Tensor& out) {
  MR_RETURN_IF_ERROR(CheckBias(bias, out));
  if (out.num_elements() == 0) return OkStatus();
  BinaryParams p;
  p.op = BinaryOp::kAdd;
  p.type = out.dtype();
  p.a = out.raw_data();
  p.b = bias.raw_data();
  p.out = out.raw_data();
  p.n = out.num_elements();
  p.flat = false;
  p.map.Add(p.n / bias.dim(0), {bias.dim(0), 0});
  p.map.Add(bias.dim(0), {1, 1});
  p.map.Finish();
  MR_RETURN_IF_ERROR(ToStatus(loops.Binary(queue, p)));
  return Activate(loops, queue, activation, out);
}

Status Activate(const Loops& loops, Queue queue, std::string_view activation, const Tensor& out) {
  if (activation.empty()) return OkStatus();
  UnaryParams u;
  u.type = out.dtype();
  u.in = u.out = out.raw_data();
  u.n = out.num_elements();
  static constexpr std::pair<std::string_view, UnaryOp> kKnown[] = {
      {"Relu", UnaryOp::kRelu}, {"Relu6", UnaryOp::kRelu6},     {"Elu", UnaryOp::kElu},
      {"Tanh", UnaryOp::kTanh}, {"Sigmoid", UnaryOp::kSigmoid},
  };
  for (const auto& [name, op] : kKnown) {
    if (name != activation) continue;
    u.op = op;
    return ToStatus(loops.Unary(queue, u));
  }
  return errors::Unimplemented("no activation '", activation, "'");
}

namespace {

// --- Convolutions ----------------------------------------------------------------------------

class ConvBody final : public Body {
 public:
  explicit ConvBody(KernelConstruction& c)
      : attrs_(c),
        kind_(ConvKindOf(c.def().name())),
        depthwise_(c.def().name().starts_with("DepthwiseConv2d")),
        fused_(c.def().name().starts_with("_Fused")),
        activation_(c.attrs().GetOr<std::string>("activation", "")) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_ASSIGN_OR_RETURN(const ConvGeometryParams g,
                        PlanConvolution(attrs_, depthwise_, kind_, call));
    const Tensor& out = call.outputs[0];
    ConvParams p;
    p.kind = kind_;
    p.type = out.dtype();
    if (kind_ != ConvKind::kInput) p.images = call.inputs[0].raw_data();
    if (kind_ != ConvKind::kFilter) p.filter = call.inputs[1].raw_data();
    if (kind_ != ConvKind::kForward) p.made = call.inputs[2].raw_data();
    p.out = out.raw_data();
    p.batch = g.batch;
    p.channels = g.channels;
    p.outputs = g.outputs;
    p.groups = g.groups;
    p.rows = g.rows;
    p.cols = g.cols;
    p.image = StridesOf(g.rows.input, g.cols.input, g.channels, g.channels_first);
    p.output = StridesOf(g.rows.output, g.cols.output, g.outputs, g.channels_first);
    MR_RETURN_IF_ERROR(ToStatus(loops.Conv(queue, p)));
    if (!fused_) return OkStatus();
    return AddBiasAndActivate(loops, queue, call.inputs[2], activation_, out);
  }

 private:
  const WindowAttrs attrs_;
  const ConvKind kind_;
  const bool depthwise_, fused_;
  const std::string activation_;
};

// --- Products --------------------------------------------------------------------------------

class MatMulBody final : public Body {
 public:
  explicit MatMulBody(KernelConstruction& c)
      : attrs_(c),
        fused_(c.def().name().starts_with("_Fused")),
        activation_(c.attrs().GetOr<std::string>("activation", "")) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const ProductParams plan, PlanProduct(attrs_, a, b, out));
    MatMulParams p;
    p.type = out.dtype();
    p.a = a.raw_data();
    p.b = b.raw_data();
    p.c = out.raw_data();
    p.m = plan.m;
    p.n = plan.n;
    p.k = plan.k;
    p.a_row = plan.transpose_a ? 1 : p.k;
    p.a_column = plan.transpose_a ? p.m : 1;
    p.b_row = plan.transpose_b ? 1 : p.n;
    p.b_column = plan.transpose_b ? p.k : 1;
    p.count = plan.count;
    p.batches = plan.batches;
    MR_RETURN_IF_ERROR(ToStatus(loops.MatMul(queue, p)));
    if (!fused_) return OkStatus();
    return AddBiasAndActivate(loops, queue, call.inputs[2], activation_, out);
  }

 private:
  const ProductAttrs attrs_;
  const bool fused_;
  const std::string activation_;
};

}  // namespace

void AddWindowBodies(std::vector<BodyDef>* bodies) {
  for (const char* op : {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
                         "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
                         "DepthwiseConv2dNativeBackpropFilter", "_FusedConv2D"}) {
    bodies->push_back({op, {{"T", FloatTypes()}}, &MakeBody<ConvBody>});
  }
  for (const char* op : {"MatMul", "BatchMatMul", "BatchMatMulV2", "_FusedMatMul"}) {
    bodies->push_back(
        {op, {{"T", {kFloat, kDouble, kHalf, kBfloat16, kInt64, kInt32}}}, &MakeBody<MatMulBody>});
  }
}

}  // namespace millrace::gpu
