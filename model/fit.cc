// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/status_macros.h"
#include "model/fit_run.h"

namespace millrace {
namespace model {

Status CheckFitOptions(const FitOptions& o) {
  MR_RETURN_IF_ERROR(CheckAtLeastOne("batch_size", o.batch_size));
  MR_RETURN_IF_ERROR(CheckAtLeastOne("steps_per_epoch", o.steps_per_epoch));
  MR_RETURN_IF_ERROR(CheckAtLeastOne("validation_steps", o.validation_steps));
  MR_RETURN_IF_ERROR(CheckAtLeastOne("validation_batch_size", o.validation_batch_size));
  MR_RETURN_IF_ERROR(CheckAtLeastOne("validation_freq", o.validation_freq));
  if (o.epochs < 0 || o.initial_epoch < 0) {
    return errors::InvalidArgument("epochs and initial_epoch must not be negative; they are ",
                                   o.epochs, " and ", o.initial_epoch);
  }
  if (o.initial_epoch > o.epochs) {
    return errors::InvalidArgument("initial_epoch is ", o.initial_epoch, " and epochs ", o.epochs,
                                   ", the number of the last epoch, not of those that are added: "
                                   "to train for n more, make epochs initial_epoch + n");
  }
  for (const int64_t epoch : o.validation_epochs) {
    if (epoch >= 1) continue;
    return errors::InvalidArgument("validation_epochs count from 1, and one of them is ", epoch);
  }
  MR_RETURN_IF_ERROR(CheckClassWeights(o.class_weight));
  if (o.validation.has_value() + o.validation_dataset.has_value() + (o.validation_split != 0) > 1) {
    return errors::InvalidArgument(
        "give one of validation, validation_dataset and validation_split, not several");
  }
  if (!o.class_weight.empty() && o.sample_weight.IsInitialized()) {
    return errors::InvalidArgument(
        "give either class_weight or sample_weight, not both: multiply them into sample_weight");
  }
  return OkStatus();
}

namespace {

// Makes a run the one that is under way, within that of a callback that calls Fit; also where
// something throws.
class UnderWay {
 public:
  UnderWay(TrainingRun** place, TrainingRun* run) : place_(place), outer_(*place) { *place = run; }
  ~UnderWay() { *place_ = outer_; }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  TrainingRun** const place_;
  TrainingRun* const outer_;
};

}  // namespace

StatusOr<History> FitLoop(Model* model, Steps* steps, TrainingRun** under_way,
                          const FitOptions& options, std::unique_ptr<Source> train,
                          std::unique_ptr<Source> validation) {
  const LoopUnderWay loop(steps);
  MR_RETURN_IF_ERROR(loop.status());
  MR_ASSIGN_OR_RETURN(const int64_t count,
                      CountBatches(*train, options.steps_per_epoch, "steps_per_epoch"));
  if (validation != nullptr) {
    MR_RETURN_IF_ERROR(
        CountBatches(*validation, options.validation_steps, "validation_steps").status());
  }
  // Asked for more steps than there are, the first epoch still shows the number that was asked for.
  FitRun run(model, steps, options, std::move(train), std::move(validation),
             options.steps_per_epoch.value_or(count));
  const UnderWay while_it_lasts(under_way, &run);
  return run.Run();
}

}  // namespace model

namespace {

// The last part of the samples, floor(n (1 - split)) and beyond.
StatusOr<int64_t> SplitAt(int64_t rows, double split) {
  if (!(split > 0 && split < 1)) {
    return errors::InvalidArgument("validation_split must lie between 0 and 1, not be ", split);
  }
  const auto at = static_cast<int64_t>(std::floor(static_cast<double>(rows) * (1 - split)));
  if (at > 0 && at < rows) return at;
  return errors::InvalidArgument("validation_split ", split, " of ", rows,
                                 " samples leaves none to ", at == 0 ? "train on" : "validate on",
                                 "; give more samples or another split");
}

// The validation data, or the part of the samples that is held out: which `all` loses.
StatusOr<std::optional<model::Batch>> HeldOut(const FitOptions& o, model::Batch* all) {
  if (o.validation) {
    const ValidationData& v = *o.validation;
    model::Batch batch{
        {v.x.tensors().begin(), v.x.tensors().end()}, model::LabelsOf(v.y), v.sample_weight};
    if (const Status s = model::CheckSamples(v.x, batch.y, v.sample_weight); !s.ok()) {
      return WithMessage(s, StrCat("validation: ", Message(s)));
    }
    return batch;
  }
  if (o.validation_split == 0) return std::nullopt;
  const int64_t rows = all->x[0].dim(0);
  MR_ASSIGN_OR_RETURN(const int64_t at, SplitAt(rows, o.validation_split));
  model::Batch held_out = model::RowsOf(*all, at, rows);
  *all = model::RowsOf(*all, 0, at);
  return held_out;
}

// Null if nothing is validated on.
StatusOr<std::unique_ptr<model::Source>> MakeValidation(model::Steps* steps, const FitOptions& o,
                                                        std::optional<model::Batch> held_out,
                                                        int64_t batch_size) {
  StatusOr<std::unique_ptr<model::Source>> validation = nullptr;
  if (o.validation_dataset) {
    validation = model::MakeSource(steps, model::Kind::kTest, *o.validation_dataset);
  } else if (held_out) {
    validation =
        model::MakeSource(steps, model::Kind::kTest,
                          std::make_unique<model::Batches>(*std::move(held_out), batch_size));
  }
  if (validation.ok()) return validation;
  return WithMessage(validation.status(), StrCat("validation: ", Message(validation.status())));
}

}  // namespace

StatusOr<History> Model::Fit(const Samples& x, const Samples& y, const FitOptions& options) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckCompiled(steps, "Fit"));
  MR_RETURN_IF_ERROR(model::CheckFitOptions(options));
  model::Batch all{
      {x.tensors().begin(), x.tensors().end()}, model::LabelsOf(y), options.sample_weight};
  MR_RETURN_IF_ERROR(model::CheckSamples(x, all.y, options.sample_weight));
  MR_ASSIGN_OR_RETURN(std::optional<model::Batch> held_out, HeldOut(options, &all));
  int64_t batch_size = options.batch_size.value_or(32);
  if (!options.batch_size && options.steps_per_epoch) {
    batch_size = 1 + (all.x[0].dim(0) - 1) / *options.steps_per_epoch;
  }
  if (!options.class_weight.empty()) {
    MR_ASSIGN_OR_RETURN(all.sample_weight, model::WeightsOfClasses(options.class_weight, all.y));
  }
  std::optional<uint64_t> seed;
  if (options.shuffle) seed = static_cast<uint64_t>(steps.options().seed);
  auto batches = std::make_unique<model::Batches>(std::move(all), batch_size, seed);
  // An epoch that is repeated after a restart has the order that it had.
  if (!options.steps_per_epoch) batches->SkipPasses(options.initial_epoch);
  MR_ASSIGN_OR_RETURN(auto train,
                      model::MakeSource(&steps, model::Kind::kTrain, std::move(batches)));
  MR_ASSIGN_OR_RETURN(auto validation,
                      MakeValidation(&steps, options, std::move(held_out),
                                     options.validation_batch_size.value_or(batch_size)));
  return model::FitLoop(this, &steps, &impl_->run, options, std::move(train),
                        std::move(validation));
}

