// SPDX-License-Identifier: Apache-2.0
#include "master/direct_step.h"

#include <utility>

#include "base/calls/maybe_applied.h"
#include "base/errors.h"
#include "base/strings.h"
#include "master/step_errors.h"
#include "session/wait_report.h"
#include "session/worker_interface.h"

namespace millrace {

RefPtr<DirectStep> DirectPlan::NewStep(const std::shared_ptr<DirectPlan>& self) {
  DirectStep* step = self->idle_.Take();
  if (step == nullptr) step = new DirectStep(*self);
  step->plan_ = self;
  return RefPtr<DirectStep>(step);
}

DirectStep::DirectStep(const DirectPlan& plan)
    : feeds_(plan.graph().io().feeds.size()),
      fetches_(plan.graph().io().fetches.size()),
      run_(plan.graph().NewRun()) {
  cancellation_.emplace();
}

void DirectStep::SetLimits(const Step::Limits& limits) {
  deadline_ = limits.deadline;
  timeout_ms_ = limits.timeout_ms;
  caller_ = limits.caller;
  request_id_ = limits.request_id;
}

void DirectStep::Run(int64_t step_id, const pb::RunOptions& options, Owner* owner) {
  owner_ = owner;
  Ref();  // dropped when it has ended
  if (caller_ != nullptr) {
    const auto cancel = [self = RefPtr<DirectStep>::Share(this)] {
      self->Abort(errors::Cancelled("the run was cancelled by its caller"));
    };
    caller_token_ = caller_->NextToken();
    if (!caller_->RegisterCallback(caller_token_, cancel)) {
      caller_ = nullptr;
      cancel();
    }
  }
  state_.store(kRuns, std::memory_order_release);
  run_->Start(
      {step_id, feeds_, fetches_, &*cancellation_}, options,
      {[](void* step, Status status) { static_cast<DirectStep*>(step)->Ended(std::move(status)); },
       this});
}

void DirectStep::Abort(const Status& reason) {
  {
    MutexLock lock(&mu_);
    if (!abort_reason_.ok()) return;
    abort_reason_ = reason;
  }
  cancellation_->StartCancel(errors::Cancelled("the step was cancelled"));
}

Status DirectStep::DeadlineReason() const {
  return timeout_ms_ > 0
             ? errors::DeadlineExceeded("the step did not end within ", timeout_ms_, " ms")
             : errors::DeadlineExceeded("the step did not end by the call's deadline");
}

void DirectStep::HoldDevices() {
  if (use_ != nullptr) return;
  use_ = plan_->graph().step_count();
  if (use_ != nullptr) use_->Enter();
}

void DirectStep::Expire() {
  TaskAnswer answer{plan_->task_, {}, OkStatus()};
  ListWaits(&answer.waits);
  {
    MutexLock lock(&mu_);
    waits_ = MakeWaitReport({&answer, 1});
  }
  Abort(DeadlineReason());
  const State state = state_.load(std::memory_order_acquire);
  if (state == kEnded || state == kGivenUp) return;
  MutexLock lock(&mu_);
  if (grace_ != DeadlineTimer::kNone) return;
  grace_ = DeadlineTimer::Global().Schedule(
      DeadlineAfter(kOverdueGrace), [self = RefPtr<DirectStep>::Share(this)] { self->GiveUp(); });
}

void DirectStep::ListWaits(pb::TaskWaits* waits) const {
  // One that has not begun yet has nothing to tell.
  if (state_.load(std::memory_order_acquire) == kIdle) return;
  run_->ListWaits(waits);
}

// On the thread that watches deadlines.
void DirectStep::GiveUp() {
  const std::string description = run_->DescribeOverdue();
  const TaskError error{plan_->task_, errors::DeadlineExceeded(description)};
  Status status;
  {
    MutexLock lock(&mu_);
    status = MarkMaybeApplied(SummarizeTimeout(Message(DeadlineReason()), {&error, 1}, waits_));
    given_up_ = status;
  }
  if (!Answer(kGivenUp)) return;
  run_->LogOverdue(request_id_, description);
  if (owner_ == nullptr) return;
  LeaveCaller();
  owner_->DirectStepEnded(this, status);
}

bool DirectStep::Answer(State by) {
  State state = kRuns;
  while (!state_.compare_exchange_strong(state, by, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
    if (state != kAwaited) return false;
  }
  if (state == kAwaited) waiter_->Notify();
  return true;
}

Status DirectStep::Wait() {
  State state = state_.load(std::memory_order_acquire);
  if (state == kRuns) {
    Notification ended;
    waiter_ = &ended;
    if (state_.compare_exchange_strong(state, kAwaited, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      ended.Wait();
      state = state_.load(std::memory_order_acquire);
    }
  }
  if (state == kEnded) [[likely]]
    return std::move(outcome_);
  MutexLock lock(&mu_);
  return given_up_;
}

void DirectStep::LeaveCaller() {
  // Not the waiting form: this may be running inside of the caller's cancellation, whose
  // callback owns a reference.
  if (caller_ != nullptr) (void)caller_->TryDeregisterCallback(caller_token_);
}

void DirectStep::Ended(Status status) {
  run_->Finish(!status.ok());
  if (cancellation_->IsCancelled()) [[unlikely]] {
    MutexLock lock(&mu_);
    DeadlineTimer::Global().Cancel(grace_);
  }
  Status outcome = Outcome(std::move(status));
  if (owner_ == nullptr) {
    outcome_ = std::move(outcome);
    Answer(kEnded);
  } else if (Answer(kEnded)) {
    LeaveCaller();
    run_->MoveStats(&request_.result->metadata);
    owner_->DirectStepEnded(this, std::move(outcome));
  }
  Unref();
}

// What the master would make of the same end at a worker.
Status DirectStep::Outcome(Status status) {
  if (status.ok()) {
    for (std::size_t i = 0; i < fetches_.size(); ++i) {
      if (fetches_[i].dtype() != DataType::kInvalid) [[likely]]
        continue;
      status = errors::InvalidArgument("The tensor returned for ", plan_->graph().io().fetches[i],
                                       " was not valid: it lies on a branch that was not taken.");
      break;
    }
    if (status.ok()) [[likely]]
      return status;
  }
  const TaskError error{plan_->task_, std::move(status)};
  Status aborted;
  pb::WaitReport waits;
  {
    MutexLock lock(&mu_);
    aborted = abort_reason_;
    waits = waits_;
  }
  if (aborted.ok()) return MarkMaybeApplied(SummarizeErrors({&error, 1}));
  if (errors::IsDeadlineExceeded(aborted)) {
    aborted = SummarizeTimeout(Message(aborted), {&error, 1}, waits);
  }
  return MarkMaybeApplied(std::move(aborted));
}

void DirectStep::Destroy() {
  for (Tensor& feed : feeds_) feed = Tensor();
  for (Tensor& fetch : fetches_) fetch = Tensor();
  request_ = Request();
  run_->Clear();
  caller_ = nullptr;
  state_.store(kIdle, std::memory_order_relaxed);
  if (cancellation_->IsCancelled()) [[unlikely]] {
    cancellation_.emplace();
    MutexLock lock(&mu_);
    abort_reason_ = given_up_ = OkStatus();
    waits_.Clear();
    grace_ = DeadlineTimer::kNone;
  }
  const std::shared_ptr<UseCount> use = std::move(use_);
  // The plan may go with this reference, and its idle steps with it.
  std::shared_ptr<DirectPlan> plan = std::move(plan_);
  ResetRefCount();
  plan->idle_.Keep(this);
  if (use == nullptr) [[likely]]
    return;
  plan.reset();
  use->Leave();
}

}  // namespace millrace
