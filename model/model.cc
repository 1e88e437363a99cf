// SPDX-License-Identifier: Apache-2.0
#include "millrace/model.h"

#include "base/status_macros.h"
#include "millrace/layers.h"
#include "model/loops.h"

namespace millrace {
Model::Model(std::shared_ptr<Layer> root, const ModelOptions& options, std::source_location where)
    : impl_(new Impl{{std::move(root), options, where}, nullptr}) {}

Model::~Model() = default;

StatusOr<Logs> Model::Impl::StepOnBatch(model::Kind kind, const Samples& x, const Samples& y,
                                        const Tensor& sample_weight) {
  const model::Batch batch{
      {x.tensors().begin(), x.tensors().end()}, model::LabelsOf(y), sample_weight};
  MR_RETURN_IF_ERROR(model::CheckSamples(x, batch.y, sample_weight));
  MR_ASSIGN_OR_RETURN(model::Steps::Function * function, steps.FunctionFor(kind, batch));
  MR_RETURN_IF_ERROR(model::CheckLabels(steps, batch.y));
  MR_RETURN_IF_ERROR(steps.ResetMetrics());
  Logs logs;
  const Status status = steps.Run(function, model::FeedsOf(kind, batch), &logs);
  if (!status.ok()) return model::ExplainFailure(steps, status);
  return logs;
}

Status Model::Compile(CompileOptions options) { return impl_->steps.Compile(std::move(options)); }

Status Model::Build(const std::vector<InputSpec>& inputs) { return impl_->steps.Build(inputs); }

Status Model::ResetMetrics() {
  MR_RETURN_IF_ERROR(model::CheckCompiled(impl_->steps, "ResetMetrics"));
  return impl_->steps.ResetMetrics();
}

std::string Model::Summary() const { return root() != nullptr ? layers::Summary(*root()) : ""; }

std::vector<Variable> Model::weights() const { return impl_->steps.weights(); }
StatusOr<std::vector<Tensor>> Model::GetWeights() { return impl_->steps.GetWeights(); }
Status Model::SetWeights(std::span<const Tensor> values) { return impl_->steps.SetWeights(values); }
Status Model::SaveWeights(const std::string& prefix, WeightsFormat format) {
  return impl_->steps.SaveWeights(prefix, format);
}
Status Model::SaveWeightsAsync(const std::string& prefix) {
  return impl_->steps.SaveWeightsAsync(prefix);
}
Status Model::SyncWeights() { return impl_->steps.SyncWeights(); }
Status Model::LoadWeights(const std::string& prefix) { return impl_->steps.LoadWeights(prefix); }
StatusOr<double> Model::GetLearningRate() { return impl_->steps.GetLearningRate(); }
Status Model::SetLearningRate(double rate) { return impl_->steps.SetLearningRate(rate); }
TrainingRun* Model::training_run() const { return impl_->run; }
Direction Model::DirectionOf(std::string_view name) const { return impl_->steps.DirectionOf(name); }

const std::string& Model::name() const { return impl_->steps.options().name; }
Layer* Model::root() const { return impl_->steps.root(); }
Optimizer* Model::optimizer() const { return impl_->steps.optimizer(); }
Graph& Model::graph() { return impl_->steps.graph(); }
Strategy& Model::strategy() const { return impl_->steps.strategy(); }
Session* Model::session() { return impl_->steps.session(); }

}  // namespace millrace
