// SPDX-License-Identifier: Apache-2.0
// One run of a plan: RunGraph to the worker of every part at once, and one outcome.
//
// The worker of the master's own task may run its part on the thread that starts the parts. If a
// kernel there does not return, the worker answers all the same once the deadline has passed
// (session/direct_run.h), and so does the step: parts that were not started by then never are.
#ifndef MASTER_STEP_H_
#define MASTER_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "base/deadline_timer.h"
#include "base/mutex.h"
#include "master/plan.h"

namespace millrace {

// Made by Plan::NewStep and recycled when the last reference is gone, so that a warm step
// allocates nothing for itself. Set up by one thread; Abort from any.
class Step : public RefCounted {
 public:
  struct Part {
    RunGraphArgs args;
    RunGraphResult result;
  };
  struct Limits {
    Deadline deadline = kNoDeadline;
    int64_t timeout_ms = 0;                 // what the deadline came from, for the message
    CancellationManager* caller = nullptr;  // cancelling it aborts the step
    int64_t request_id = 0;                 // RunStepArgs'
  };
  using Finished = std::function<void(Status)>;

  explicit Step(const Plan& plan);

  const Plan& plan() const { return *plan_; }
  std::vector<Part>& parts() { return parts_; }
  void SetFeed(int feed, Tensor value);  // index into the plan's signature
  // After a good end.
  Tensor& fetch(int index);

  // Starts all parts; `finished` is called once, when all of them have answered. The first error
  // that is not derived cancels the others.
  void Run(int64_t step_id, const Limits& limits, Finished finished);
  // Ends the step with `reason`, unless it has failed or ended already; before Run: as soon as
  // it runs. The caller holds a reference.
  void Abort(const Status& reason);

  int64_t step_id() const { return step_id_; }

 private:
  friend class Plan;
  void Destroy() override;
  void Reset();
  void PartDone(int part, Status status);
  void Finish();
  // At the deadline: asks the parts what they wait for, and aborts the step once they have
  // answered.
  void Expire();
  // Cancels the parts, if this is the first reason to.
  void Stop(const Status& reason, bool aborted);

  std::shared_ptr<Plan> plan_;  // null while idle
  std::vector<Part> parts_;
  int64_t step_id_ = 0;
  Finished finished_;
  std::optional<CancellationManager> cancellation_;
  CancellationManager* caller_ = nullptr;
  CancellationManager::Token caller_token_ = -1;
  DeadlineTimer::Token timer_ = DeadlineTimer::kNone;
  int64_t timeout_ms_ = 0;

  Mutex mu_;
  int pending_ ABSL_GUARDED_BY(mu_) = 0;        // parts that were started, and Run
  bool starting_ ABSL_GUARDED_BY(mu_) = false;  // Run has not returned
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Status abort_reason_ ABSL_GUARDED_BY(mu_);
  pb::WaitReport waits_ ABSL_GUARDED_BY(mu_);  // of the parts, at the deadline
  std::vector<std::pair<int, Status>> errors_ ABSL_GUARDED_BY(mu_);  // part, in order of arrival
};

}  // namespace millrace

#endif  // MASTER_STEP_H_
