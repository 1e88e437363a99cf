// Pools, and convolutions and matrix products element by element.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/kernel_util.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/products.h"
#include "kernels/nn/window.h"

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
  if (images.rank() != 4 || filter.rank() != 4) {
    return errors::InvalidArgument("input and filter must be 4-dimensional: ", images.DebugString(),
                                   " and ", filter.DebugString());
  }
  if (attrs.stride(3) != 1) {
    return errors::InvalidArgument("strides over channels are not supported");
  }
  const Shape last = attrs.channels_first() ? WithChannelsLast(images) : images;
  ConvGeometryParams g;
  g.channels_first = attrs.channels_first();
  g.batch = last.dim(0);
  g.channels = last.dim(3);
  if (depthwise) {
    if (filter.dim(2) != g.channels) {
      return errors::InvalidArgument("input and filter must have the same depth: ", g.channels,
                                     " vs ", filter.dim(2));
    }
    // [rows, columns, channels, n] lies as [rows, columns, 1, channels * n] does.
    g.groups = g.channels;
    g.outputs = g.channels * filter.dim(3);
  } else {
    g.outputs = filter.dim(3);
    if (filter.dim(2) <= 0 || g.channels % filter.dim(2) != 0) {
      return errors::InvalidArgument("input depth must be evenly divisible by filter depth: ",
                                     g.channels, " vs ", filter.dim(2));
    }
    g.groups = g.channels / filter.dim(2);
    if (g.groups < 1 || g.outputs % g.groups != 0) {
      return errors::InvalidArgument("output depth ", g.outputs,
                                     " must be evenly divisible by the number of groups ",
                                     g.groups);
    }
  }
  MR_ASSIGN_OR_RETURN(const WindowAxis rows, attrs.Axis(1, last.dim(1), filter.dim(0)));
  MR_ASSIGN_OR_RETURN(const WindowAxis cols, attrs.Axis(2, last.dim(2), filter.dim(1)));
  g.rows = ToParams(rows);
  g.cols = ToParams(cols);
  const Shape made{g.batch, g.rows.output, g.cols.output, g.outputs};
  g.output_shape = g.channels_first ? WithChannelsFirst(made) : made;
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
  const Shape& made = kind == ConvKind::kForward ? call.outputs[0].shape() : call.inputs[2].shape();
  if (!(made == g.output_shape)) {
    return errors::InvalidArgument("out_backprop must have the shape of the output ",
                                   g.output_shape.DebugString(), ", got ", made.DebugString());
  }
  return g;
}

StatusOr<ProductParams> PlanProduct(const Tensor& a, const Tensor& b, bool transpose_a,
                                    bool transpose_b) {
  if (a.rank() < 2 || b.rank() < 2) {
    return errors::InvalidArgument("In[", a.rank() < 2 ? 0 : 1,
                                   "] is not a matrix. Instead it has shape ",
                                   (a.rank() < 2 ? a : b).shape().DebugString());
  }
  const int64_t a_rows = a.dim(a.rank() - 2), a_columns = a.dim(a.rank() - 1);
  const int64_t b_rows = b.dim(b.rank() - 2), b_columns = b.dim(b.rank() - 1);
  ProductParams p;
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.m = transpose_a ? a_columns : a_rows;
  p.k = transpose_a ? a_rows : a_columns;
  p.n = transpose_b ? b_rows : b_columns;
  if ((transpose_b ? b_columns : b_rows) != p.k) {
    return errors::InvalidArgument("Matrix size-incompatible: In[0]: ", a.shape().DebugString(),
                                   ", In[1]: ", b.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(const BroadcastPlan plan,
                      MakeBroadcastPlan(Shape(a.shape().dims().first(a.rank() - 2)),
                                        Shape(b.shape().dims().first(b.rank() - 2))));
  p.count = plan.out.num_elements();
  for (const BroadcastPlan::Dim& dim : plan.dims) {
    if (!p.batches.Add(dim.size, {dim.a_stride * p.m * p.k, dim.b_stride * p.k * p.n})) {
      return TooManyAxes();
    }
  }
  p.batches.Finish();
  return p;
}

Status CheckBias(const Tensor& bias, const Tensor& out) {
  if (bias.rank() == 1 && out.rank() >= 1 && bias.dim(0) == out.dim(out.rank() - 1)) {
    return OkStatus();
  }
  return errors::InvalidArgument(
      "Must provide as many biases as the channels dimension of the input tensor: ",
      bias.shape().DebugString(), " in ", out.shape().DebugString());
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
      : transpose_a_(c.attrs().GetOr<bool>("transpose_a", false) ||
                     c.attrs().GetOr<bool>("adj_x", false)),
        transpose_b_(c.attrs().GetOr<bool>("transpose_b", false) ||
                     c.attrs().GetOr<bool>("adj_y", false)),
        broadcasts_(c.def().name() == "BatchMatMulV2"),
        batches_(c.def().name().starts_with("Batch")),
        fused_(c.def().name().starts_with("_Fused")),
        activation_(c.attrs().GetOr<std::string>("activation", "")) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const ProductParams plan, PlanProduct(a, b, transpose_a_, transpose_b_));
    MR_RETURN_IF_ERROR(CheckProduct(plan, a, b, out, batches_, broadcasts_));
    MatMulParams p;
    p.type = out.dtype();
    p.a = a.raw_data();
    p.b = b.raw_data();
    p.c = out.raw_data();
    p.m = plan.m;
    p.n = plan.n;
    p.k = plan.k;
    p.a_row = transpose_a_ ? 1 : p.k;
    p.a_column = transpose_a_ ? p.m : 1;
    p.b_row = transpose_b_ ? 1 : p.n;
    p.b_column = transpose_b_ ? p.k : 1;
    p.count = plan.count;
    p.batches = plan.batches;
    MR_RETURN_IF_ERROR(ToStatus(loops.MatMul(queue, p)));
    if (!fused_) return OkStatus();
    return AddBiasAndActivate(loops, queue, call.inputs[2], activation_, out);
  }

 private:
  const bool transpose_a_, transpose_b_, broadcasts_, batches_, fused_;
  const std::string activation_;
};

}  // namespace

Status CheckProduct(const ProductParams& p, const Tensor& a, const Tensor& b, const Tensor& out,
                    bool batches, bool broadcasts) {
  if (!batches && (a.rank() != 2 || b.rank() != 2)) {
    return errors::InvalidArgument("In[", a.rank() != 2 ? 0 : 1,
                                   "] is not a matrix. Instead it has shape ",
                                   (a.rank() != 2 ? a : b).shape().DebugString());
  }
  if (batches && !broadcasts &&
      !(Shape(a.shape().dims().first(a.rank() - 2)) ==
        Shape(b.shape().dims().first(b.rank() - 2)))) {
    return errors::InvalidArgument("In[0] and In[1] must have compatible batch dimensions: ",
                                   a.shape().DebugString(), " vs. ", b.shape().DebugString());
  }
  if (out.num_elements() != p.count * p.m * p.n) {
    return errors::Internal("a product of ", p.count * p.m * p.n, " elements was given room for ",
                            out.num_elements());
  }
  return OkStatus();
}

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
