// SPDX-License-Identifier: Apache-2.0
// Callables whose plan is one graph on the master's own device: run on the caller's thread. A
// warm call takes the session's lock twice, to be seen by those who end steps, and no other.
#include <utility>

#include "base/errors.h"
#include "master/master_session.h"

namespace millrace {

class MasterSession::PreparedCall final : public PreparedRun {
 public:
  PreparedCall(std::shared_ptr<MasterSession> session, std::shared_ptr<const Callable> callable)
      : session_(std::move(session)),
        callable_(std::move(callable)),
        direct_(callable_->binding.plan->direct),
        repeats_(callable_->binding.fetches.size() !=
                 callable_->binding.plan->signature.fetches.size()),
        limits_(session_->LimitsOf({}, callable_->options)) {}

  Status Run(std::chrono::milliseconds timeout, TensorSpan feeds,
             std::vector<Tensor>* fetches) override {
    const Binding& binding = callable_->binding;
    if (feeds.size() != binding.feeds.size()) return WrongNumberOfFeeds(binding, feeds.size());
    const RefPtr<DirectStep> step = DirectPlan::NewStep(direct_);
    for (std::size_t i = 0; i < feeds.size(); ++i) step->feeds()[binding.feeds[i]] = feeds[i];
    step->SetLimits(LimitsOf(timeout.count()));
    if (!session_->EnterDirect(step.get())) return session_->ClosedError();
    step->Run(session_->NewStepId(), callable_->options, /*owner=*/nullptr);
    Status status = step->Wait();
    session_->LeaveDirect(step.get());
    if (!status.ok()) return status;
    fetches->resize(binding.fetches.size());
    for (std::size_t i = 0; i < fetches->size(); ++i) {
      Tensor& fetched = step->fetches()[binding.fetches[i]];
      (*fetches)[i] = repeats_ ? fetched : std::move(fetched);
    }
    return status;
  }

 private:
  Step::Limits LimitsOf(int64_t timeout_ms) const {
    Step::Limits limits;
    const int64_t own_ms = limits_.timeout_ms;
    limits.timeout_ms =
        timeout_ms > 0 && (own_ms == 0 || timeout_ms < own_ms) ? timeout_ms : own_ms;
    if (limits.timeout_ms > 0) {
      limits.deadline = StepDeadline(std::chrono::milliseconds(limits.timeout_ms));
    }
    return limits;
  }

  const std::shared_ptr<MasterSession> session_;
  const std::shared_ptr<const Callable> callable_;
  const std::shared_ptr<DirectPlan> direct_;
  const bool repeats_;         // a fetch
  const Step::Limits limits_;  // of its own options
};

Status MasterSession::WrongNumberOfFeeds(const Binding& binding, std::size_t given) {
  return errors::InvalidArgument("Expected ", binding.feeds.size(), " feed tensors, but got ",
                                 given);
}

std::shared_ptr<PreparedRun> MasterSession::Prepare(int64_t callable) {
  std::shared_ptr<const Callable> found;
  {
    MutexLock lock(&mu_);
    const auto it = callables_.find(callable);
    if (it == callables_.end()) return nullptr;
    found = it->second;
  }
  const Plan& plan = *found->binding.plan;
  const pb::RunOptions& options = found->options;
  const bool alone = plan.direct != nullptr && plan.dump == nullptr &&
                     options.trace_level() == pb::RunOptions::NO_TRACE &&
                     !options.output_partition_graphs();
  if (!alone) return nullptr;
  return std::make_shared<PreparedCall>(shared_from_this(), std::move(found));
}

bool MasterSession::EnterDirect(DirectStep* step) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  ++running_;
  AddDirect(step);
  return true;
}

void MasterSession::LeaveDirect(DirectStep* step) {
  {
    MutexLock lock(&mu_);
    RemoveDirect(step);
    if (--running_ > 0 || !closed_) return;
  }
  FinishClose();
}

}  // namespace millrace
