// SPDX-License-Identifier: Apache-2.0
// A run of a plan that is one graph on one device of the client's own task: feeds and fetches
// change hands without a rendezvous, nothing is asked of a worker, and a graph that one thread
// can run has run when Run returns.
//
// A step that does not end after its deadline is given up (session/direct_run.h): whoever waits for
// it is answered, and the step goes on by itself, owned by the threads that run it.
#ifndef MASTER_DIRECT_STEP_H_
#define MASTER_DIRECT_STEP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "base/deadline_timer.h"
#include "base/idle_list.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/use_count.h"
#include "master/step.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/waits.pb.h"
#include "session/direct_run.h"
#include "session/master_interface.h"

namespace millrace {

struct Binding;  // master/plan_cache.h
class DirectPlan;

// Recycled with its last reference; a warm one allocates nothing. Set up by one thread; Abort
// from any.
class DirectStep : public RefCounted {
 public:
  // What it is run for, kept for the one who is told of its end.
  struct Request {
    std::shared_ptr<void> session;  // kept alive
    std::shared_ptr<const Binding> binding;
    RunStepResult* result = nullptr;
    MasterInterface::Done done;
  };
  // Told once: when nothing of the step runs any more, or that it was given up. Then its feeds and
  // fetches are not to be touched.
  class Owner {
   public:
    virtual void DirectStepEnded(DirectStep* step, Status status) = 0;

   protected:
    ~Owner() = default;
  };

  explicit DirectStep(const DirectPlan& plan);

  // In the order of the plan's signature.
  std::vector<Tensor>& feeds() { return feeds_; }
  std::vector<Tensor>& fetches() { return fetches_; }  // after a good end
  Request& request() { return request_; }
  Deadline deadline() const { return deadline_; }
  // Before the step is shown to anybody else.
  void SetLimits(const Step::Limits& limits);

  // `owner` may be null: then Wait must follow, and the step has no caller in its limits.
  void Run(int64_t step_id, const pb::RunOptions& options, Owner* owner);
  // What the owner would be told.
  Status Wait();
  // As Step::Abort. The caller holds a reference.
  void Abort(const Status& reason);
  // While its owner is sure not to have been told: its devices outlive the step from now on,
  // whatever becomes of its session.
  void HoldDevices();
  // For a step whose deadline has passed, after HoldDevices and with a reference. Aborts it, and
  // gives it up if it has not ended after the grace.
  void Expire();
  // Adds what it waits for. For whoever has called HoldDevices and has a reference.
  void ListWaits(pb::TaskWaits* waits) const;

  // Links in the list of the steps that run.
  DirectStep* next = nullptr;
  DirectStep* previous = nullptr;

 private:
  friend class DirectPlan;
  enum State : int { kIdle, kRuns, kAwaited, kEnded, kGivenUp };
  void Destroy() override;
  void Ended(Status status);
  void GiveUp();
  // Ends what the owner waits for; false if that was ended before.
  bool Answer(State by);
  void LeaveCaller();
  Status DeadlineReason() const;
  Status Outcome(Status status);

  std::shared_ptr<DirectPlan> plan_;  // null while idle
  std::vector<Tensor> feeds_, fetches_;
  Request request_;
  Owner* owner_ = nullptr;
  std::unique_ptr<DirectRun> run_;  // before plan_ goes
  std::optional<CancellationManager> cancellation_;
  CancellationManager* caller_ = nullptr;
  CancellationManager::Token caller_token_ = -1;
  Deadline deadline_ = kNoDeadline;
  int64_t timeout_ms_ = 0;
  int64_t request_id_ = 0;
  // Says kRuns when all above is set, and how it ended when all below is.
  std::atomic<State> state_{kIdle};
  Notification* waiter_ = nullptr;
  Status outcome_;
  // Counts the step among those that its devices must outlive; null unless somebody holds them.
  std::shared_ptr<UseCount> use_;
  Mutex mu_;
  Status abort_reason_ ABSL_GUARDED_BY(mu_);
  pb::WaitReport waits_ ABSL_GUARDED_BY(mu_);  // at the deadline
  Status given_up_ ABSL_GUARDED_BY(mu_);
  DeadlineTimer::Token grace_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
};

// The graph and its idle steps. Thread-safe.
class DirectPlan {
 public:
  DirectPlan(std::string task, std::shared_ptr<DirectGraph> graph)
      : task_(std::move(task)), graph_(std::move(graph)) {}
  DirectPlan(const DirectPlan&) = delete;
  DirectPlan& operator=(const DirectPlan&) = delete;

  const DirectGraph& graph() const { return *graph_; }
  static RefPtr<DirectStep> NewStep(const std::shared_ptr<DirectPlan>& self);

 private:
  friend class DirectStep;

  const std::string task_;
  const std::shared_ptr<DirectGraph> graph_;
  IdleList<DirectStep, &DirectStep::next> idle_;
};

}  // namespace millrace

#endif  // MASTER_DIRECT_STEP_H_
