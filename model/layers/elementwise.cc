// SPDX-License-Identifier: Apache-2.0
// Activations as layers, and masking.
#include <cmath>

#include "base/strings.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

LayerPtr Make(const char* kind, std::string name, FunctionLayer::Function function, Where where,
              FunctionLayer::Check check = nullptr) {
  return std::make_unique<FunctionLayer>(kind, std::move(name), UnaryLayer::Ranks{},
                                         std::move(function), where, std::move(check));
}

Expr ReluOf(const Expr& x, const ReluOptions& o) {
  const float threshold = static_cast<float>(o.threshold);
  const float slope = static_cast<float>(o.negative_slope);
  const Expr positive = o.threshold == 0 ? Expr(x.scope(), ops::Relu(x.scope(), x))
                                         : x * (x > threshold).Cast(x.dtype());
  const Expr bounded = o.max_value ? positive.Min(static_cast<float>(*o.max_value)) : positive;
  if (slope == 0) return bounded;
  return bounded - Expr(x.scope(), ops::Relu(x.scope(), -x + threshold)) * slope;
}

class PreluLayer : public UnaryLayer {
 public:
  PreluLayer(const PreluOptions& options, Where where)
      : UnaryLayer(options.name, {.least = 2}, where), o_(options) {
    o_.alpha_initializer = Or(o_.alpha_initializer, initializers::Zeros());
  }
  std::string kind() const override { return "PReLU"; }

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    std::vector<int64_t> dims;
    for (int i = 1; i < x.shape().rank(); ++i) {
      const bool shared =
          std::find(o_.shared_axes.begin(), o_.shared_axes.end(), i) != o_.shared_axes.end();
      if (!shared && !NeedsDim(pass, x, i, where)) return Output();
      dims.push_back(shared ? 1 : x.shape().dim(i));
    }
    const Variable alpha =
        Weight(pass, "alpha", Shape(dims),
               {o_.alpha_initializer, o_.alpha_regularizer, o_.alpha_constraint}, where);
    if (!alpha.handle.valid()) return Output();
    const Scope& s = pass.scope();
    const Expr negative(s, ops::Relu(s, ops::Neg(s, x)));
    return Expr(s, ops::Relu(s, x)) - negative * alpha.read;
  }

 private:
  PreluOptions o_;
};

class SoftmaxLayer : public UnaryLayer {
 public:
  SoftmaxLayer(int axis, std::string name, Where where)
      : UnaryLayer(std::move(name), {.least = 1}, where), axis_(axis) {}
  std::string kind() const override { return "Softmax"; }

 protected:
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    if (AxisOf(input, axis_) < 0) {
      RecordBadInput(pass, input, StrCat("an input with an axis ", axis_), where);
      return Output();
    }
    return activations::Softmax(Expr(pass.scope(), input), axis_);
  }

 private:
  const int axis_;
};

}  // namespace

LayerPtr Activation(ActivationFunction activation, std::string name, Where where) {
  return Make(
      "Activation", std::move(name),
      [activation, where](Pass&, const Expr& x) {
        // A node of its own, so that what a linear one gives has the layer's name.
        return activation.is_linear() ? Expr(x.scope(), ops::Identity(x.scope(), x))
                                      : activation(x, where);
      },
      where);
}

LayerPtr Identity(std::string name, Where where) {
  return Make(
      "Identity", std::move(name),
      [](Pass&, const Expr& x) { return Expr(x.scope(), ops::Identity(x.scope(), x)); }, where);
}

LayerPtr Relu(const ReluOptions& o, Where where) {
  return Make(
      "ReLU", o.name, [o](Pass&, const Expr& x) { return ReluOf(x, o); }, where,
      [o](OptionChecks& options) {
        options.AtLeast("max_value", o.max_value, 0)
            .AtLeast("negative_slope", o.negative_slope, 0)
            .AtLeast("threshold", o.threshold, 0);
      });
}

LayerPtr LeakyRelu(double negative_slope, std::string name, Where where) {
  return Make(
      "LeakyReLU", std::move(name),
      [negative_slope](Pass&, const Expr& x) {
        return activations::LeakyRelu(x, static_cast<float>(negative_slope));
      },
      where,
      [negative_slope](OptionChecks& options) {
        options.Finite("negative_slope", negative_slope);
      });
}

LayerPtr Elu(double alpha, std::string name, Where where) {
  return Make(
      "ELU", std::move(name),
      [alpha](Pass&, const Expr& x) { return activations::Elu(x, static_cast<float>(alpha)); },
      where, [alpha](OptionChecks& options) { options.Finite("alpha", alpha); });
}

LayerPtr Softmax(int axis, std::string name, Where where) {
  return std::make_unique<SoftmaxLayer>(axis, std::move(name), where);
}

LayerPtr Prelu(const PreluOptions& options, Where where) {
  return std::make_unique<PreluLayer>(options, where);
}

LayerPtr ActivityRegularization(double l1, double l2, std::string name, Where where) {
  auto layer = std::make_unique<FunctionLayer>(
      "ActivityRegularization", std::move(name), UnaryLayer::Ranks{},
      [](Pass&, const Expr& x) { return Expr(x.scope(), ops::Identity(x.scope(), x)); }, where);
  layer->set_activity_regularizer(regularizers::L1L2(l1, l2));
  return layer;
}

LayerPtr Masking(double mask_value, std::string name, Where where) {
  return std::make_unique<FunctionLayer>(
      "Masking", std::move(name), UnaryLayer::Ranks{.least = 3},
      [mask_value](Pass& pass, const Expr& x) {
        const Scope& s = x.scope();
        const Output differs = x.NotEqual(static_cast<float>(mask_value));
        const Output counts = ops::Any(s, differs, -1, {.keep_dims = true});
        pass.set_mask(ops::Squeeze(s, counts, {.squeeze_dims = {-1}}));
        return Expr(s, counts).Select(x, ops::ZerosLike(s, x));
      },
      where,
      [mask_value](OptionChecks& options) {
        // No value is equal to NaN.
        if (std::isnan(mask_value)) options.Finite("mask_value", mask_value);
      });
}

}  // namespace millrace::layers
