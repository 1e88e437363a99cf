// SPDX-License-Identifier: Apache-2.0
// A session at its master: the graph, the plans cut out of it, and the steps that run.
#ifndef MASTER_MASTER_SESSION_H_
#define MASTER_MASTER_SESSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/cancellation.h"
#include "base/deadline_timer.h"
#include "base/mutex.h"
#include "master/cluster_devices.h"
#include "master/direct_step.h"
#include "master/dump/graph_dump.h"
#include "master/partial_run.h"
#include "master/plan_cache.h"
#include "master/session_graph.h"
#include "master/step.h"
#include "session/master_env.h"
#include "session/master_interface.h"

namespace millrace {

// Thread-safe once created. The master keeps it in its table; calls that run keep it alive.
class MasterSession : public std::enable_shared_from_this<MasterSession>,
                      private DirectStep::Owner {
 public:
  using Done = MasterInterface::Done;

  MasterSession(const MasterEnv& env, std::string handle);
  ~MasterSession();

  // Finds the devices, places the graph, and opens the session at every worker. To be called
  // once, before anything else; if it fails nothing is left behind.
  void Create(const CallOptions& options, CreateSessionArgs args, Done done);

  Status Extend(const ExtendSessionArgs& args, int64_t* new_version);
  void Run(const CallOptions& options, RunStepArgs* args, RunStepResult* result, Done done);
  void PartialRunSetup(const CallOptions& options, PartialRunSetupArgs args,
                       std::string* partial_run_handle, Done done);
  void MakeCallable(const CallOptions& options, MakeCallableArgs args, int64_t* callable,
                    Done done);
  void RunCallable(const CallOptions& options, RunCallableArgs* args, RunStepResult* result,
                   Done done);
  // As MasterInterface::Prepare.
  std::shared_ptr<PreparedRun> Prepare(int64_t callable);
  Status ReleaseCallable(int64_t callable);
  void ListDevices(ListDevicesResult* result) const;
  // Adds what the steps wait for that the master runs itself.
  void ListDirectWaits(pb::TaskWaits* waits);
  // Cancels what runs, waits for it, and closes the session at the workers, whose errors do
  // not count. Later runs are FailedPrecondition. Calling it again waits as well.
  void Close(Done done);

  const std::string& handle() const { return handle_; }
  const SessionGraph& graph() const { return *graph_; }
  int64_t graph_version() const { return graph_->version(); }
  std::string ExplainPlacement(std::string_view node) const {
    return graph_->ExplainPlacement(node);
  }

 private:
  struct Callable {
    Binding binding;
    pb::RunOptions options;
  };
  class PreparedCall;  // prepared_call.cc

  Status Configure(CreateSessionArgs* args);
  void PlaceAndOpen(const CallOptions& options, Done done);
  // After the graph was placed: writes and logs what was asked for.
  void ReportPlacement(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(report_mu_);
  void LogPlacement(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(report_mu_);
  void CreateAtWorkers(const CallOptions& options, Done done);
  void DeleteAtWorkers(Done done);
  void FinishClose();

  // Every call that may start a step is between these; false if the session is closed.
  bool Enter();
  void Leave();
  Status ClosedError() const;

  void GetPlan(const Step::Limits& limits, RunSignature signature, PlanCache::Ready ready);
  void BuildPlan(RunSignature signature, std::shared_ptr<PlanCache::Attempt> attempt,
                 PlanCache::Ready ready);
  // Makes the step one that tells what it costs; the callback to end it with.
  Done WithCosts(RunStepArgs* args, RunStepResult* result, Done done);
  // `feed(i)` is the value of the i-th feed of the request.
  template <typename Feed>
  void StartStep(std::shared_ptr<const Binding> binding, const Step::Limits& limits,
                 const pb::RunOptions& run_options, const Feed& feed, RunStepResult* result,
                 Done done);
  // The same for a plan that the master runs by itself.
  template <typename Feed>
  void StartDirect(std::shared_ptr<const Binding> binding, const Step::Limits& limits,
                   const pb::RunOptions& run_options, const Feed& feed, RunStepResult* result,
                   Done done);
  void DirectStepEnded(DirectStep* step, Status status) override;
  static Status WrongNumberOfFeeds(const Binding& binding, std::size_t given);
  // Enter, and the step among those that end by their deadline or by Close; the reverse.
  bool EnterDirect(DirectStep* step);
  void LeaveDirect(DirectStep* step);
  void AddDirect(DirectStep* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveDirect(DirectStep* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sees to it that ExpireDirect runs when the first of the direct steps has to end.
  void WatchDirect(Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireDirect();
  void RunPart(const CallOptions& options, RunStepArgs* args, RunStepResult* result, Done done);
  void EndPart(PartialRun* run, Step* round, const Status& status);
  // Whether the master may run this part, all of the plan, by itself; and if its worker agreed.
  bool RunsDirectly(const Plan& plan, const PlanPart& part) const;
  void FindDirectGraph(Plan* plan);
  Step::Limits LimitsOf(const CallOptions& options, const pb::RunOptions& run_options,
                        int64_t request_id = 0) const;
  // Of steps in which collectives take part.
  std::string CollectiveLeader() const;
  // False if the session is closed.
  bool AddStep(Step* step);
  void RemoveStep(Step* step);
  int64_t NewStepId();

  const MasterEnv& env_;
  const std::string handle_;
  // The task as this session knows it: that of `own_cluster_`, if its client brought a cluster.
  const WorkerEnv* task_;  // constant once created, like the next six
  std::shared_ptr<const WorkerEnv> own_cluster_;
  pb::ConfigProto config_;
  ClusterDevices cluster_;
  std::unique_ptr<SessionGraph> graph_;
  std::shared_ptr<SessionDump> dump_;  // null unless graphs are written
  PlanContext plan_context_;
  PlanCache plans_{handle_};
  std::atomic<int64_t> next_name_{0};
  std::atomic<int64_t> num_runs_{0};  // of a session that tells costs
  std::atomic<uint64_t> next_step_;
  CancellationManager closing_;  // of what is not a step: registrations
  Mutex report_mu_;              // one extension and its report at a time; taken before all others
  std::string placement_file_ ABSL_GUARDED_BY(report_mu_);  // of a session without dumps

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool deleted_ ABSL_GUARDED_BY(mu_) = false;  // at the workers
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Done> close_waiters_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<Step*> steps_ ABSL_GUARDED_BY(mu_);
  DirectStep* direct_steps_ ABSL_GUARDED_BY(mu_) = nullptr;  // a list
  // When the timer looks at them next: one timer for all, mostly later than they end.
  Deadline direct_watch_ ABSL_GUARDED_BY(mu_) = kNoDeadline;
  DeadlineTimer::Token direct_timer_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
  int64_t next_callable_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, std::shared_ptr<const Callable>> callables_ ABSL_GUARDED_BY(mu_);
  StringMap<std::shared_ptr<PartialRun>> partial_runs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // MASTER_MASTER_SESSION_H_
