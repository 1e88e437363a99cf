// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "model/loops.h"

namespace millrace {
namespace model {

StatusOr<int64_t> CountBatches(const Source& source, std::optional<int64_t> limit,
                               std::string_view option) {
  const int64_t count = source.count();
  if (count == 0) return errors::InvalidArgument(source.Size(), " has no batches");
  if (count != Source::kInfinite) {
    return limit && count != Source::kUnknown ? std::min(*limit, count) : limit.value_or(count);
  }
  if (limit) return *limit;
  return errors::InvalidArgument(
      "When passing an infinitely repeating dataset, please specify a `", option,
      "` value so that epoch level callbacks continue to work. (", source.Size(),
      " has no end: set ", option, ", or leave Repeat() out)");
}

StatusOr<Logs> TestLoop(Steps& steps, Source& source, std::optional<int64_t> limit,
                        CallbackList& callbacks, bool heeds_notice) {
  const bool reads_logs = callbacks.reads_batch_logs();
  MR_RETURN_IF_ERROR(source.Restart());
  MR_RETURN_IF_ERROR(steps.ResetMetrics());
  MR_RETURN_IF_ERROR(
      callbacks.Call([](Callback& c) { return c.OnTestBegin(); }, "at the begin of testing"));
  Logs logs;
  for (int64_t first = 0; (!limit || first < *limit) && !source.at_end();) {
    if (const Status notice = CheckPreemption(); heeds_notice && first > 0 && !notice.ok()) {
      return Annotate(notice, StrCat("; evaluation ended after ", first, " batches"));
    }
    MR_RETURN_IF_ERROR(callbacks.Call([&](Callback& c) { return c.OnTestBatchBegin(first); },
                                      "at the begin of test batch ", first));
    int64_t most = steps.steps_per_execution(), done = 0;
    if (limit) most = std::min(most, *limit - first);
    const Status status = source.Execute(most, reads_logs ? &logs : nullptr, &done);
    if (!status.ok() && !source.IsEnd(status)) {
      return Annotate(status, StrCat("; in test batch ", first + done));
    }
    if (done == 0 && first == 0) return errors::InvalidArgument(source.Size(), " has no batches");
    if (done == 0) break;
    const int64_t next = first + done;
    MR_RETURN_IF_ERROR(callbacks.Call([&](Callback& c) { return c.OnTestBatchEnd(next - 1, logs); },
                                      "at the end of test batch ", next - 1));
    first = next;
  }
  MR_ASSIGN_OR_RETURN(logs, steps.Results());
  MR_RETURN_IF_ERROR(
      callbacks.Call([&](Callback& c) { return c.OnTestEnd(logs); }, "at the end of testing"));
  return logs;
}

StatusOr<Logs> EvaluateLoop(Model* model, Steps* steps, const EvaluateOptions& options,
                            std::unique_ptr<Source> source) {
  const LoopUnderWay loop(steps);
  MR_RETURN_IF_ERROR(loop.status());
  MR_ASSIGN_OR_RETURN(const int64_t count, CountBatches(*source, options.steps, "steps"));
  CallbackList callbacks(model, options.callbacks,
                         {.verbose = options.verbose, .epochs = 1, .steps = count});
  MR_RETURN_IF_ERROR(callbacks.Start());
  // Several workers add up at the end what each has seen: none leaves the others waiting.
  const bool heeds_notice = steps->strategy().num_workers() == 1;
  return TestLoop(*steps, *source, options.steps, callbacks, heeds_notice);
}

}  // namespace model

StatusOr<Logs> Model::Evaluate(const Samples& x, const Samples& y, const EvaluateOptions& options) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckCompiled(steps, "Evaluate"));
  MR_RETURN_IF_ERROR(model::CheckOptions(options));
  model::Batch all{
      {x.tensors().begin(), x.tensors().end()}, model::LabelsOf(y), options.sample_weight};
  MR_RETURN_IF_ERROR(model::CheckSamples(x, all.y, options.sample_weight));
  MR_ASSIGN_OR_RETURN(auto source, model::MakeSource(&steps, model::Kind::kTest,
                                                     std::make_unique<model::Batches>(
                                                         std::move(all), options.batch_size)));
  return model::EvaluateLoop(this, &steps, options, std::move(source));
}

StatusOr<Logs> Model::Evaluate(const Dataset& batches, const EvaluateOptions& options) {
  model::Steps& steps = impl_->steps;
  MR_RETURN_IF_ERROR(model::CheckCompiled(steps, "Evaluate"));
  MR_RETURN_IF_ERROR(model::CheckOptions(options));
  MR_ASSIGN_OR_RETURN(auto source, model::MakeSource(&steps, model::Kind::kTest, batches));
  return model::EvaluateLoop(this, &steps, options, std::move(source));
}

StatusOr<Logs> Model::TestOnBatch(const Samples& x, const Samples& y, const Tensor& sample_weight) {
  MR_RETURN_IF_ERROR(model::CheckCompiled(impl_->steps, "TestOnBatch"));
  return impl_->StepOnBatch(model::Kind::kTest, x, y, sample_weight);
}

}  // namespace millrace
