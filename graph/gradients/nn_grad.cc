// SPDX-License-Identifier: Apache-2.0
// Derivatives of neural network ops.
#include "graph/gradients/grad_util.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/dataflow_graph.h"

namespace millrace {
namespace {

Output MinusOneColumn(const Scope& s, const Output& x) { return ops::ExpandDims(s, x, -1); }

template <typename T>
T AttrOr(const Operation& op, std::string_view name, T fallback) {
  return op.node()->attrs().GetOr<T>(name, std::move(fallback));
}

Status BiasAddGrad(GradContext& c) {
  const std::string format = AttrOr<std::string>(c.op(), "data_format", "NHWC");
  c.set_dx(0, c.dy());
  c.set_dx(1, ops::BiasAddGrad(c.scope(), c.dy(), {.data_format = format}));
  return OkStatus();
}

Status ReluGrad(GradContext& c) {
  c.set_dx(0, ops::ReluGrad(c.scope(), c.dy(), c.y()));
  return OkStatus();
}
Status Relu6Grad(GradContext& c) {
  c.set_dx(0, ops::Relu6Grad(c.scope(), c.dy(), c.y()));
  return OkStatus();
}

Status EluGrad(GradContext& c) {
  c.set_dx(0, ops::EluGrad(c.scope(), c.dy(), c.y()));
  return OkStatus();
}
Status SeluGrad(GradContext& c) {
  c.set_dx(0, ops::SeluGrad(c.scope(), c.dy(), c.y()));
  return OkStatus();
}
Status SoftplusGrad(GradContext& c) {
  c.set_dx(0, ops::SoftplusGrad(c.scope(), c.dy(), c.x(0)));
  return OkStatus();
}
Status SoftsignGrad(GradContext& c) {
  c.set_dx(0, ops::SoftsignGrad(c.scope(), c.dy(), c.x(0)));
  return OkStatus();
}
Status LeakyReluGrad(GradContext& c) {
  c.set_dx(0, ops::LeakyReluGrad(c.scope(), c.dy(), c.x(0),
                                 {.alpha = AttrOr<float>(c.op(), "alpha", 0.2f)}));
  return OkStatus();
}

Status SoftmaxGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output sum = ops::Sum(s, ops::Mul(s, c.dy(), c.y()), {-1}, {.keep_dims = true});
  c.set_dx(0, ops::Mul(s, ops::Sub(s, c.dy(), sum), c.y()));
  return OkStatus();
}

Status LogSoftmaxGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output sum = ops::Sum(s, c.dy(), {-1}, {.keep_dims = true});
  c.set_dx(0, ops::Sub(s, c.dy(), ops::Mul(s, sum, ops::Exp(s, c.y()))));
  return OkStatus();
}

// Output 1 of a cross entropy is already the derivative of the loss by the logits: softmax(logits)
// less the labels. Whoever differentiates twice has a gradient for it, too.
Output CrossEntropyLogitsGrad(GradContext& c) {
  const Scope& s = c.scope();
  Output dx;
  if (c.dy(0).valid()) dx = ops::Mul(s, MinusOneColumn(s, c.dy(0)), c.y(1));
  if (!c.dy(1).valid()) return dx;
  const Output softmax = ops::Softmax(s, c.x(0));
  const Output sum = ops::Sum(s, ops::Mul(s, c.dy(1), softmax), {-1}, {.keep_dims = true});
  const Output more = ops::Mul(s, ops::Sub(s, c.dy(1), sum), softmax);
  return dx.valid() ? Output(ops::AddV2(s, dx, more)) : more;
}

Status SoftmaxCrossEntropyGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, CrossEntropyLogitsGrad(c));
  if (c.dy(0).valid()) {
    c.set_dx(1, ops::Neg(s, ops::Mul(s, MinusOneColumn(s, c.dy(0)), ops::LogSoftmax(s, c.x(0)))));
  }
  return OkStatus();
}

Status SparseSoftmaxCrossEntropyGrad(GradContext& c) {
  c.set_dx(0, CrossEntropyLogitsGrad(c));
  return OkStatus();
}

Status Conv2DGrad(GradContext& c) {
  const Scope& s = c.scope();
  using Ints = std::vector<int64_t>;
  const AttrMap& attrs = c.op().node()->attrs();
  MR_ASSIGN_OR_RETURN(const Ints strides, attrs.Get<Ints>("strides"));
  MR_ASSIGN_OR_RETURN(const std::string padding, attrs.Get<std::string>("padding"));
  const Ints explicit_paddings = AttrOr<Ints>(c.op(), "explicit_paddings", {});
  const std::string format = AttrOr<std::string>(c.op(), "data_format", "NHWC");
  const Ints dilations = AttrOr<Ints>(c.op(), "dilations", {1, 1, 1, 1});
  // The images themselves need no derivative: the costliest product of a first layer.
  if (c.needs_dx(0)) {
    c.set_dx(0, ops::Conv2DBackpropInput(s, ops::Shape(s, c.x(0)), c.x(1), c.dy(), strides, padding,
                                         {.explicit_paddings = explicit_paddings,
                                          .data_format = format,
                                          .dilations = dilations}));
  }
  c.set_dx(1, ops::Conv2DBackpropFilter(s, c.x(0), ops::Shape(s, c.x(1)), c.dy(), strides, padding,
                                        {.explicit_paddings = explicit_paddings,
                                         .data_format = format,
                                         .dilations = dilations}));
  return OkStatus();
}

