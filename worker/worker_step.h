// SPDX-License-Identifier: Apache-2.0
// One step at one worker: the executors of all its devices, and the rendezvous they share.
#ifndef WORKER_WORKER_STEP_H_
#define WORKER_WORKER_STEP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/wait.h"
#include "collective/collective_executor.h"
#include "device/stream.h"
#include "executor/executor.h"
#include "executor/stats/step_stats.h"
#include "kernels/kernel_context.h"
#include "proto/waits.pb.h"
#include "rendezvous/rendezvous.h"
#include "session/worker_interface.h"
#include "worker/function_env.h"
#include "worker/step_activities.h"
#include "worker/worker_graph.h"

namespace millrace {

class WorkerSession;  // worker/worker_session.h

// Made by WorkerGraph::NewStep and recycled with the last reference. Set up by one thread;
// Cancel and Receive from any.
class WorkerStep : public RefCounted {
 public:
  using Done = std::function<void(Status)>;
  // Nothing; what the host does; that, and what its accelerators run.
  enum class Trace { kNone, kHost, kAll };

  explicit WorkerStep(const WorkerGraph& graph);

  const WorkerGraph& graph() const { return *graph_; }
  int64_t step_id() const { return step_id_; }

  // First of all.
  void Prepare(int64_t step_id, RefPtr<Rendezvous> rendezvous,
               RefPtr<CollectiveExecutor> collective = nullptr);
  // Before Start: feeds may come when some fetches have been made. No part waits for all of them.
  void RunInRounds() { in_rounds_ = true; }
  // Puts fed values where the executors' receives find them.
  Status Feed(std::span<const std::pair<std::string, Tensor>> values);
  // Starts the executors of all devices. `done` gets the first error, once all have ended; an
  // error ends the others and aborts the rendezvous.
  void Start(ThreadPool* pool, Trace trace, Done done);
  // Takes the values of `keys`, waiting for them. InvalidArgument for a dead one. If the step
  // fails meanwhile, its first error.
  void Receive(const std::vector<std::string>& keys, std::vector<Tensor>* values, Done done);
  // Ends the step early; not before Prepare. If the reason is Cancelled, its errors are derived
  // from now on. DeadlineExceeded is its error, with what it was waiting for; any other reason is,
  // too. The caller holds a reference.
  void Cancel(const Status& reason);
  // What it is cancelled by, as long as it is referenced.
  const CancellationManager* cancellation() const { return &*cancellation_; }
  // Adds what it waits for right now: resources, other tasks, kernels that run. The caller holds a
  // reference.
  void ListWaits(pb::TaskWaits* waits) const;
  // What to tell of an error that some part of the step reported.
  Status FirstError(Status status);

  // After the end, if the step was traced.
  void CollectStats(pb::StepStats* stats);

 private:
  friend class WorkerGraph;
  friend class WorkerSession;
  struct PartRun {
    WorkerStep* step = nullptr;
    FunctionEnv env;
    std::optional<StepStatsCollector> stats;
    RefPtr<MemoryTracker> memory;
  };
  void Destroy() override;
  static void PartDone(void* arg, Status status);
  void WorkEnded();
  void Ended();
  void Fail(const Status& status);
  std::vector<Wait> ListReceives() const;

  std::shared_ptr<WorkerGraph> graph_;      // null while idle
  std::shared_ptr<WorkerSession> session_;  // told when the last reference is gone
  int64_t step_id_ = 0;
  bool in_rounds_ = false;
  RefPtr<Rendezvous> rendezvous_;
  RefPtr<CollectiveExecutor> collective_;  // null: the step has no collectives
  RefPtr<DeviceWork> device_work_;         // null: none of its devices is an accelerator
  RefPtr<Rendezvous> device_rendezvous_;   // the same one, with the account; or null
  // Null: no accelerator records anything.
  std::unique_ptr<StepActivities> activities_;
  std::optional<CancellationManager> cancellation_;
  std::vector<PartRun> runs_;
  Done done_;
  std::atomic<int> pending_{0};
  Mutex mu_;
  Status error_ ABSL_GUARDED_BY(mu_);           // the first one
  Status cancel_reason_ ABSL_GUARDED_BY(mu_);   // from outside
  std::string left_over_ ABSL_GUARDED_BY(mu_);  // what accelerators had to do still, then
  std::atomic<int64_t> begun_nanos_{0};         // when it was started; 0: not yet
};

// What the caller of RunGraph wants.
inline WorkerStep::Trace TraceOf(const RunGraphArgs& args) {
  if (args.record_timeline) return WorkerStep::Trace::kAll;
  return args.record_costs ? WorkerStep::Trace::kHost : WorkerStep::Trace::kNone;
}

}  // namespace millrace

#endif  // WORKER_WORKER_STEP_H_
