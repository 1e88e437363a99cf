// SPDX-License-Identifier: Apache-2.0
// One RunGraph at the worker of this process: feeds, the step, fetches, and the one answer.
#ifndef WORKER_RUN_CALL_H_
#define WORKER_RUN_CALL_H_

#include <atomic>
#include <memory>

#include "base/deadline_timer.h"
#include "base/mutex.h"
#include "millrace/ref_ptr.h"
#include "session/worker_interface.h"
#include "worker/worker_session.h"
#include "worker/worker_step.h"

namespace millrace {

class ThreadPool;  // base/thread_pool.h

// Not of partial steps. Keeps itself until nothing of the step runs any more. The answer comes
// with the end of the step, or, if the step was cancelled because of a deadline and did not end
// within the grace, before (worker/overdue.h): then nothing that belongs to the caller is touched
// afterwards.
class RunCall : public RefCounted {
 public:
  // `args` and `result` are the caller's, until `done` is called.
  RunCall(RefPtr<WorkerStep> step, std::shared_ptr<WorkerSession> session, RunGraphArgs* args,
          RunGraphResult* result, WorkerInterface::Done done);

  // The step is prepared, and the session knows of it. Once; `done` may have been called when this
  // returns. DeadlineExceeded, and what still runs, if the step had to be given up.
  void Run(const CallOptions& options, ThreadPool* pool);

 private:
  // The step ends when the caller says so.
  void Watch(const CallOptions& options);
  void Expire();
  void GiveUp();
  void StepEnded(Status status);
  void Finish(Status status);
  // Nothing of the caller's, nor a timer, is used any more; callbacks that run right now have a
  // reference.
  void Release();

  const RefPtr<WorkerStep> step_;
  const std::shared_ptr<WorkerSession> session_;
  RunGraphArgs* const args_;
  RunGraphResult* const result_;
  WorkerInterface::Done done_;         // of whoever made `answered_` true
  std::atomic<bool> answered_{false};  // or about to be: the executors have ended
  Mutex mu_;
  CancellationManager* cancellation_ ABSL_GUARDED_BY(mu_) = nullptr;  // the caller's
  CancellationManager::Token token_ ABSL_GUARDED_BY(mu_) = -1;
  DeadlineTimer::Token timer_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
  DeadlineTimer::Token grace_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
};

}  // namespace millrace

#endif  // WORKER_RUN_CALL_H_
