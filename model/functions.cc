// SPDX-License-Identifier: Apache-2.0
// How the functions of a model are built: a pass through the layers, the loss, what is measured,
// and the update of the weights, in this order in every step.
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/math.h"
#include "model/layers/layer_util.h"
#include "model/names.h"
#include "model/numeric_checks.h"
#include "model/steps.h"

namespace millrace::model {
namespace {

PartialShape BatchesOf(const Tensor& samples) {
  PartialShape shape(samples.shape());
  shape.SetDim(0, -1);
  return shape;
}

// The mask, if it says which steps of these predictions count.
Output MaskFor(const Output& mask, const Output& y_pred) {
  if (!mask.valid() || !mask.shape().has_rank() || !y_pred.shape().has_rank()) return Output();
  return mask.shape().rank() + 1 == y_pred.shape().rank() ? mask : Output();
}

}  // namespace

Output CountSamples(const Scope& scope, const Output& x) {
  const Output shape = ops::Shape(scope, x);
  return ops::Cast(scope, ops::GatherV2(scope, shape, 0, 0), kFloat);
}

Output InFloats(const Scope& scope, const Output& x) {
  const DataType dtype = x.dtype();
  const bool is_other_float = dtype == kDouble || dtype == kHalf || dtype == kBfloat16;
  return is_other_float ? ops::Cast(scope, x, kFloat) : x;
}

// What is wrong with labels for a loss or metric, in the words of who calls Fit.
Status NotComparable(const Status& status, const char* what, const std::string& name,
                     const Output& y_true, const Output& y_pred) {
  // What is wrong with the options of the loss itself is no matter of shapes.
  if (Message(status).starts_with(StrCat(what, " '", name, "': "))) return status;
  return Annotate(
      status, StrCat("; ", what, " '", name, "' compares predictions ",
                     y_pred.shape().DebugString(), " with labels ", y_true.shape().DebugString(),
                     ": make the last layer's output and y of one shape, or take the ", what,
                     " that is made for these"));
}

Status Steps::AddDataLoss(const Scope& scope, const StepInputs& inputs, std::size_t output,
                          Passed* passed) {
  const std::optional<losses::Loss>& loss = compiled_->losses[output].loss;
  if (!loss) return OkStatus();
  if (inputs.y.empty()) {
    return errors::InvalidArgument("loss '", loss->name(),
                                   "' compares predictions with labels, and there is no y");
  }
  Predicted& predicted = passed->outputs[output];
  const Output& y = inputs.y[output];
  predicted.loss = (*loss)(scope, y, predicted.y_pred,
                           {.sample_weight = inputs.sample_weight, .mask = predicted.mask});
  if (!graph_.status().ok()) {
    return NotComparable(graph_.status(), "loss", loss->name(), y, predicted.y_pred);
  }
  if (predicted.loss.shape().has_rank() && predicted.loss.shape().rank() != 0) {
    return errors::InvalidArgument("loss '", loss->name(), "' is of shape ",
                                   predicted.loss.shape().DebugString(),
                                   ", not one number: it needs a reduction other than kNone");
  }
  const PartialShape shape = predicted.y_pred.shape();
  if (loss->name() == "sparse_categorical_crossentropy" && shape.rank() > 0) {
    num_classes_[output] = shape.dim(shape.rank() - 1);
  }
  const float weight = compiled_->losses[output].weight;
  const Output weighed =
      weight == 1 ? predicted.loss : (Expr(scope, predicted.loss) * weight).output();
  passed->loss = passed->loss.valid() ? (Expr(scope, passed->loss) + weighed).output() : weighed;
  return graph_.status();
}

StatusOr<Steps::Passed> Steps::GoThrough(Kind kind, const StepInputs& inputs, Pass* through) {
  if (root_ == nullptr) {
    return errors::InvalidArgument(
        "the model was made of a null layer: give its constructor one, such as layers::Sequential");
  }
  Pass& pass = *through;
  const Scope& scope = pass.scope();
  Passed passed;
  const Output y_pred = (*root_)(pass, inputs.x, where_);
  MR_RETURN_IF_ERROR(graph_.status());
  if (!y_pred.valid()) {
    return errors::InvalidArgument("the layers of the model returned no output");
  }
  passed.updates.assign(pass.updates().begin(), pass.updates().end());
  if (output_names_.size() == 1) {
    passed.outputs.push_back({y_pred, MaskFor(pass.mask(), y_pred), Output()});
  } else {
    for (const Output& output : pass.outputs()) {
      passed.outputs.push_back({output, MaskFor(pass.MaskOf(output), output), Output()});
    }
  }
  if (kind == Kind::kPredict) return passed;

  // Losses and metrics are those of floats.
  for (Predicted& output : passed.outputs) {
    if (layers::IsSmallFloat(output.y_pred.dtype())) output.y_pred = InFloats(scope, output.y_pred);
  }
  if (!inputs.y.empty() && inputs.y.size() != passed.outputs.size()) {
    return errors::InvalidArgument("the model has ", passed.outputs.size(), " outputs",
                                   output_names_[0].empty() ? "" : ", ",
                                   StrJoin(output_names_, ", "), ", and gets ", inputs.y.size(),
                                   " tensors of labels: give y one for each output");
  }
  for (std::size_t i = 0; i < passed.outputs.size(); ++i) {
    MR_RETURN_IF_ERROR(AddDataLoss(scope, inputs, i, &passed));
  }
  const auto add = [&](Output* sum, const Output& more) {
    *sum = sum->valid() ? (Expr(scope, *sum) + more).output() : more;
  };
  for (const Output& more : pass.losses()) {
    add(&passed.loss, more);
    if (strategy_->num_replicas_in_sync() > 1) add(&passed.added_loss, more);
  }
  if (!passed.loss.valid()) {
    return errors::InvalidArgument(
        "there is nothing to minimise: Compile was given no loss, and no layer adds one");
  }
  return passed;
}

StatusOr<Operation> Steps::MeasureLoss(std::size_t measure, const Scope& scope, const Output& loss,
                                       const Output& rows) {
  const Operation update =
      compiled_->measures[measure].metric->Update(scope, {Output(), loss, rows}, where_);
  MR_RETURN_IF_ERROR(graph_.status());
  return update;
}

StatusOr<Operation> Steps::MeasureOutput(const Scope& scope, const Scope& measures,
                                         Measure* measure, const StepInputs& inputs,
                                         const Predicted& predicted) {
  if (inputs.y.empty()) {
    return errors::InvalidArgument("metric '", measure->name,
                                   "' compares predictions with labels, and there is no y");
  }
  const Output& y = inputs.y[measure->output];
  metrics::Batch batch{y, predicted.y_pred, Output()};
  if (!measure->metric) {
    MR_ASSIGN_OR_RETURN(measure->metric,
                        MetricByName(measure->known_as, y.shape(), predicted.y_pred.shape()));
  }
  if (measure->is_weighted) batch.sample_weight = inputs.sample_weight;
  if (predicted.mask.valid()) {
    const Expr counts = Expr(scope, predicted.mask).Cast(kFloat);
    const Output& weight = batch.sample_weight;
    const bool per_sample = weight.valid() && weight.shape().rank() == 1;
    batch.sample_weight =
        !weight.valid()
            ? counts
            : counts * (per_sample ? Expr(scope, weight).ExpandDims(-1).output() : weight);
  }
  const Operation update = measure->metric->Update(measures, batch, where_);
  if (!graph_.status().ok()) {
    return NotComparable(graph_.status(), "metric", measure->name, y, predicted.y_pred);
  }
  return update;
}

StatusOr<std::vector<Operation>> Steps::Measures(const Scope& scope, const StepInputs& inputs,
                                                 const Passed& passed, const Operation& previous) {
  const Scope measures =
      previous.valid() ? measures_.WithControlDependencies({previous}) : measures_;
  std::vector<Operation> updates;
  for (std::size_t i = 1; i < compiled_->measures.size(); ++i) {
    Measure& measure = compiled_->measures[i];
    const Predicted& predicted = passed.outputs[measure.output];
    MR_ASSIGN_OR_RETURN(
        updates.emplace_back(),
        measure.is_loss ? MeasureLoss(i, measures, predicted.loss, CountSamples(scope, inputs.x[0]))
                        : MeasureOutput(scope, measures, &measure, inputs, predicted));
  }
  return updates;
}

StatusOr<std::vector<GradientAndVariable>> Steps::GradientsOf(const Scope& scope,
                                                              const Output& loss,
                                                              std::vector<Variable> variables) {
  if (variables.empty()) {
    return errors::InvalidArgument("the model has no weights to train: all ", weights().size(),
                                   " of them are frozen");
  }
  MR_ASSIGN_OR_RETURN(
      std::vector<GradientAndVariable> gradients,
      compiled_->optimizer->ComputeGradients(scope, loss, std::move(variables), where_));
  MR_RETURN_IF_ERROR(graph_.status());
  return gradients;
}

// All that is computed of the weights is computed of those from before the step.
StatusOr<Operation> Steps::Apply(const Scope& scope, std::span<const GradientAndVariable> gradients,
                                 std::vector<Operation> before) {
  for (const GradientAndVariable& g : gradients) {
    if (g.gradient.valid()) before.push_back(g.gradient.op());
  }
  MR_ASSIGN_OR_RETURN(Operation applied,
                      compiled_->optimizer->ApplyGradients(scope.WithControlDependencies(before),
                                                           gradients, nullptr, where_));
  MR_RETURN_IF_ERROR(graph_.status());
  const Operation constrained =
      root_->ApplyConstraints(scope.WithControlDependencies({applied}), where_);
  return constrained.valid() ? constrained : applied;
}

std::vector<Output> Steps::ReadResults(const Scope& after) {
  std::vector<Output> results;
  for (const Measure& measure : compiled_->measures) {
    results.push_back(measure.metric->Result(after, where_));
  }
  return results;
}

void Steps::AddInputs(const StepInputs& inputs, NumericChecks* checks) const {
  for (std::size_t i = 0; i < inputs.x.size(); ++i) {
    checks->Add(inputs.x.size() == 1 ? "x" : StrCat("input ", i), inputs.x[i]);
  }
  for (std::size_t i = 0; i < inputs.y.size(); ++i) {
    checks->Add(inputs.y.size() == 1 ? "y" : StrCat("y of output '", output_names_[i], "'"),
                inputs.y[i]);
  }
  checks->Add("sample_weight", inputs.sample_weight);
  for (const Variable& v : weights()) {
    checks->Add(StrCat("weight '", v.name(), "' before the step"), v.read);
  }
}

Operation Steps::AddCheck(const Scope& scope, const NumericChecks& checks,
                          std::vector<Output> decisive,
                          std::span<const GradientAndVariable> gradients,
                          std::span<const Operation> updates) const {
  if (!compiled_->check_numerics) return Operation();
  // Those of a scaled loss may overflow: LossScale leaves such steps out.
  const bool is_scaled = dynamic_cast<optimizers::LossScale*>(optimizer()) != nullptr;
  for (const GradientAndVariable& g : gradients) {
    if (!is_scaled) decisive.push_back(g.gradient);
  }
  return checks.Make(scope, decisive, updates);
}

StatusOr<Steps::Function> Steps::MakeFunction(Kind kind, const StepInputs& inputs) {
  if (strategy_->num_replicas_in_sync() > 1) return MakeReplicated(kind, inputs);
  const Scope scope = RootScope().Named(NameOf(kind));
  NumericChecks checks(&graph_);
  AddInputs(inputs, &checks);
  Pass pass(strategy_->ReplicaScope(scope, 0), variables_, kind == Kind::kTrain);
  pass.SetPrecision(options_.precision, where_);
  pass.SetPartitioner(strategy_->variable_partitioner());
  MR_ASSIGN_OR_RETURN(const Passed passed, GoThrough(kind, inputs, &pass));
  Function function;
  std::vector<Operation> updates = passed.updates;
  if (kind == Kind::kPredict) {
    for (const Predicted& output : passed.outputs) function.fetches.push_back(output.y_pred);
  } else {
    MR_ASSIGN_OR_RETURN(const Operation counted,
                        MeasureLoss(0, measures_, passed.loss, CountSamples(scope, inputs.x[0])));
    MR_ASSIGN_OR_RETURN(std::vector<Operation> measured,
                        Measures(scope, inputs, passed, Operation()));
    measured.insert(measured.begin(), counted);
    updates.insert(updates.end(), measured.begin(), measured.end());
    if (kind == Kind::kTrain) {
      const Scope replica = strategy_->ReplicaScope(scope, 0);
      MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                          GradientsOf(replica, passed.loss, root_->trainable_weights()));
      std::vector<Operation> before = measured;
      before.push_back(passed.loss.op());
      const Operation check = AddCheck(replica, checks, {passed.loss}, gradients, passed.updates);
      if (check.valid()) before.push_back(check);
      MR_ASSIGN_OR_RETURN(const Operation applied, Apply(scope, gradients, std::move(before)));
      updates.push_back(applied);
    }
    function.fetches = ReadResults(scope.Named("results").WithControlDependencies(measured));
  }
  function.done = Group(scope.WithOpName("done"), updates);
  MR_RETURN_IF_ERROR(graph_.status());
  return function;
}

