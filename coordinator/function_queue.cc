// SPDX-License-Identifier: Apache-2.0
#include "coordinator/function_queue.h"

#include <utility>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {

// False if the deadline has passed.
bool FunctionQueue::AwaitProgress(Deadline deadline) {
  if (SteadyClock::now() >= deadline) return false;
  ++waiting_;
  progress_.WaitUntil(&mu_, deadline);
  --waiting_;
  return true;
}

Status FunctionQueue::Put(CoordinatedCallPtr call, Deadline deadline, const Describe& what_for) {
  {
    MutexLock lock(&mu_);
    do {
      if (closed_) return errors::FailedPrecondition("the coordinator is being destroyed");
      if (!error_.ok() && counts_.running == 0) return TakeError();
      if (error_.ok() && calls_.size() < capacity_) {
        calls_.push_back(std::move(call));
        ++counts_.scheduled;
        work_.Signal();
        return OkStatus();
      }
    } while (AwaitProgress(deadline));
  }
  return errors::DeadlineExceeded("the function was not scheduled: the queue of ", capacity_,
                                  " functions has no room; ", what_for());
}

CoordinatedCallPtr FunctionQueue::Take(const std::atomic<bool>& given_up) {
  MutexLock lock(&mu_);
  while (true) {
    if (given_up.load(std::memory_order_acquire) || closed_) {
      if (!calls_.empty()) work_.Signal();  // it was perhaps this one that was told
      return nullptr;
    }
    if (!calls_.empty()) break;
    work_.Wait(&mu_);
  }
  CoordinatedCallPtr call = std::move(calls_.front());
  calls_.pop_front();
  ++counts_.running;
  if (waiting_ > 0 && calls_.size() + 1 >= capacity_) progress_.SignalAll();
  return call;
}

void FunctionQueue::Wake() {
  MutexLock lock(&mu_);
  work_.SignalAll();
}

void FunctionQueue::Finished(const CoordinatedCallPtr&) {
  MutexLock lock(&mu_);
  ++counts_.finished;
  OneLess();
}

void FunctionQueue::PutBack(CoordinatedCallPtr call) {
  MutexLock lock(&mu_);
  if (!error_.ok() || closed_) {
    Cancel(call);
  } else {
    ++counts_.retried;
    calls_.push_front(std::move(call));
    work_.Signal();
  }
  OneLess();
}

void FunctionQueue::Failed(const CoordinatedCallPtr& call, const Status& error) {
  MutexLock lock(&mu_);
  ++counts_.failed;
  Keep(error);
  // Who has seen it fail finds the error kept.
  call->result->Fail(error);
  OneLess();
}

void FunctionQueue::FailAll(const Status& error) {
  MutexLock lock(&mu_);
  Keep(error);
  progress_.SignalAll();
}

void FunctionQueue::Keep(const Status& error) {
  if (error_.ok()) error_ = error;
  for (const CoordinatedCallPtr& call : calls_) Cancel(call);
  calls_.clear();
}

void FunctionQueue::Cancel(const CoordinatedCallPtr& call) {
  ++counts_.cancelled;
  call->result->Fail(
      error_.ok()
          ? errors::Cancelled(kFunctionCancelled, " The coordinator was destroyed.")
          : errors::Cancelled(kFunctionCancelled, " An error came before it: ", Message(error_)));
}

void FunctionQueue::OneLess() {
  --counts_.running;
  if (waiting_ > 0 && (idle() || !error_.ok())) progress_.SignalAll();
}

Status FunctionQueue::TakeError() { return std::exchange(error_, OkStatus()); }

Status FunctionQueue::Join(Deadline deadline, const Describe& what_for) {
  {
    MutexLock lock(&mu_);
    while (!idle() && AwaitProgress(deadline)) {
    }
    if (idle()) return TakeError();
  }
  return errors::DeadlineExceeded("the scheduled functions are not done; ", what_for());
}

Status FunctionQueue::Raise(Deadline deadline, const Describe& what_for) {
  {
    MutexLock lock(&mu_);
    while (!error_.ok() && counts_.running > 0 && AwaitProgress(deadline)) {
    }
    if (error_.ok() || counts_.running == 0) return TakeError();
  }
  return errors::DeadlineExceeded("what an error cancelled has not ended; ", what_for());
}

StatusOr<bool> FunctionQueue::Done() {
  MutexLock lock(&mu_);
  if (!idle()) return false;
  if (!error_.ok()) return TakeError();
  return true;
}

bool FunctionQueue::cancelling() const {
  MutexLock lock(&mu_);
  return !error_.ok() && counts_.running > 0;
}

void FunctionQueue::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  for (const CoordinatedCallPtr& call : calls_) Cancel(call);
  calls_.clear();
  work_.SignalAll();
  progress_.SignalAll();
}

FunctionQueue::Counts FunctionQueue::counts() const {
  MutexLock lock(&mu_);
  Counts counts = counts_;
  counts.queued = calls_.size();
  return counts;
}

}  // namespace millrace
