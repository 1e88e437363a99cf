#include "distributed_runtime/pages/observed_master.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::size_t kMostErrorText = 300;

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

std::string ErrorText(const Status& status) {
  if (status.ok()) return "";
  const std::string text(status.message());
  return StrCat(StatusCodeName(status.code()), ": ", text.substr(0, kMostErrorText));
}

class ObservedMaster final : public MasterInterface {
 public:
  ObservedMaster(MasterInterface* master, std::string task, StepLog* log, StepTracer* tracer)
      : master_(master), task_(std::move(task)), log_(log), tracer_(tracer) {}

  void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                    Done done) override {
    Examples examples;
    for (const auto& feed : args->feeds) examples.Add(feed.second);
    std::shared_ptr<StepRecord> record = log_->Begin(args->session_handle, examples.count());
    const bool traced = tracer_->active() && args->partial_run_handle.empty();
    const bool asked = args->options.trace_level() != pb::RunOptions::NO_TRACE;
    if (traced && !asked) args->options.set_trace_level(pb::RunOptions::FULL_TRACE);
    master_->RunStepAsync(options, args, result,
                          [this, args, result, traced, asked, begin = WallNanos(),
                           record = std::move(record), done = std::move(done)](Status status) {
                            log_->End(record, ErrorText(status));
                            if (traced) TakeTrace(*record, begin, result);
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
    std::shared_ptr<StepRecord> record = log_->Begin(args->session_handle, examples.count());
    master_->RunCallableAsync(
        options, args, result,
        [this, record = std::move(record), done = std::move(done)](Status status) {
          log_->End(record, ErrorText(status));
          if (tracer_->active()) tracer_->StepEnds();
          done(std::move(status));
        });
  }

  void CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                          CreateSessionResult* result, Done done) override {
    master_->CreateSessionAsync(options, std::move(args), result, std::move(done));
  }
  void ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                          int64_t* new_graph_version, Done done) override {
    master_->ExtendSessionAsync(options, std::move(args), new_graph_version, std::move(done));
  }
  void PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                            std::string* partial_run_handle, Done done) override {
    master_->PartialRunSetupAsync(options, std::move(args), partial_run_handle, std::move(done));
  }
  void MakeCallableAsync(const CallOptions& options, MakeCallableArgs args, int64_t* callable,
                         Done done) override {
    master_->MakeCallableAsync(options, std::move(args), callable, std::move(done));
  }
  void ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                            int64_t callable, Done done) override {
    master_->ReleaseCallableAsync(options, session_handle, callable, std::move(done));
  }
  void CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                         Done done) override {
    master_->CloseSessionAsync(options, session_handle, std::move(done));
  }
  void ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                        ListDevicesResult* result, Done done) override {
    master_->ListDevicesAsync(options, session_handle, result, std::move(done));
  }
  void ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                  std::vector<std::string> device_filters, Done done) override {
    master_->ResetAsync(options, std::move(containers), std::move(device_filters), std::move(done));
  }

 private:
  // Of a step that went through workers, they have told the tracer themselves.
  void TakeTrace(const StepRecord& record, int64_t begin_nanos, RunStepResult* result) {
    const pb::StepStats& stats = result->metadata.step_stats();
    const bool alone =
        record.parts.empty() && stats.dev_stats_size() > 0 &&
        std::all_of(stats.dev_stats().begin(), stats.dev_stats().end(),
                    [this](const auto& device) { return device.device().starts_with(task_); });
    if (alone) {
      pb::TracedPart part;
      part.set_task(task_);
      part.set_sent_nanos(begin_nanos);
      part.set_answered_nanos(record.end_nanos);
      *part.mutable_stats() = stats;
      tracer_->AddWhole(record.session, std::move(part));
    }
    tracer_->StepEnds();
  }

  MasterInterface* const master_;
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
