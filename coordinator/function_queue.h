// SPDX-License-Identifier: Apache-2.0
// Functions that wait for a worker, and the error that ends all of them.
#ifndef COORDINATOR_FUNCTION_QUEUE_H_
#define COORDINATOR_FUNCTION_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "base/notification.h"
#include "coordinator/call.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe. Whoever takes a call gives it back by exactly one of Finished, PutBack and Failed.
//
// The first error is kept; from then on everything queued, and everything put back, is cancelled,
// until nothing runs any more. It is then told to one caller of Put, Join or Done, and forgotten.
class FunctionQueue {
 public:
  explicit FunctionQueue(std::size_t capacity) : capacity_(capacity) {}

  // Waits for room, and for the end of what an error cancels. `what_for` is called without the
  // lock, to tell in a DeadlineExceeded who is waited for.
  using Describe = std::function<std::string()>;
  Status Put(CoordinatedCallPtr call, Deadline deadline, const Describe& what_for);
  // Null once `given_up` is true (then Wake was called) or the queue is closed.
  CoordinatedCallPtr Take(const std::atomic<bool>& given_up);
  void Wake();

  void Finished(const CoordinatedCallPtr& call);
  void PutBack(CoordinatedCallPtr call);
  void Failed(const CoordinatedCallPtr& call, const Status& error);
  // An error of no function in particular.
  void FailAll(const Status& error);

  Status Join(Deadline deadline, const Describe& what_for);
  // As Join, but waits only for the end of what an error cancels; OK at once without one.
  Status Raise(Deadline deadline, const Describe& what_for);
  StatusOr<bool> Done();
  // An error is kept and something still runs.
  bool cancelling() const;
  // Everything queued is cancelled, Take returns null, Put fails.
  void Close();

  struct Counts {
    std::size_t queued = 0, running = 0;
    int64_t scheduled = 0, finished = 0, failed = 0, cancelled = 0, retried = 0;
  };
  Counts counts() const;

 private:
  void Cancel(const CoordinatedCallPtr& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep(const Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OneLess() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AwaitProgress(Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status TakeError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return calls_.empty() && counts_.running == 0;
  }

  const std::size_t capacity_;
  mutable Mutex mu_;
  CondVar work_;      // for who takes
  CondVar progress_;  // for who puts or joins
  std::deque<CoordinatedCallPtr> calls_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);  // but for `queued`
  Status error_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;  // on progress_
};

}  // namespace millrace

#endif  // COORDINATOR_FUNCTION_QUEUE_H_