Status MaxPoolGrad(GradContext& c) {
  using Ints = std::vector<int64_t>;
  const AttrMap& attrs = c.op().node()->attrs();
  MR_ASSIGN_OR_RETURN(const Ints ksize, attrs.Get<Ints>("ksize"));
  MR_ASSIGN_OR_RETURN(const Ints strides, attrs.Get<Ints>("strides"));
  MR_ASSIGN_OR_RETURN(const std::string padding, attrs.Get<std::string>("padding"));
  c.set_dx(0,
           ops::MaxPoolGrad(c.scope(), c.x(0), c.y(), c.dy(), ksize, strides, padding,
                            {.explicit_paddings = AttrOr<Ints>(c.op(), "explicit_paddings", {}),
                             .data_format = AttrOr<std::string>(c.op(), "data_format", "NHWC")}));
  return OkStatus();
}

Status AvgPoolGrad(GradContext& c) {
  using Ints = std::vector<int64_t>;
  const AttrMap& attrs = c.op().node()->attrs();
  MR_ASSIGN_OR_RETURN(const Ints ksize, attrs.Get<Ints>("ksize"));
  MR_ASSIGN_OR_RETURN(const Ints strides, attrs.Get<Ints>("strides"));
  MR_ASSIGN_OR_RETURN(const std::string padding, attrs.Get<std::string>("padding"));
  c.set_dx(
      0, ops::AvgPoolGrad(c.scope(), ops::Shape(c.scope(), c.x(0)), c.dy(), ksize, strides, padding,
                          {.data_format = AttrOr<std::string>(c.op(), "data_format", "NHWC")}));
  return OkStatus();
}

// By the statistics that were used: those of the batch, or those that were given. `make` makes the
// node of the version at hand of the mean, the variance and the attributes.
template <typename Attrs, typename Make>
Status BatchNormGrad(GradContext& c, Make make) {
  const bool training = AttrOr<bool>(c.op(), "is_training", true);
  const auto grad = make(training ? c.op().output(3) : c.x(3), training ? c.op().output(4) : c.x(4),
                         Attrs{.epsilon = AttrOr<float>(c.op(), "epsilon", 1e-4f),
                               .data_format = AttrOr<std::string>(c.op(), "data_format", "NHWC"),
                               .is_training = training});
  c.set_dx(0, grad.x_backprop);
  c.set_dx(1, grad.scale_backprop);
  c.set_dx(2, grad.offset_backprop);
  return OkStatus();
}

Status FusedBatchNormGrad(GradContext& c) {
  return BatchNormGrad<ops::FusedBatchNormGradAttrs>(
      c, [&](const Output& mean, const Output& variance, const auto& attrs) {
        return ops::FusedBatchNormGrad(c.scope(), c.dy(0), c.x(0), c.x(1), mean, variance, attrs);
      });
}
Status FusedBatchNormV2Grad(GradContext& c) {
  return BatchNormGrad<ops::FusedBatchNormGradV2Attrs>(
      c, [&](const Output& mean, const Output& variance, const auto& attrs) {
        return ops::FusedBatchNormGradV2(c.scope(), c.dy(0), c.x(0), c.x(1), mean, variance, attrs);
      });
}
Status FusedBatchNormV3Grad(GradContext& c) {
  return BatchNormGrad<ops::FusedBatchNormGradV3Attrs>(
      c, [&](const Output& mean, const Output& variance, const auto& attrs) {
        return ops::FusedBatchNormGradV3(c.scope(), c.dy(0), c.x(0), c.x(1), mean, variance,
                                         c.op().output(5), attrs);
      });
}

}  // namespace

void RegisterNnGradients(GradientRegistry& r) {
  r.Register("BiasAdd", BiasAddGrad);
  r.Register("Relu", ReluGrad);
  r.Register("Relu6", Relu6Grad);
  r.Register("Elu", EluGrad);
  r.Register("Selu", SeluGrad);
  r.Register("Softplus", SoftplusGrad);
  r.Register("Softsign", SoftsignGrad);
  r.Register("LeakyRelu", LeakyReluGrad);
  r.Register("Softmax", SoftmaxGrad);
  r.Register("LogSoftmax", LogSoftmaxGrad);
  r.Register("SoftmaxCrossEntropyWithLogits", SoftmaxCrossEntropyGrad);
  r.Register("SparseSoftmaxCrossEntropyWithLogits", SparseSoftmaxCrossEntropyGrad);
  r.Register("Conv2D", Conv2DGrad);
  r.Register("MaxPool", MaxPoolGrad);
  r.Register("AvgPool", AvgPoolGrad);
  r.Register("FusedBatchNorm", FusedBatchNormGrad);
  r.Register("FusedBatchNormV2", FusedBatchNormV2Grad);
  r.Register("FusedBatchNormV3", FusedBatchNormV3Grad);
}

}  // namespace millrace