Status Steps::CheckLike(const Output& placeholder, const Tensor& value,
                        std::string_view what) const {
  const PartialShape shape = placeholder.shape();
  if (value.dtype() == placeholder.dtype() && shape.IsCompatibleWith(value.shape())) {
    return OkStatus();
  }
  return errors::InvalidArgument(
      "the model was made for ", what, " of type ", DataTypeName(placeholder.dtype()),
      " and shape ", shape.DebugString(), ", and gets type ", DataTypeName(value.dtype()),
      " and shape ", BatchesOf(value).DebugString());
}

Status Steps::MakeInputs(const std::vector<Model::InputSpec>& inputs) {
  if (!x_.empty()) return OkStatus();
  for (const Model::InputSpec& input : inputs) {
    const std::string name = inputs.size() == 1 ? "x" : StrCat("x_", x_.size());
    x_.push_back(Placeholder(RootScope().WithOpName(name), input.dtype, input.shape, where_));
    const Output& x = x_.back();
    x_cast_.push_back(InFloats(RootScope(), x));
  }
  return graph_.status();
}

StatusOr<StepInputs> Steps::InputsFor(Kind kind, const Batch& like) {
  std::vector<Model::InputSpec> specs;
  for (const Tensor& x : like.x) specs.push_back({BatchesOf(x), x.dtype()});
  MR_RETURN_IF_ERROR(MakeInputs(specs));
  if (x_.size() != like.x.size()) {
    return errors::InvalidArgument("the model has ", x_.size(), " inputs, and gets ", like.x.size(),
                                   " tensors");
  }
  for (std::size_t i = 0; i < x_.size(); ++i) {
    MR_RETURN_IF_ERROR(CheckLike(x_[i], like.x[i], x_.size() == 1 ? "x" : StrCat("input ", i)));
  }
  StepInputs inputs{x_cast_, {}, Output()};
  if (kind == Kind::kPredict) return inputs;
  const Scope root = RootScope();
  for (std::size_t i = 0; i < like.y.size(); ++i) {
    const DataType dtype = like.y[i].dtype();
    const PartialShape shape = BatchesOf(like.y[i]);
    const std::string name = output_names_.size() == 1 ? "y" : StrCat("y_", i);
    Output& y = labels_[StrCat(name, " ", DataTypeName(dtype), shape.DebugString())];
    if (!y.valid()) y = Placeholder(root.WithOpName(name), dtype, shape, where_);
    inputs.y.push_back(y);
  }
  if (like.sample_weight.IsInitialized()) {
    Output& weight = sample_weights_[like.sample_weight.rank()];
    if (!weight.valid()) {
      weight = Placeholder(root.WithOpName("sample_weight"), kFloat, BatchesOf(like.sample_weight),
                           where_);
    }
    inputs.sample_weight = weight;
  }
  MR_RETURN_IF_ERROR(graph_.status());
  return inputs;
}

}  // namespace millrace::model
