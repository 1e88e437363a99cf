// SPDX-License-Identifier: Apache-2.0
// The loops over batches that Fit, Evaluate and Predict are made of.
#ifndef MODEL_LOOPS_H_
#define MODEL_LOOPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "millrace/status_macros.h"
#include "model/callback_list.h"
#include "model/source.h"

namespace millrace {

struct Model::Impl {
  model::Steps steps;
  TrainingRun* run = nullptr;  // the call of Fit that is under way

  // One step of training or testing, and what the metrics say after it.
  StatusOr<Logs> StepOnBatch(model::Kind kind, const Samples& x, const Samples& y,
                             const Tensor& sample_weight);
};

namespace model {

// InvalidArgument, naming the option, if it is given and below 1.
Status CheckAtLeastOne(std::string_view option, std::optional<int64_t> value);
// Of the options of Evaluate and Predict.
template <typename Options>
Status CheckOptions(const Options& options) {
  MR_RETURN_IF_ERROR(CheckAtLeastOne("batch_size", options.batch_size));
  return CheckAtLeastOne("steps", options.steps);
}
// FailedPrecondition if the model is not compiled.
Status CheckCompiled(const Steps& steps, std::string_view call);
// InvalidArgument, naming the label and its sample, if a label of a `y` is no class of its loss.
Status CheckLabels(const Steps& steps, std::span<const Tensor> y);
// What the check of a data set's weights of samples says.
inline constexpr char kBadWeight[] = "sample_weight must be finite numbers";
// The same after a step has failed: labels, and the row of a weight, explain more than what the
// step says.
Status ExplainFailure(const Steps& steps, const Status& status);

// Tests on at most `limit` batches from the first one; the hooks of testing are called. All metrics
// afterwards. With `heeds_notice` Cancelled where batches are left when the process is to end.
StatusOr<Logs> TestLoop(Steps& steps, Source& source, std::optional<int64_t> limit,
                        CallbackList& callbacks, bool heeds_notice);
// The number of batches that at most `limit` of a pass are, or Source::kUnknown. InvalidArgument,
// naming the option `limit`, if there is no end.
StatusOr<int64_t> CountBatches(const Source& source, std::optional<int64_t> limit,
                               std::string_view option);

// A loop over batches while it lasts.
class LoopUnderWay {
 public:
  explicit LoopUnderWay(Steps* steps) : steps_(*steps), begun_(steps->BeginLoop()) {}
  ~LoopUnderWay() {
    if (begun_.ok()) steps_.EndLoop();
  }
  LoopUnderWay(const LoopUnderWay&) = delete;
  LoopUnderWay& operator=(const LoopUnderWay&) = delete;
  const Status& status() const { return begun_; }

 private:
  Steps& steps_;
  const Status begun_;
};

// What Fit does once it is clear where batches come from. `validation` may be null; *under_way is
// the run while it lasts.
StatusOr<History> FitLoop(Model* model, Steps* steps, TrainingRun** under_way,
                          const FitOptions& options, std::unique_ptr<Source> train,
                          std::unique_ptr<Source> validation);
StatusOr<Logs> EvaluateLoop(Model* model, Steps* steps, const EvaluateOptions& options,
                            std::unique_ptr<Source> source);
StatusOr<std::vector<Tensor>> PredictLoop(Model* model, Steps* steps, const PredictOptions& options,
                                          std::unique_ptr<Source> source);
Status CheckFitOptions(const FitOptions& options);

}  // namespace model
}  // namespace millrace

#endif  // MODEL_LOOPS_H_
