// SPDX-License-Identifier: Apache-2.0
// What all optimizers share: gradients, and the ways to make them smaller.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/math.h"
#include "millrace/optimizers.h"
#include "millrace/sparse_gradients.h"

namespace millrace {

StatusOr<std::vector<GradientAndVariable>> Optimizer::ComputeGradients(
    const Scope& scope, const Output& loss, std::vector<Variable> variables,
    std::source_location where) {
  if (variables.empty()) variables = Variables(scope, kTrainableVariables);
  if (variables.empty()) return errors::InvalidArgument("there are no variables to train");
  std::vector<Output> xs;
  for (const Variable& v : variables) xs.push_back(v.handle);
  MR_ASSIGN_OR_RETURN(const std::vector<SparseGradient> gradients,
                      SparseGradients(scope, {{loss}}, xs, {}, where));
  std::vector<GradientAndVariable> result;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    result.push_back({gradients[i].values, variables[i], gradients[i].indices});
  }
  return result;
}

StatusOr<Operation> Optimizer::Minimize(const Scope& scope, const Output& loss,
                                        const Variable* global_step, std::source_location where) {
  MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      ComputeGradients(scope, loss, {}, where));
  return ApplyGradients(scope, gradients, global_step, where);
}

GradientAndVariable SumDuplicates(const Scope& scope, const GradientAndVariable& g) {
  if (!g.is_sparse()) return g;
  const auto unique = ops::Unique(scope, g.indices);
  const Output sums =
      ops::UnsortedSegmentSum(scope, g.gradient, unique.idx, ops::Size(scope, unique.y));
  return {sums, g.variable, unique.y};
}

Output DenseGradient(const Scope& scope, const GradientAndVariable& g) {
  if (!g.is_sparse()) return g.gradient;
  const auto shape = g.variable.shape().AsShape();
  if (shape && shape->rank() > 0) {
    return ops::UnsortedSegmentSum(scope, g.gradient, g.indices,
                                   static_cast<int32_t>(shape->dim(0)));
  }
  const Output rows = ops::Slice(scope, ops::Shape(scope, g.variable.read), {0}, {1});
  return ops::UnsortedSegmentSum(scope, g.gradient, g.indices,
                                 ops::Reshape(scope, rows, Tensor(kInt32, Shape({0}))));
}

namespace {

// Applies `change` to each valid gradient, beside its variable. Duplicates are summed before:
// the limits are for rows of the gradient, not for parts of them.
template <typename F>
std::vector<GradientAndVariable> Change(const Scope& scope,
                                        std::span<const GradientAndVariable> gradients, F change) {
  std::vector<GradientAndVariable> result;
  for (const GradientAndVariable& g : gradients) {
    if (!g.gradient.valid()) {
      result.push_back(g);
      continue;
    }
    const Scope beside = scope.ColocateWith(g.variable.handle);
    const GradientAndVariable unique = SumDuplicates(beside, g);
    result.push_back({change(Expr(beside, unique.gradient)).output(), g.variable, unique.indices});
  }
  return result;
}

}  // namespace

std::vector<GradientAndVariable> ClipByValue(const Scope& scope,
                                             std::span<const GradientAndVariable> gradients,
                                             double limit) {
  return Change(scope.Named("clip_by_value"), gradients,
                [&](const Expr& g) { return g.Clip(-limit, limit); });
}

std::vector<GradientAndVariable> ClipByNorm(const Scope& scope,
                                            std::span<const GradientAndVariable> gradients,
                                            double norm) {
  return Change(scope.Named("clip_by_norm"), gradients,
                [&](const Expr& g) { return g * norm / g.Square().Sum().Sqrt().Max(norm); });
}

Output GlobalNorm(const Scope& scope, std::span<const GradientAndVariable> gradients) {
  const Scope s = scope.Named("global_norm");
  std::vector<Input> sums;
  for (const GradientAndVariable& g : gradients) {
    if (!g.gradient.valid()) continue;
    const Scope beside = s.ColocateWith(g.variable.handle);
    const Expr gradient(beside, SumDuplicates(beside, g).gradient);
    sums.push_back(gradient.Square().Sum().Cast(kFloat).output());
  }
  if (sums.empty()) return Constant(s, Tensor::Scalar<float>(0));
  return ops::Sqrt(s, ops::AddN(s, sums));
}

std::vector<GradientAndVariable> ClipByGlobalNorm(const Scope& scope,
                                                  std::span<const GradientAndVariable> gradients,
                                                  double norm) {
  const Scope s = scope.Named("clip_by_global_norm");
  const Expr total(s, GlobalNorm(s, gradients));
  // total - total: NaN where the norm is not finite, so that nobody takes such a step for a good
  // one.
  const Expr scale = norm * (1.0 / total).Min(1.0 / norm) + (total - total);
  return Change(s, gradients,
                [&](const Expr& g) { return g * scale.In(g.scope()).Cast(g.dtype()); });
}

StatusOr<std::unique_ptr<Optimizer>> OptimizerByName(const std::string& name, float learning_rate) {
  if (name == "sgd") return GradientDescent({.learning_rate = learning_rate});
  if (name == "momentum") return Momentum({.learning_rate = learning_rate});
  if (name == "adagrad") return Adagrad({.learning_rate = learning_rate});
  if (name == "adagradda") return AdagradDa({.learning_rate = learning_rate});
  if (name == "adadelta") return Adadelta({.learning_rate = learning_rate});
  if (name == "rmsprop") return RmsProp({.learning_rate = learning_rate});
  if (name == "adam") return Adam({.learning_rate = learning_rate});
  if (name == "ftrl") return Ftrl({.learning_rate = learning_rate});
  return errors::InvalidArgument("unknown optimizer '", name,
                                 "'; there are sgd, momentum, adagrad, rmsprop, adam, adagradda, "
                                 "adadelta, ftrl");
}

}  // namespace millrace
