// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/observed_master.h"

#include <algorithm>
#include <utility>

#include "distributed_runtime/pages/error_text.h"
#include "session/forwarding_master.h"

namespace millrace {
namespace {

// The first dimension of what is fed, where it is largest: the size of a batch.
class Examples {
 public:
  void Add(const Tensor& feed) {
    if (feed.shape().rank() > 0) count_ = std::max(count_, feed.shape().dim(0));
  }
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
};

class ObservedMaster final : public ForwardingMaster {
 public:
  ObservedMaster(MasterInterface* master, std::string task, StepLog* log, StepTracer* tracer)
      : ForwardingMaster(master), task_(std::move(task)), log_(log), tracer_(tracer) {}

  void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                    Done done) override {
    Examples examples;
    for (const auto& feed : args->feeds) examples.Add(feed.second);
    std::shared_ptr<StepRecord> record =
        log_->Begin(args->session_handle, examples.count(), /*step_id=*/0, args->request_id);
    const bool traced = tracer_->active() && args->partial_run_handle.empty();
    const bool asked = args->options.trace_level() != pb::RunOptions::NO_TRACE;
    if (traced && !asked) args->options.set_trace_level(pb::RunOptions::FULL_TRACE);
    master()->RunStepAsync(options, args, result,
                           [this, args, result, traced, asked, record = std::move(record),
                            done = std::move(done)](Status status) {
                             log_->End(record, StepErrorText(status));
                             if (traced) TakeTrace(*record, result);
                             if (traced && !asked) {
                               // The caller may use both again.
                               args->options.clear_trace_level();
                               result->metadata.clear_step_stats();
                             }
                             done(std::move(status));
                           });
  }

  void RunCallableAsync(const CallOptions& options, RunCallableArgs* args, RunStepResult* result,
                        Done done) override {
    Examples examples;
    for (const Tensor& feed : args->feeds) examples.Add(feed);
    std::shared_ptr<StepRecord> record =
        log_->Begin(args->session_handle, examples.count(), /*step_id=*/0, args->request_id);
    const bool traced = tracer_->active();
    args->trace = traced;
    master()->RunCallableAsync(options, args, result,
                               [this, args, result, traced, record = std::move(record),
                                done = std::move(done)](Status status) {
                                 log_->End(record, StepErrorText(status));
                                 if (traced) TakeTrace(*record, result);
                                 // The caller did not ask for it.
                                 if (args->trace) result->metadata.clear_step_stats();
                                 args->trace = false;
                                 done(std::move(status));
                               });
  }

 private:
  // Of a step that went through workers, they have told the tracer themselves.
  void TakeTrace(const StepRecord& record, RunStepResult* result) {
    const pb::StepStats& stats = result->metadata.step_stats();
    const bool alone =
        record.parts.empty() && stats.dev_stats_size() > 0 &&
        std::all_of(stats.dev_stats().begin(), stats.dev_stats().end(),
                    [this](const auto& device) { return device.device().starts_with(task_); });
    if (alone) {
      pb::TracedPart part;
      part.set_task(task_);
      part.set_sent_nanos(record.begin_wall_nanos);
      part.set_answered_nanos(record.end_wall_nanos());
      *part.mutable_stats() = stats;
      tracer_->AddWhole(record.session, record.request_id, std::move(part));
    }
    tracer_->StepEnds();
  }

  const std::string task_;
  StepLog* const log_;
  StepTracer* const tracer_;
};

}  // namespace

std::unique_ptr<MasterInterface> NewObservedMaster(MasterInterface* master, std::string task,
                                                   StepLog* log, StepTracer* tracer) {
  return std::make_unique<ObservedMaster>(master, std::move(task), log, tracer);
}

}  // namespace millrace
