// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "coordinator/call.h"
#include "millrace/cluster_coordinator.h"

namespace millrace {

bool RemoteResult::Finish(int worker, std::vector<Tensor> outputs) {
  MutexLock lock(&mu_);
  if (state_ != State::kNotReady) return false;
  outputs_ = std::move(outputs);
  worker_ = worker;
  state_ = State::kReady;
  settled_.SignalAll();
  return true;
}

bool RemoteResult::Fail(Status why) {
  MutexLock lock(&mu_);
  if (state_ != State::kNotReady) return false;
  status_ = std::move(why);
  state_ = State::kFailed;
  settled_.SignalAll();
  return true;
}

RemoteValue::State RemoteResult::state() const {
  MutexLock lock(&mu_);
  return state_;
}

int RemoteResult::worker() const {
  MutexLock lock(&mu_);
  return worker_;
}

StatusOr<std::vector<Tensor>> RemoteResult::Fetch(std::chrono::milliseconds timeout) const {
  const std::chrono::milliseconds limit = timeout.count() > 0 ? timeout : default_timeout_;
  const Deadline deadline = DeadlineAfter(limit);
  MutexLock lock(&mu_);
  while (state_ == State::kNotReady) {
    if (settled_.WaitUntil(&mu_, deadline) || state_ != State::kNotReady) continue;
    return errors::DeadlineExceeded("the function '", function_, "' has not ended within ",
                                    limit.count(), " ms; it stays scheduled");
  }
  if (state_ == State::kFailed) return status_;
  return outputs_;
}

RemoteValue::RemoteValue() = default;
RemoteValue::RemoteValue(std::shared_ptr<const RemoteResult> result) : result_(std::move(result)) {}

RemoteValue::State RemoteValue::state() const {
  return result_ == nullptr ? State::kFailed : result_->state();
}

int RemoteValue::worker() const { return result_ == nullptr ? -1 : result_->worker(); }

StatusOr<std::vector<Tensor>> RemoteValue::Fetch(std::chrono::milliseconds timeout) const {
  if (result_ == nullptr) {
    return errors::FailedPrecondition("this remote value stands for no scheduled function");
  }
  return result_->Fetch(timeout);
}

}  // namespace millrace
