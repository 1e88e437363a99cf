// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/observed_eager.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "distributed_runtime/pages/error_text.h"

namespace millrace {
namespace {

class ObservedStep final : public EagerStep {
 public:
  ObservedStep(std::string session, int64_t step_id, int64_t request_id, StepLog* log,
               StepTracer* tracer)
      : session_(std::move(session)),
        step_id_(step_id),
        request_id_(request_id),
        log_(log),
        tracer_(tracer),
        traced_(tracer->active()),
        record_(log->Begin(session_, /*examples=*/0, step_id, request_id)) {}

  bool PartBegins(const std::string& task) override {
    log_->PartBegins(session_, step_id_, task);
    if (!traced_ || !tracer_->PartBegins(session_, step_id_, request_id_)) return false;
    MutexLock lock(&mu_);
    sent_[task] = {WallNanos(), SteadyNanos()};
    return true;
  }

  void PartEnds(const std::string& task, pb::StepStats* stats) override {
    log_->PartEnds(step_id_, task);
    pb::TracedPart part;
    {
      MutexLock lock(&mu_);
      const auto sent = sent_.find(task);
      if (sent == sent_.end()) return;
      part.set_sent_nanos(sent->second.wall);
      // The wall clock may have been set meanwhile.
      part.set_answered_nanos(sent->second.wall + SteadyNanos() - sent->second.steady);
      sent_.erase(sent);
    }
    part.set_task(task);
    part.mutable_stats()->Swap(stats);
    tracer_->PartEnds(step_id_, std::move(part));
  }

  void Ends(const Status& status) override {
    log_->End(record_, StepErrorText(status));
    if (tracer_->active()) tracer_->StepEnds();
  }

 private:
  struct Sent {
    int64_t wall = 0, steady = 0;  // clocks
  };
  const std::string session_;
  const int64_t step_id_, request_id_;
  StepLog* const log_;
  StepTracer* const tracer_;
  // A step that began before the trace is not in it: some of its parts would be missing.
  const bool traced_;
  const std::shared_ptr<StepRecord> record_;
  Mutex mu_;
  StringMap<Sent> sent_ ABSL_GUARDED_BY(mu_);  // of traced parts under way, by task
};

class ObservedEager final : public EagerObserver {
 public:
  ObservedEager(StepLog* log, StepTracer* tracer) : log_(log), tracer_(tracer) {}

  std::shared_ptr<EagerStep> Begin(uint64_t context, const std::string& what, int64_t step_id,
                                   int64_t request_id) override {
    return std::make_shared<ObservedStep>(StrCat("eager context ", Hex16(context), ", ", what),
                                          step_id, request_id, log_, tracer_);
  }

 private:
  StepLog* const log_;
  StepTracer* const tracer_;
};

}  // namespace

std::unique_ptr<EagerObserver> NewObservedEager(StepLog* log, StepTracer* tracer) {
  return std::make_unique<ObservedEager>(log, tracer);
}

}  // namespace millrace
