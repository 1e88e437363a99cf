#include "session/direct_step.h"

#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "session/inter_op_pools.h"
#include "session/step_errors.h"

namespace millrace {

RefPtr<DirectStep> DirectPlan::NewStep(const std::shared_ptr<DirectPlan>& self) {
  DirectStep* step = self->idle_.Take();
  if (step == nullptr) step = new DirectStep(*self);
  step->plan_ = self;
  return RefPtr<DirectStep>(step);
}

DirectStep::DirectStep(const DirectPlan& plan)
    : feeds_(plan.graph().direct()->feeds.size()), fetches_(plan.graph().direct()->fetches.size()) {
  cancellation_.emplace();
}

void DirectStep::SetLimits(const Step::Limits& limits) {
  deadline_ = limits.deadline;
  timeout_ms_ = limits.timeout_ms;
  caller_ = limits.caller;
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
  const WorkerGraph::Part& part = plan_->graph().parts()[0];
  env_.step_id = step_id;
  env_.cancellation = &*cancellation_;
  env_.session_state = plan_->graph().session_state();
  env_.call_args = feeds_;
  env_.call_results = fetches_;
  if (part.has_state) {
    env_.step_container.clear();
    StrAppend(&env_.step_container, "__per_step_", step_id);
  }
  if (options.trace_level() != pb::RunOptions::NO_TRACE) stats_.emplace(part.device->name());
  ExecutorArgs args;
  args.env = &env_;
  args.pool = InterOpPool(*plan_->env_, options.inter_op_thread_pool());
  env_.inter_op_pool = args.pool;
  args.stats = stats_ ? &*stats_ : nullptr;
  const int64_t limit = plan_->graph().memory_limit();
  if (limit > 0 || stats_ || options.report_tensor_allocations_upon_oom()) {
    memory_ = MakeRef<MemoryTracker>(limit);
    args.memory = memory_.get();
  }
  Executor(part.program.get())
      .RunAsync(args, {[](void* step, Status status) {
                         static_cast<DirectStep*>(step)->Ended(std::move(status));
                       },
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

void DirectStep::Expire() {
  Abort(timeout_ms_ > 0
            ? errors::DeadlineExceeded("the step did not end within ", timeout_ms_, " ms")
            : errors::DeadlineExceeded("the step did not end by the call's deadline"));
}

void DirectStep::Ended(Status status) {
  // Not the waiting form: this may be running inside of the caller's cancellation, whose
  // callback owns a reference.
  if (caller_ != nullptr) (void)caller_->TryDeregisterCallback(caller_token_);
  const WorkerGraph::Part& part = plan_->graph().parts()[0];
  if (part.has_state) part.device->resource_manager()->Cleanup(env_.step_container);
  if (stats_) stats_->MoveTo(request_.result->metadata.mutable_step_stats());
  owner_->DirectStepEnded(this, Outcome(std::move(status)));
  Unref();
}

// What the master would make of the same end at a worker.
Status DirectStep::Outcome(Status status) {
  if (status.ok()) {
    for (std::size_t i = 0; i < fetches_.size(); ++i) {
      if (fetches_[i].dtype() != DataType::kInvalid) [[likely]]
        continue;
      status =
          errors::InvalidArgument("The tensor returned for ", plan_->graph().direct()->fetches[i],
                                  " was not valid: it lies on a branch that was not taken.");
      break;
    }
    if (status.ok()) [[likely]]
      return status;
  }
  const TaskError error{plan_->task_, std::move(status)};
  Status aborted;
  {
    MutexLock lock(&mu_);
    aborted = abort_reason_;
  }
  if (aborted.ok()) return SummarizeErrors({&error, 1});
  if (errors::IsDeadlineExceeded(aborted)) return SummarizeTimeout(Message(aborted), {&error, 1});
  return aborted;
}

void DirectStep::Destroy() {
  for (Tensor& feed : feeds_) feed = Tensor();
  for (Tensor& fetch : fetches_) fetch = Tensor();
  request_ = Request();
  stats_.reset();
  memory_.reset();
  caller_ = nullptr;
  if (cancellation_->IsCancelled()) [[unlikely]] {
    cancellation_.emplace();
    MutexLock lock(&mu_);
    abort_reason_ = OkStatus();
  }
  // The plan may go with this reference, and its idle steps with it.
  const std::shared_ptr<DirectPlan> plan = std::move(plan_);
  ResetRefCount();
  plan->idle_.Keep(this);
}

}  // namespace millrace
