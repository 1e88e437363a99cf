// SPDX-License-Identifier: Apache-2.0
#include "master/step.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/calls/maybe_applied.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"
#include "master/step_errors.h"
#include "session/async_join.h"
#include "session/wait_report.h"

namespace millrace {
namespace {

// How long a task may take to say what a step that is late waits for.
constexpr std::chrono::milliseconds kDescribeTimeout(500);

}  // namespace

Step::Step(const Plan& plan) : parts_(plan.parts.size()) {
  cancellation_.emplace();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PlanPart& from = plan.parts[i];
    RunGraphArgs& args = parts_[i].args;
    args.session_handle = plan.session_handle;
    args.graph_handle = from.graph_handle;
    for (const std::string& key : from.feed_keys) args.sends.emplace_back(key, Tensor());
    args.recv_keys = from.fetch_keys;
  }
}

void Step::SetFeed(int feed, Tensor value) {
  const Plan::Slot slot = plan_->feed_slots[feed];
  parts_[slot.part].args.sends[slot.index].second = std::move(value);
}

Tensor& Step::fetch(int index) {
  const Plan::Slot slot = plan_->fetch_slots[index];
  return parts_[slot.part].result.recvs[slot.index];
}

void Step::Run(int64_t step_id, const Limits& limits, Finished finished) {
  step_id_ = step_id;
  finished_ = std::move(finished);
  timeout_ms_ = limits.timeout_ms;
  {
    MutexLock lock(&mu_);
    pending_ = 1;
    starting_ = true;
  }
  Ref();  // dropped when nothing is pending
  if (limits.caller != nullptr) {
    caller_ = limits.caller;
    caller_token_ = caller_->NextToken();
    RefPtr<Step> self = RefPtr<Step>::Share(this);
    if (!caller_->RegisterCallback(caller_token_, [self] {
          self->Abort(errors::Cancelled("the run was cancelled by its caller"));
        })) {
      caller_ = nullptr;
      Stop(errors::Cancelled("the run was cancelled by its caller"), /*aborted=*/true);
    }
  }
  if (limits.deadline != kNoDeadline) {
    RefPtr<Step> self = RefPtr<Step>::Share(this);
    timer_ = DeadlineTimer::Global().Schedule(limits.deadline, [self] { self->Expire(); });
  }
  CallOptions options;
  options.cancellation = &*cancellation_;
  DeferScope burst;  // messages to a task go together
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.args.step_id = step_id;
    part.args.begin_by = limits.deadline;
    part.args.request_id = limits.request_id;
    {
      MutexLock lock(&mu_);
      if (ended_) break;
      ++pending_;
    }
    plan_->parts[i].worker->RunGraphAsync(
        options, &part.args, &part.result,
        [this, i](Status status) { PartDone(static_cast<int>(i), std::move(status)); });
  }
  PartDone(-1, OkStatus());
}

void Step::Abort(const Status& reason) { Stop(reason, /*aborted=*/true); }

void Step::Expire() {
  {
    MutexLock lock(&mu_);
    if (ended_ || stopped_) return;
  }
  const Status late =
      timeout_ms_ > 0 ? errors::DeadlineExceeded("the step did not end within ", timeout_ms_, " ms")
                      : errors::DeadlineExceeded("the step did not end by the call's deadline");
  // Apart from the step: it may end by itself while the others answer.
  const auto answers = std::make_shared<std::vector<TaskAnswer>>(parts_.size());
  const auto self = RefPtr<Step>::Share(this);
  const auto join = AsyncJoin::Make(static_cast<int>(parts_.size()), [self, answers, late](Status) {
    {
      MutexLock lock(&self->mu_);
      self->waits_ = MakeWaitReport(*answers);
    }
    self->Abort(late);
  });
  const CallOptions soon{.deadline = DeadlineAfter(kDescribeTimeout)};
  for (size_t i = 0; i < parts_.size(); ++i) {
    TaskAnswer* const answer = &(*answers)[i];
    answer->task = plan_->parts[i].task;
    plan_->parts[i].worker->ListWaitsAsync(soon, step_id_, &answer->waits,
                                           [join, answers, answer](const Status& status) {
                                             answer->status = status;
                                             join->Done(OkStatus());
                                           });
  }
}

