// SPDX-License-Identifier: Apache-2.0
// Sessions that train: they initialise or restore, call hooks around every step, and go on when a
// task was lost and came back (docs/monitored_sessions.md).
//
//   MonitoredTrainingOptions options;
//   options.checkpoint_dir = "/tmp/model";
//   options.hooks = {StopAtStepHook({.last_step = 1000})};
//   MR_ASSIGN_OR_RETURN(const auto session, MonitoredTrainingSession(graph, options));
//   return session->RunUntilStop([&] { return session->RunTargets({train}); });
#ifndef MILLRACE_MONITORED_SESSION_H_
#define MILLRACE_MONITORED_SESSION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"
#include "millrace/hooks.h"
#include "millrace/session.h"
#include "millrace/session_manager.h"
#include "millrace/status.h"

namespace millrace {

class Saver;

inline constexpr char kSummaries[] = "summaries";  // a collection: what summary ops yield

// Collections in which a graph brings such a part with it: one item, InvalidArgument if there are
// more. An op without outputs is in a collection as Output(op, 0).
inline constexpr char kInitOp[] = "init_op";
inline constexpr char kReadyOp[] = "ready_op";  // names what has no value
inline constexpr char kReadyForLocalInitOp[] = "ready_for_local_init_op";  // as kReadyOp
inline constexpr char kLocalInitOp[] = "local_init_op";                    // runs in each task
inline constexpr char kSummaryOp[] = "summary_op";                         // all summaries in one
inline constexpr char kTableInitializers[] = "table_initializer";          // ops that fill tables

// The parts of a graph that a session is brought up with. What is not given is what the graph
// brings with it, or else made of its other collections when the session is created, after the
// hooks' Begin.
struct Scaffold {
  Operation init_op{};             // initialises kVariables
  std::vector<Feed> init_feeds{};  // of the run of init_op
  // After the init op, and only where that was run.
  std::function<Status(Session&)> init_fn{};
  Output ready_op{};                     // names of variables, local ones too, that have no value
  Output ready_for_local_init_op{};      // the same without local ones
  Operation local_init_op{};             // initialises kLocalVariables, and runs kTableInitializers
  std::vector<Feed> local_init_feeds{};  // of the run of local_init_op
  RunOptions local_init_run{};           // of the run of local_init_op
  Output summary_op{};                   // all of kSummaries; stays as it is if there is none
  // Sharded, of kVariables. Made only if something needs it: a checkpoint directory, or a hook that
  // sets needs_saver.
  std::shared_ptr<Saver> saver{};
  bool needs_saver = false;  // set by hooks before the session is made

