// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/layer_parts.h"
#include "model/layers/layer_util.h"

namespace millrace {
namespace {

using Function = std::function<Expr(const Expr&)>;

Expr Relu(const Expr& x) { return Expr(x.scope(), ops::Relu(x.scope(), x)); }
Expr Relu6(const Expr& x) { return Expr(x.scope(), ops::Relu6(x.scope(), x)); }
Expr Tanh(const Expr& x) { return Expr(x.scope(), ops::Tanh(x.scope(), x)); }
Expr Expm1(const Expr& x) { return Expr(x.scope(), ops::Expm1(x.scope(), x)); }
Expr HardSigmoid(const Expr& x) { return Relu6(x + 3.0f) / 6.0f; }
Expr Silu(const Expr& x) { return x * x.Sigmoid(); }
Expr HardSilu(const Expr& x) { return x * HardSigmoid(x); }
Expr Mish(const Expr& x) { return x * Tanh(x.Softplus()); }
Expr Celu(const Expr& x) { return x.Max(0.0f) + Expm1(x.Min(0.0f)); }
Expr SoftShrink(const Expr& x) { return Relu(x - 0.5f) - Relu(-x - 0.5f); }
Expr HardShrink(const Expr& x) { return (x.Abs() > 0.5f).Select(x, ops::ZerosLike(x.scope(), x)); }
Expr SparsePlus(const Expr& x) {
  return (x >= 1.0f).Select(x, (x.Max(-1.0f) + 1.0f).Square() * 0.25f);
}

// The axis last for as long as `of_rows` is at work.
Expr OverAxis(const Expr& x, int axis, const std::function<Expr(const Expr&)>& of_rows) {
  if (!x.output().valid() || !x.shape().has_rank()) return of_rows(x);
  const int rank = x.shape().rank(), from_front = axis < 0 ? axis + rank : axis;
  if (from_front == rank - 1) return of_rows(x);
  if (from_front < 0 || from_front >= rank) {
    x.scope().RecordError(errors::InvalidArgument("there is no axis ", axis,
                                                  " in a value of shape ", x.shape().DebugString()),
                          std::source_location::current());
    return Expr(x.scope(), Output());
  }
  std::vector<int64_t> swapped;
  for (int i = 0; i < rank; ++i) swapped.push_back(i);
  std::swap(swapped[from_front], swapped[rank - 1]);
  const Tensor perm = layers::Ints(swapped);
  return of_rows(x.Transpose(perm)).Transpose(perm);
}

Expr Glu(const Expr& x) {
  const Scope& s = x.scope();
  const std::vector<Output> halves = ops::Split(s, -1, x, 2);
  if (halves.size() != 2) return Expr(s, Output());
  return Expr(s, halves[0]) * Expr(s, halves[1]).Sigmoid();
}

const std::map<std::string, Function>& Functions() {
  static const auto* const functions = new std::map<std::string, Function>{
      {"celu", Celu},
      {"elu", [](const Expr& x) { return activations::Elu(x); }},
      {"exponential", [](const Expr& x) { return x.Exp(); }},
      {"gelu", [](const Expr& x) { return activations::Gelu(x); }},
      {"glu", Glu},
      {"hard_shrink", HardShrink},
      {"hard_sigmoid", HardSigmoid},
      {"hard_silu", HardSilu},
      {"hard_swish", HardSilu},
      {"hard_tanh", [](const Expr& x) { return x.Clip(-1.0f, 1.0f); }},
      {"leaky_relu", [](const Expr& x) { return activations::LeakyRelu(x); }},
      {"linear", [](const Expr& x) { return x; }},
      {"log_sigmoid", [](const Expr& x) { return -(-x).Softplus(); }},
      {"log_softmax", [](const Expr& x) { return activations::LogSoftmax(x); }},
      {"mish", Mish},
      {"relu", Relu},
      {"relu6", Relu6},
      {"selu", [](const Expr& x) { return Expr(x.scope(), ops::Selu(x.scope(), x)); }},
      {"sigmoid", [](const Expr& x) { return x.Sigmoid(); }},
      {"silu", Silu},
      {"soft_shrink", SoftShrink},
      {"softmax", [](const Expr& x) { return activations::Softmax(x); }},
      {"softplus", [](const Expr& x) { return x.Softplus(); }},
      {"softsign", [](const Expr& x) { return Expr(x.scope(), ops::Softsign(x.scope(), x)); }},
      {"sparse_plus", SparsePlus},
      {"sparse_sigmoid", [](const Expr& x) { return (x.Clip(-1.0f, 1.0f) + 1.0f) * 0.5f; }},
      {"squareplus", [](const Expr& x) { return (x + (x.Square() + 4.0f).Sqrt()) / 2.0f; }},
      {"swish", Silu},
      {"tanh", Tanh},
      {"tanh_shrink", [](const Expr& x) { return x - Tanh(x); }},
  };
  return *functions;
}

}  // namespace

Expr ActivationFunction::operator()(const Expr& x, std::source_location where) const {
  if (!x.output().valid() || is_linear()) return x;
  if (function_) return function_(x);
  const auto it = Functions().find(name_);
  if (it != Functions().end()) return it->second(x);
  std::vector<std::string> names;
  for (const auto& [name, function] : Functions()) names.push_back(name);
  x.scope().RecordError(errors::InvalidArgument("there is no activation '", name_, "': use one of ",
                                                StrJoin(names, ", "), ", or a function"),
                        where);
  return Expr(x.scope(), Output());
}

namespace activations {

Expr LeakyRelu(const Expr& x, float negative_slope) {
  return Expr(x.scope(), ops::LeakyRelu(x.scope(), x, {.alpha = negative_slope}));
}

Expr Elu(const Expr& x, float alpha) {
  const Expr y(x.scope(), ops::Elu(x.scope(), x));
  return alpha == 1 ? y : (x > 0.0f).Select(y, y * alpha);
}

Expr Gelu(const Expr& x, bool approximate) {
  if (approximate) {
    const float k = static_cast<float>(std::sqrt(2 / M_PI));
    return x * 0.5f * (Tanh((x + x * x * x * 0.044715f) * k) + 1.0f);
  }
  const Expr scaled = x * static_cast<float>(M_SQRT1_2);
  return x * 0.5f * (Expr(x.scope(), ops::Erf(x.scope(), scaled)) + 1.0f);
}

Expr Softmax(const Expr& x, int axis) {
  return OverAxis(x, axis, [](const Expr& rows) {
    return Expr(rows.scope(), ops::Softmax(rows.scope(), rows));
  });
}

Expr LogSoftmax(const Expr& x, int axis) {
  return OverAxis(x, axis, [](const Expr& rows) {
    return Expr(rows.scope(), ops::LogSoftmax(rows.scope(), rows));
  });
}

}  // namespace activations
}  // namespace millrace