void Step::Stop(const Status& reason, bool aborted) {
  {
    MutexLock lock(&mu_);
    if (ended_ || stopped_) return;
    stopped_ = true;
    if (aborted) abort_reason_ = reason;
  }
  // The caller holds a reference: the manager outlives this call even if the step ends in it.
  cancellation_->StartCancel(reason);
}

void Step::PartDone(int part, Status status) {
  if (status.ok() && part >= 0 &&
      parts_[part].result.recvs.size() != parts_[part].args.recv_keys.size()) {
    status =
        errors::Internal("the worker returned ", parts_[part].result.recvs.size(),
                         " tensors where ", parts_[part].args.recv_keys.size(), " were asked for");
  }
  if (!status.ok()) {
    bool root;
    {
      MutexLock lock(&mu_);
      // A call that was cancelled because of another part does not always say so itself.
      if (stopped_ && errors::IsCancelled(status)) status = MarkDerived(std::move(status));
      root = !IsDerived(status);
      errors_.emplace_back(part, status);
    }
    // This part is still pending, so the step is alive.
    if (root) Stop(status, /*aborted=*/false);
  }
  bool last, ends;
  {
    MutexLock lock(&mu_);
    if (part < 0) starting_ = false;
    last = --pending_ == 0;
    // Run may be held up by the part that has just been given up.
    const bool is_late = errors::IsDeadlineExceeded(abort_reason_) && !errors_.empty();
    ends = !ended_ && (last || (is_late && starting_ && pending_ == 1));
    if (ends) ended_ = true;
  }
  if (ends) Finish();
  if (last) Unref();
}

void Step::Finish() {
  DeadlineTimer::Global().Cancel(timer_);
  // Not the waiting form: this may be running inside of the caller's cancellation. The
  // callback owns a reference.
  if (caller_ != nullptr) (void)caller_->TryDeregisterCallback(caller_token_);
  Status status;
  {
    MutexLock lock(&mu_);
    if (!errors_.empty()) {
      std::vector<TaskError> errors;
      for (auto& [part, error] : errors_) {
        errors.push_back({plan_->parts[part].task, std::move(error)});
      }
      const bool maybe_applied =
          std::any_of(errors.begin(), errors.end(),
                      [](const TaskError& error) { return IsMaybeApplied(error.status); });
      if (abort_reason_.ok()) {
        status = SummarizeErrors(errors);
      } else if (errors::IsDeadlineExceeded(abort_reason_)) {
        status = SummarizeTimeout(Message(abort_reason_), errors, waits_);
      } else {
        status = abort_reason_;
      }
      if (maybe_applied) status = MarkMaybeApplied(std::move(status));
    }
  }
  Finished finished = std::move(finished_);
  finished_ = nullptr;
  finished(std::move(status));
}

void Step::Reset() {
  for (Part& part : parts_) {
    for (auto& send : part.args.sends) send.second = Tensor();
    part.args.record_timeline = part.args.record_costs = part.args.record_partition_graphs = false;
    part.result.recvs.clear();
    part.result.step_stats.Clear();
    part.result.partition_graphs.clear();
  }
  cancellation_.emplace();
  caller_ = nullptr;
  timer_ = DeadlineTimer::kNone;
  MutexLock lock(&mu_);
  stopped_ = ended_ = false;
  abort_reason_ = OkStatus();
  errors_.clear();
  waits_.Clear();
}

void Step::Destroy() {
  Reset();
  // The plan may go with this reference, and its idle steps with it.
  std::shared_ptr<Plan> plan = std::move(plan_);
  ResetRefCount();
  plan->Recycle(this);
}

}  // namespace millrace
