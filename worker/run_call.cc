// SPDX-License-Identifier: Apache-2.0
#include "worker/run_call.h"

#include <utility>

#include "base/calls/maybe_applied.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "worker/overdue.h"

namespace millrace {

RunCall::RunCall(RefPtr<WorkerStep> step, std::shared_ptr<WorkerSession> session,
                 RunGraphArgs* args, RunGraphResult* result, WorkerInterface::Done done)
    : step_(std::move(step)),
      session_(std::move(session)),
      args_(args),
      result_(result),
      done_(std::move(done)) {}

void RunCall::Run(const CallOptions& options, ThreadPool* pool) {
  Ref();  // dropped when nothing runs any more
  Watch(options);
  if (Status fed = step_->Feed(args_->sends); !fed.ok()) {
    answered_.store(true, std::memory_order_relaxed);
    Finish(step_->FirstError(std::move(fed)));
    return Unref();
  }
  const LogRequest named(args_->request_id);
  step_->Start(pool, TraceOf(*args_), [this](Status status) { StepEnded(std::move(status)); });
}

void RunCall::Watch(const CallOptions& options) {
  CancellationManager* const cancellation = options.cancellation;
  const auto cancel = [self = RefPtr<RunCall>::Share(this), cancellation] {
    const bool is_late = errors::IsDeadlineExceeded(cancellation->reason());
    // Members of its collectives elsewhere are told why.
    self->step_->Cancel(is_late ? errors::DeadlineExceeded("RunGraph did not end by its deadline")
                                : errors::Cancelled("RunGraph was cancelled"));
    if (is_late) self->Expire();
  };
  {
    MutexLock lock(&mu_);
    timer_ =
        DeadlineTimer::Global().Schedule(options.deadline, [self = RefPtr<RunCall>::Share(this)] {
          self->step_->Cancel(errors::DeadlineExceeded("RunGraph did not end by its deadline"));
          self->Expire();
        });
    if (cancellation == nullptr) return;
    token_ = cancellation->NextToken();
    if (cancellation->RegisterCallback(token_, cancel)) {
      cancellation_ = cancellation;
      return;
    }
  }
  cancel();
}

void RunCall::Expire() {
  if (answered_.load(std::memory_order_acquire)) return;
  MutexLock lock(&mu_);
  if (grace_ != DeadlineTimer::kNone) return;
  grace_ = DeadlineTimer::Global().Schedule(
      DeadlineAfter(kOverdueGrace), [self = RefPtr<RunCall>::Share(this)] { self->GiveUp(); });
}

void RunCall::GiveUp() {
  const std::string description = DescribeOverdue(step_->cancellation());
  if (answered_.exchange(true, std::memory_order_acq_rel)) return;
  LogOverdue(step_->step_id(), args_->request_id, description);
  Release();
  const WorkerInterface::Done done = std::move(done_);
  done(MarkMaybeApplied(errors::DeadlineExceeded(description)));
}

void RunCall::StepEnded(Status status) {
  if (answered_.exchange(true, std::memory_order_acq_rel)) {
    session_->RemoveStep(step_.get());
    return Unref();
  }
  if (!status.ok()) {
    Finish(std::move(status));
    return Unref();
  }
  step_->Receive(args_->recv_keys, &result_->recvs, [this](Status received) {
    Finish(std::move(received));
    Unref();
  });
}

void RunCall::Finish(Status status) {
  Release();
  step_->CollectStats(&result_->step_stats);
  session_->RemoveStep(step_.get());
  const WorkerInterface::Done done = std::move(done_);
  done(MarkMaybeApplied(std::move(status)));
}

void RunCall::Release() {
  MutexLock lock(&mu_);
  DeadlineTimer::Global().Cancel(timer_);
  if (cancellation_ != nullptr) (void)cancellation_->TryDeregisterCallback(token_);
  DeadlineTimer::Global().Cancel(grace_);
}

}  // namespace millrace
