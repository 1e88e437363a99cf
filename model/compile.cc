// SPDX-License-Identifier: Apache-2.0
// What Compile says of a model's outputs: their losses, and what is measured of them.
#include <algorithm>
#include <set>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "model/names.h"
#include "model/steps.h"

namespace millrace::model {
namespace {

// "out_a_mae", of a model with one output "mae".
std::string LoggedName(const std::string& output, const std::string& name) {
  return output.empty() ? name : StrCat(output, "_", name);
}

}  // namespace

StatusOr<Steps::OutputLoss> Steps::LossOf(const CompileOptions& options,
                                          const std::string& output) const {
  const auto own = options.losses.find(output);
  const LossSpec& spec = own != options.losses.end() ? own->second : options.loss;
  OutputLoss loss{spec.loss(), false, 1};
  if (!loss.loss && spec.is_given()) {
    MR_ASSIGN_OR_RETURN(loss.loss, LossByName(spec.name()));
    loss.has_defaults = true;
  }
  const auto weight = options.loss_weights.find(output);
  if (weight != options.loss_weights.end()) {
    OptionChecks checks("Compile");
    checks.Finite(output.empty() ? "the weight in loss_weights"
                                 : StrCat("the weight of '", output, "' in loss_weights"),
                  weight->second);
    MR_RETURN_IF_ERROR(checks.status());
    loss.weight = static_cast<float>(weight->second);
  }
  return loss;
}

Status Steps::AddMeasures(const std::vector<MetricSpec>& specs, bool is_weighted,
                          std::size_t output, Compiled* compiled) const {
  const std::string& of = output_names_[output];
  for (const MetricSpec& spec : specs) {
    Measure measure{LoggedName(of, spec.name()),
                    spec.name(),
                    spec.metric(),
                    spec.direction(),
                    is_weighted,
                    output};
    if (!measure.metric) MR_RETURN_IF_ERROR(CheckMetricName(spec.name()));
    const auto is_taken = [&](const std::string& name) {
      return std::any_of(compiled->measures.begin(), compiled->measures.end(),
                         [&](const Measure& other) { return other.name == name; });
    };
    if (measure.is_weighted && is_taken(measure.name)) {
      measure.name = LoggedName(of, "weighted_" + spec.name());
    }
    if (is_taken(measure.name)) {
      return errors::InvalidArgument("two metrics are called '", measure.name,
                                     "': give one of them another name, MetricSpec(name, metric)");
    }
    compiled->measures.push_back(std::move(measure));
  }
  return OkStatus();
}

Status Steps::CheckOutputNames(const CompileOptions& options) const {
  const auto check = [&](const char* option, const auto& by_output) -> Status {
    for (const auto& [name, value] : by_output) {
      if (name.empty() && output_names_[0].empty()) continue;
      if (std::find(output_names_.begin(), output_names_.end(), name) != output_names_.end()) {
        continue;
      }
      return errors::InvalidArgument(
          option, " names an output '", name, "'; ",
          output_names_[0].empty() ? "the model has one, without a name: layers::Functional gives "
                                     "them names"
                                   : StrCat("there are ", StrJoin(output_names_, ", ")));
    }
    return OkStatus();
  };
  MR_RETURN_IF_ERROR(check("losses", options.losses));
  MR_RETURN_IF_ERROR(check("loss_weights", options.loss_weights));
  MR_RETURN_IF_ERROR(check("output_metrics", options.output_metrics));
  return check("output_weighted_metrics", options.output_weighted_metrics);
}

// What is below the range of a half is nothing, so losses are scaled; an optimizer that does so
// stays as it is.
Status Steps::ScaleLosses(std::shared_ptr<Optimizer>* optimizer) const {
  if (options_.precision != "mixed_float16") return OkStatus();
  if (std::dynamic_pointer_cast<optimizers::LossScale>(*optimizer) != nullptr) return OkStatus();
  auto inner = std::dynamic_pointer_cast<optimizers::KerasOptimizer>(*optimizer);
  if (inner == nullptr) {
    return errors::InvalidArgument(
        "precision mixed_float16 needs a loss that is scaled, and this optimizer knows nothing of "
        "it: take one of millrace/keras_optimizers.h, or mixed_bfloat16, or set auto_scale_loss to "
        "false");
  }
  *optimizer = std::make_shared<optimizers::LossScale>(std::move(inner));
  return OkStatus();
}

Status Steps::Compile(CompileOptions options) {
  if (loops_ > 0) {
    return errors::FailedPrecondition(
        "Compile was called by a callback, of a call that uses what the model was compiled with: "
        "set stop_training, and call it when that has returned");
  }
  if (options.steps_per_execution < 1) {
    return errors::InvalidArgument("steps_per_execution must be at least 1, not ",
                                   options.steps_per_execution);
  }
  MR_RETURN_IF_ERROR(CheckPrecision());
  MR_RETURN_IF_ERROR(CheckOutputNames(options));
  Compiled compiled;
  compiled.steps_per_execution = options.steps_per_execution;
  compiled.replica_loss = options.replica_loss;
  compiled.check_numerics = options.check_numerics;
  compiled.optimizer = options.optimizer.optimizer();
  if (compiled.optimizer == nullptr) {
    MR_ASSIGN_OR_RETURN(compiled.optimizer, OptimizerByName(options.optimizer.name()));
  }
  if (const auto* checks = dynamic_cast<const ChecksOptions*>(compiled.optimizer.get())) {
    MR_RETURN_IF_ERROR(checks->CheckOptions());
  }
  if (options.auto_scale_loss) MR_RETURN_IF_ERROR(ScaleLosses(&compiled.optimizer));
  compiled.measures.push_back({"loss", "", metrics::Mean("loss"), Direction::kDown});
  for (std::size_t i = 0; i < output_names_.size(); ++i) {
    MR_ASSIGN_OR_RETURN(compiled.losses.emplace_back(), LossOf(options, output_names_[i]));
    if (output_names_.size() == 1 || !compiled.losses[i].loss) continue;
    const std::string name = LoggedName(output_names_[i], "loss");
    compiled.measures.push_back(
        {name, "", metrics::Mean(name), Direction::kDown, false, i, /*is_loss=*/true});
  }
  for (const bool weighted : {false, true}) {
    const auto& of_output = weighted ? options.output_weighted_metrics : options.output_metrics;
    for (std::size_t i = 0; i < output_names_.size(); ++i) {
      std::vector<MetricSpec> specs = weighted ? options.weighted_metrics : options.metrics;
      const auto own = of_output.find(output_names_[i]);
      if (own != of_output.end()) specs.insert(specs.end(), own->second.begin(), own->second.end());
      MR_RETURN_IF_ERROR(AddMeasures(specs, weighted, i, &compiled));
    }
  }
  // Logs are in the order of their names; the loss stays first here.
  compiled_ = std::move(compiled);
  num_classes_.assign(output_names_.size(), -1);
  std::erase_if(functions_, [](const auto& f) { return !f.first.starts_with("predict"); });
  reset_.reset();
  results_.reset();
  set_rate_.reset();
  return OkStatus();
}

}  // namespace millrace::model