StatusOr<History> Model::Fit(const Dataset& batches, const FitOptions& options) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckCompiled(steps, "Fit"));
  MR_RETURN_IF_ERROR(model::CheckFitOptions(options));
  if (options.validation_split != 0) {
    return errors::InvalidArgument(
        "validation_split takes samples in memory: of a data set, give validation_dataset what "
        "Take(n) makes of it, and train on what Skip(n) does");
  }
  if (options.sample_weight.IsInitialized()) {
    return errors::InvalidArgument(
        "sample_weight is for samples in memory: a data set has them as its third component");
  }
  MR_ASSIGN_OR_RETURN(
      auto train, model::MakeSource(&steps, model::Kind::kTrain, batches, options.class_weight));
  model::Batch none;
  MR_ASSIGN_OR_RETURN(std::optional<model::Batch> held_out, HeldOut(options, &none));
  const int64_t batch_size =
      options.validation_batch_size.value_or(options.batch_size.value_or(32));
  MR_ASSIGN_OR_RETURN(auto validation,
                      MakeValidation(&steps, options, std::move(held_out), batch_size));
  return model::FitLoop(this, &steps, &impl_->run, options, std::move(train),
                        std::move(validation));
}

StatusOr<Logs> Model::TrainOnBatch(const Samples& x, const Samples& y,
                                   const Tensor& sample_weight) {
  MR_RETURN_IF_ERROR(model::CheckCompiled(impl_->steps, "TrainOnBatch"));
  return impl_->StepOnBatch(model::Kind::kTrain, x, y, sample_weight);
}

}  // namespace millrace
