// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "millrace/keras_optimizers.h"
#include "millrace/math.h"

namespace millrace::optimizers {

namespace {

// Doubled and halved without end it would be infinite or zero, and stay so: then no gradient, or
// what zero makes of every one, would pass for finite ever again.
constexpr double kLeastScale = 0x1p-100, kMostScale = 0x1p100;

Status Check(const KerasOptimizer* inner, const LossScaleOptions& o) {
  if (inner == nullptr) return errors::InvalidArgument("LossScale needs an inner optimizer");
  return OptionChecks("LossScale")
      .Above("initial_scale", o.initial_scale, 0)
      .Within("dynamic_growth_steps", static_cast<double>(o.dynamic_growth_steps), 1,
              std::numeric_limits<int32_t>::max())
      .status();
}

}  // namespace

LossScale::LossScale(std::shared_ptr<KerasOptimizer> inner, const LossScaleOptions& options)
    : inner_(std::move(inner)), options_(options) {}

void LossScale::MakeVariables(const Scope& scope) {
  if (scale_.handle.valid()) return;
  const Scope s = scope.WithoutControlDependencies();
  counter_ = MakeVariable(s, "loss_scale_optimizer/step_counter",
                          Constant(s, Tensor::Scalar<int32_t>(0)), {.trainable = false});
  scale_ =
      MakeVariable(s, "loss_scale_optimizer/dynamic_scale",
                   Constant(s, Tensor::Scalar<float>(static_cast<float>(options_.initial_scale))),
                   {.trainable = false});
}

Output LossScale::ScaleLoss(const Scope& scope, const Output& loss) {
  MakeVariables(scope);
  const Expr l(scope, loss);
  return l * Expr(scope, scale_.read).Cast(l.dtype());
}

StatusOr<std::vector<GradientAndVariable>> LossScale::ComputeGradients(
    const Scope& scope, const Output& loss, std::vector<Variable> variables,
    std::source_location where) {
  MR_RETURN_IF_ERROR(Check(inner_.get(), options_));
  if (!loss.valid()) return errors::InvalidArgument("the loss is not an output of this graph");
  return inner_->ComputeGradients(scope, ScaleLoss(scope, loss), std::move(variables), where);
}

StatusOr<Operation> LossScale::ApplyGradients(const Scope& outer,
                                              std::span<const GradientAndVariable> gradients,
                                              const Variable* global_step,
                                              std::source_location where) {
  MR_RETURN_IF_ERROR(Check(inner_.get(), options_));
  const Scope scope = outer.CalledFrom(where);
  MakeVariables(scope);
  const Scope s = scope.Named("loss_scale_optimizer");
  const Expr scale(s, scale_.read), counter(s, counter_.read);
  std::vector<GradientAndVariable> unscaled;
  std::vector<Input> finite;
  for (const GradientAndVariable& g : gradients) {
    unscaled.push_back(g);
    if (!g.gradient.valid()) continue;
    const Scope beside = s.ColocateWith(g.variable.handle);
    const Expr gradient(beside, g.gradient);
    const Expr whole = gradient / scale.In(beside).Cast(gradient.dtype());
    unscaled.back().gradient = whole;
    // Not the scaled one: a scale that its type has no room for makes it zero.
    const Output all = ops::IsFinite(beside, whole);
    finite.push_back(ops::All(beside, ops::Reshape(beside, all, {-1}), {0}));
  }
  if (finite.empty()) {
    return errors::InvalidArgument(
        "no gradient for any variable: the loss depends on none of them");
  }
  const Expr good(s, ops::All(s, ops::Pack(s, finite), {0}));
  MR_ASSIGN_OR_RETURN(const Operation applied,
                      inner_->ApplyGradientsIf(scope, unscaled, good, global_step, where));
  // After the update: all that used the old scale has been computed.
  const Scope after = s.WithControlDependencies({applied});
  const Expr grows =
      good.And(counter.Equal(static_cast<int32_t>(options_.dynamic_growth_steps - 1)));
  const Expr other = grows.Select(scale * 2.0, good.Select(scale, scale * 0.5));
  const Output most = Constant(s, Tensor::Scalar<float>(static_cast<float>(kMostScale)));
  const Output least = Constant(s, Tensor::Scalar<float>(static_cast<float>(kLeastScale)));
  const Output next = ops::Maximum(s, ops::Minimum(s, other, most), least);
  const Expr count = good.And(grows.Not()).Select(counter + 1, ops::ZerosLike(s, counter));
  const Operation updates[] = {Assign(after, scale_, next), Assign(after, counter_, count)};
  const Operation done = Group(s.WithScopeName(), updates);
  MR_RETURN_IF_ERROR(scope.status());
  return done;
}

std::vector<Variable> LossScale::variables() const {
  std::vector<Variable> all = {counter_, scale_};
  if (inner_ == nullptr) return all;
  const std::vector<Variable> inner = inner_->variables();
  all.insert(all.end(), inner.begin(), inner.end());
  return all;
}

}  // namespace millrace::optimizers
