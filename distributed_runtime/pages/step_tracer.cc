// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/step_tracer.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace millrace {

namespace {

Status Stopping() { return errors::Unavailable("the task is stopping"); }
Status Abandoned() { return errors::Cancelled("whoever asked for the trace is gone"); }

}  // namespace

void StepTracer::Stop() {
  {
    MutexLock lock(&state_->mu);
    state_->stopped = true;
  }
  Finish(state_.get(), 0, Stopping());
}

void StepTracer::Start(int num_steps, Deadline deadline, Done done,
                       CancellationManager* cancellation) {
  if (num_steps < 1 || num_steps > kMostSteps) {
    return done(
        errors::InvalidArgument("a trace is of 1 to ", kMostSteps, " steps, not of ", num_steps));
  }
  Status refused;
  {
    MutexLock lock(&state_->mu);
    if (state_->stopped) {
      refused = Stopping();
    } else if (state_->done != nullptr) {
      refused =
          errors::FailedPrecondition("the steps of this task are being traced for somebody else");
    } else if (!HeedCancellation(state_, cancellation)) {
      refused = Abandoned();
    } else {
      state_->done = std::exchange(done, nullptr);
      state_->wanted = static_cast<std::size_t>(num_steps);
      state_->steps.clear();
      state_->pending = 0;
      const uint64_t generation = state_->generation;
      state_->timer = DeadlineTimer::Global().Schedule(
          deadline, [state = state_, generation] { Finish(state.get(), generation, OkStatus()); });
      state_->active.store(true, std::memory_order_relaxed);
    }
  }
  if (!refused.ok()) done(refused);
}

bool StepTracer::HeedCancellation(const std::shared_ptr<State>& state,
                                  CancellationManager* cancellation) {
  const uint64_t generation = ++state->generation;
  state->cancellation = cancellation;
  if (cancellation == nullptr) return true;
  state->cancel_token = cancellation->NextToken();
  return cancellation->RegisterCallback(
      state->cancel_token, [state, generation] { Finish(state.get(), generation, Abandoned()); });
}

void StepTracer::Finish(State* state, uint64_t generation, const Status& status) {
  Done done;
  Steps steps;
  {
    MutexLock lock(&state->mu);
    if (state->done == nullptr || (generation != 0 && generation != state->generation)) return;
    state->active.store(false, std::memory_order_relaxed);
    DeadlineTimer::Global().Cancel(state->timer);
    done = std::exchange(state->done, nullptr);
    steps.swap(state->steps);
    // The call owns it, and may be gone after done(). While it is being cancelled the callback
    // stays: it finds nothing to do.
    if (state->cancellation != nullptr) {
      state->cancellation->TryDeregisterCallback(state->cancel_token);
    }
    state->cancellation = nullptr;
  }
  // What never began, or has not ended, is not there.
  std::erase_if(steps, [](const pb::TracedStep& step) { return step.part().empty(); });
  if (status.ok()) return done(std::move(steps));
  done(status);
}

bool StepTracer::PartBegins(const std::string& session, int64_t step_id, int64_t request_id) {
  MutexLock lock(&state_->mu);
  if (state_->done == nullptr) return false;
  Steps& steps = state_->steps;
  const bool known = std::any_of(steps.begin(), steps.end(), [=](const pb::TracedStep& step) {
    return step.step_id() == step_id;
  });
  if (!known) {
    if (steps.size() >= state_->wanted) return false;
    pb::TracedStep& step = steps.emplace_back();
    step.set_session(session);
    step.set_step_id(step_id);
    step.set_request_id(request_id);
  }
  ++state_->pending;
  return true;
}

void StepTracer::PartEnds(int64_t step_id, pb::TracedPart part) {
  MutexLock lock(&state_->mu);
  for (pb::TracedStep& step : state_->steps) {
    if (step.step_id() != step_id) continue;
    --state_->pending;
    *step.add_part() = std::move(part);
    return;
  }
}

void StepTracer::AddWhole(const std::string& session, int64_t request_id, pb::TracedPart part) {
  MutexLock lock(&state_->mu);
  if (state_->done == nullptr || state_->steps.size() >= state_->wanted) return;
  pb::TracedStep& step = state_->steps.emplace_back();
  step.set_session(session);
  step.set_request_id(request_id);
  *step.add_part() = std::move(part);
}

void StepTracer::StepEnds() {
  uint64_t generation = 0;
  {
    MutexLock lock(&state_->mu);
    if (state_->done == nullptr || state_->pending > 0 || state_->steps.size() < state_->wanted) {
      return;
    }
    generation = state_->generation;
  }
  Finish(state_.get(), generation, OkStatus());
}

}  // namespace millrace