  // The error of the graph or of the saver.
  Status Finalize(Graph& graph);
};

// How MonitoredSession::Create brings sessions up and how long it waits.
struct MonitoredSessionOptions {
  SessionOptions session{};              // with the target
  bool is_chief = true;                  // the others wait for the chief
  std::shared_ptr<Scaffold> scaffold{};  // null: all is made of the graph
  std::vector<HookPtr> hooks{};          // called in this order
  // Chief: what is restored, the newest of a directory or this one.
  std::string checkpoint_dir{};
  std::string checkpoint_path{};  // this checkpoint; wins over checkpoint_dir
  bool keep_values = true;        // InitialValues
  // How long threads may take to end when the session is closed.
  std::chrono::milliseconds stop_grace_period{120'000};
  // For the chief, and for tasks that are not there (SessionManagerOptions).
  std::chrono::milliseconds max_wait{1'800'000};
  std::chrono::milliseconds recovery_wait{1'000};  // between two attempts

  // How often in a row, without a step in between, the session is made anew; 0: never.
  int max_recoveries = 5;
  std::function<void(const std::string& reason)> on_wait{};  // when there is a new reason
  std::function<void(const std::string& line)> log{};        // where lines go: the log, if empty
};

class MonitoredSession;

// What a function given to RunStepFn works with.
class StepContext {
 public:
  // Without hooks.
  Session& session() const;
  // With hooks.
  StatusOr<std::vector<Tensor>> RunWithHooks(const SessionRunArgs& args) const;
  // Ends the training: ShouldStop is true from then on. OutOfRange, for the function to return.
  Status RequestStop() const;

 private:
  friend class MonitoredSession;
  explicit StepContext(MonitoredSession& session) : session_(session) {}
  MonitoredSession& session_;
};

// A lost session (Aborted, Unavailable, or a server that was restarted, in a step or in a thread of
// the coordinator) is made anew, hooks are told, and what was run is run again. All other errors
// are the caller's. One thread at a time. The graph must live on.
class MonitoredSession {
 public:
  // Begins the hooks and opens the first session. An error of a hook, of the graph, of initialising
  // (SessionManager), or DeadlineExceeded after max_wait.
  static StatusOr<std::unique_ptr<MonitoredSession>> Create(Graph& graph,
                                                            MonitoredSessionOptions options);
  // Closes without ending the hooks, if Close was not called.
  ~MonitoredSession();

  // One step with hooks: the caller's fetches. FailedPrecondition after a stop and after Close;
  // InvalidArgument if two feed one tensor.
  StatusOr<std::vector<Tensor>> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                    std::span<const Operation> targets = {},
                                    const RunOptions& options = {},
                                    RunMetadata* metadata = nullptr);
  // The same with lists, and default options.
  StatusOr<std::vector<Tensor>> Run(std::initializer_list<Feed> feeds,
                                    std::initializer_list<Output> fetches,
                                    std::initializer_list<Operation> targets = {}) {
    return Run(std::span(feeds.begin(), feeds.size()), std::span(fetches.begin(), fetches.size()),
               std::span(targets.begin(), targets.size()));
  }
  Status RunTargets(std::initializer_list<Operation> targets);  // a step that fetches nothing
  // Several runs as one step: all of it is done again if the session is lost.
  StatusOr<std::vector<Tensor>> RunStepFn(
      const std::function<StatusOr<std::vector<Tensor>>(StepContext&)>& fn);

  // True once a hook, a step function or a thread has asked to stop, and after Close. A session
  // that a thread has found lost is made anew.
  bool ShouldStop();
  // `cause` is why the caller leaves his loop. If it is OK or OutOfRange (the end of the input),
  // the hooks are ended; the first of their errors, or else of the threads, is returned. Any other
  // cause is returned as it is, and hooks are not ended. FailedPrecondition if closed already.
  Status Close(const Status& cause = OkStatus());
  // Calls `step` until a stop or an error, and closes.
  Status RunUntilStop(const std::function<Status()>& step);

  // The session of the moment, without hooks; valid until the next call.
  Session& session();
  int recoveries() const;  // how often the session was made anew

 private:
  friend class StepContext;
  struct Impl;
  explicit MonitoredSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What most programs want: besides the caller's hooks, those that save and report.
struct MonitoredTrainingOptions {
  SessionOptions session{};                 // with the target
  bool is_chief = true;                     // initialises, restores and saves
  std::string checkpoint_dir{};             // "": nothing is restored or saved
  std::shared_ptr<Scaffold> scaffold{};     // null: all is made of the graph
  std::vector<HookPtr> hooks{};             // called in this order
  std::vector<HookPtr> chief_only_hooks{};  // before all others
  // At most one of the two; none: every 600 s. Zero: never.
  std::optional<std::chrono::milliseconds> save_checkpoint_time{};
  std::optional<int64_t> save_checkpoint_steps{};  // global steps
  // At most one of the two; none: every 100 steps. Zero: never.
  std::optional<std::chrono::milliseconds> save_summaries_time{};
  std::optional<int64_t> save_summaries_steps{};  // global steps
  std::string summary_dir{};                      // "": the checkpoint_dir
  bool save_graph_def = true;                     // CheckpointSaverOptions
  int64_t log_step_count_steps = 100;             // 0: never
  int64_t steps_per_run = 1;  // that a run may make (StepsPerRun), for hooks made here
  bool keep_values = true;    // InitialValues
  std::chrono::milliseconds stop_grace_period{120'000};  // MonitoredSessionOptions
  std::chrono::milliseconds max_wait{7'200'000};         // for the chief and lost tasks
  std::chrono::milliseconds recovery_wait{1'000};        // between two attempts
  int max_recoveries = 5;                                // MonitoredSessionOptions
  std::function<void(const std::string& reason)>
      on_wait{};  // called when there is a new reason to wait
  HookIo io{};    // clock and log
};
// The chief's hooks are, in this order: chief_only_hooks, StepCounterHook, SummarySaverHook,
// CheckpointSaverHook, hooks. The others have `hooks` only. InvalidArgument if both of two options
// that exclude each other are given; and what MonitoredSession::Create returns.
StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(
    Graph& graph, const MonitoredTrainingOptions& options);

// One evaluation of a checkpoint, in a session of its own.
struct EvaluateOnceOptions {
  SessionOptions session{};              // with the target
  std::string checkpoint_path{};         // "": what the scaffold initialises
  std::shared_ptr<Scaffold> scaffold{};  // null: all is made of the graph
  std::vector<Operation> eval_ops{};     // run by each step
  std::vector<Feed> feeds{};             // of each step
  std::vector<Output> final_ops{};       // fetched at the end, from the same session
  std::vector<HookPtr> hooks{};          // one of them stops, or the input ends
  HookIo io{};                           // clock and log
};
// The values of `final_ops`. Without eval_ops no step is run before.
StatusOr<std::vector<Tensor>> EvaluateOnce(Graph& graph, const EvaluateOnceOptions& options);

}  // namespace millrace

#endif  // MILLRACE_MONITORED_SESSION_H_
