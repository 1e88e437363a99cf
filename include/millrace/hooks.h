// SPDX-License-Identifier: Apache-2.0
// Hooks: what goes on beside the steps of a monitored session (millrace/monitored_session.h).
//
//   Begin                  once, before there is a session: the place to add nodes
//   AfterCreateSession     for every session: the first, and each that replaces a lost one
//   BeforeRun, AfterRun    around every step
//   End                    once, with the last session still open; not after a failure
//
// Every call goes to the hooks in the order in which they are listed. An error that a hook returns
// (or an exception that it throws) is the error of the call that led to it; Aborted and Unavailable
// make the session anew, as if a task had been lost. All calls come from the thread that uses the
// monitored session.
#ifndef MILLRACE_HOOKS_H_
#define MILLRACE_HOOKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/coordinator.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/sync_replicas.h"
#include "millrace/variables.h"

namespace millrace {

class EventWriter;
class Saver;
struct Scaffold;

// What a step computes for one of those that have a share in it.
struct SessionRunArgs {
  std::vector<Output> fetches{};     // values come back in this order
  std::vector<Operation> targets{};  // run without a value
  std::vector<Feed> feeds{};         // no two of them, and not the caller's, may feed one tensor
  // Of all that are asked for, the step gets the longest timeout, the highest pool, and each flag
  // that anybody sets.
  RunOptions options{};
};

// Results of a step for one hook, in AfterRun; valid during that call.
struct SessionRunValues {
  std::span<const Tensor> results;  // of the hook's own fetches, in their order
  const RunOptions& options;        // of the step
  const RunMetadata& metadata;      // of the whole step
};

// One step, as hooks see it.
class SessionRunContext {
 public:
  // Both are kept by reference and must outlive this.
  SessionRunContext(const SessionRunArgs& original, Session& session)
      : original_(original), session_(session) {}
  const SessionRunArgs& original_args() const { return original_; }  // the caller's
  // For what a hook runs itself, without hooks.
  Session& session() const { return session_; }
  bool stop_requested() const { return stop_requested_; }  // by any hook in this step
  // Ends the training loop after this step: MonitoredSession::ShouldStop is true from then on.
  void RequestStop() { stop_requested_ = true; }

 private:
  const SessionRunArgs& original_;
  Session& session_;
  bool stop_requested_ = false;
};

// Base class of hooks: every call does nothing and succeeds unless it is overridden.
class SessionRunHook {
 public:
  virtual ~SessionRunHook() = default;
  // Called once, before the first session: nodes may be added.
  virtual Status Begin(Graph& /*graph*/) { return OkStatus(); }
  // `coordinator` stops when the session ends; threads that are started with it may use the session
  // until then.
  virtual Status AfterCreateSession(Session& /*session*/, Coordinator& /*coordinator*/) {
    return OkStatus();
  }
  // Additions to the step that is about to run: fetches, targets, feeds and options.
  virtual StatusOr<SessionRunArgs> BeforeRun(SessionRunContext& /*context*/) {
    return SessionRunArgs();
  }
  // Called after the step, with what BeforeRun asked for.
  virtual Status AfterRun(SessionRunContext& /*context*/, const SessionRunValues& /*values*/) {
    return OkStatus();
  }
  // Called once when training ends without a failure, with the last session still open.
  virtual Status End(Session& /*session*/) { return OkStatus(); }
};
using HookPtr = std::shared_ptr<SessionRunHook>;  // what options take hooks as

// Where hooks take the time from and where their lines go: a steady clock in nanoseconds and the
// log, unless a test gives others.
struct HookIo {
  std::function<int64_t()> now{};                 // nanoseconds; empty: a steady clock
  std::function<void(const std::string&)> log{};  // one line without its end; empty: the log
};

// How often something happens: every so many steps, or after so much time. Exactly one is set.
struct Every {
  int64_t steps = 0;                  // since the last time; 0: by time
  std::chrono::milliseconds time{0};  // since the last time it happened
};

// Says at which steps it is time. The first step that it is asked about always is; none is twice.
// Not synchronised.
class StepTimer {
 public:
  // InvalidArgument unless exactly one of the two is positive.
  static StatusOr<StepTimer> Create(const Every& every, HookIo io = {});
  // Whether it is time at this step; changes nothing, Update does.
  bool ShouldTrigger(int64_t step) const;
  // Difference of two updates.
  struct Elapsed {
    double seconds = 0;  // by the clock
    int64_t steps = 0;   // of the two updates
  };
  // What has passed since the update before; nothing at the first.
  std::optional<Elapsed> Update(int64_t step);
  std::optional<int64_t> last_step() const { return last_step_; }  // of Update; empty: none yet
  void Reset() { last_step_.reset(); }  // the next step that is asked about is due again

 private:
  StepTimer(const Every& every, HookIo io) : every_(every), io_(std::move(io)) {}
  int64_t Now() const;
  Every every_;
  HookIo io_;
  std::optional<int64_t> last_step_;
  int64_t last_time_ = 0;
};

// The stock hooks. Options that cannot be, and a graph without the global step that a hook counts
// by, are InvalidArgument and FailedPrecondition of Begin. Steps are global steps.

// How many steps a run makes in which a loop trains: a local int32 scalar, 1 at first, that such a
// loop reads ("hooks/steps_per_run"). The one that the graph has already, if any.
Variable StepsPerRun(const Scope& scope);

// Stops after `num_steps` more steps than there were in the first session, or at step `last_step`
// whoever made it. Exactly one is set.
struct StopAtStepOptions {
  int64_t num_steps = 0;  // more than the first session began with
  int64_t last_step = 0;  // a global step
  // More than 1: before each run StepsPerRun is set to as many steps, or to what is left.
  int64_t steps_per_run = 1;
};
// Hook with these options; any number of them may stop one session.
HookPtr StopAtStepHook(const StopAtStepOptions& options);

// Told of checkpoints.
class CheckpointSaverListener {
 public:
  virtual ~CheckpointSaverListener() = default;
  virtual Status Begin() { return OkStatus(); }  // in Begin of the saving hook
  // Called just before the checkpoint of this global step is written.
  virtual Status BeforeSave(Session& /*session*/, int64_t /*step*/) { return OkStatus(); }
  // True: training stops after this step.
  virtual StatusOr<bool> AfterSave(Session& /*session*/, int64_t /*step*/) { return false; }
  // Called in End of the saving hook, after its last checkpoint, with the last global step.
  virtual Status End(Session& /*session*/, int64_t /*step*/) { return OkStatus(); }
};

// Saves "<checkpoint_dir>/<basename>-<step>" whenever there is a session, then every so often, and
// at the end if the step has grown since. Writes the graph to graph.pbtxt and into the event file
// of the directory.
struct CheckpointSaverOptions {
  std::string checkpoint_dir{};  // made if it is not there
  Every every{};                 // between two times, counted in global steps or time
  // One of them; the scaffold's saver is made when the session is.
  std::shared_ptr<Saver> saver{};
  std::shared_ptr<Scaffold> scaffold{};  // source of what is not given above
  std::string basename = "model.ckpt";   // file name in front of "-<step>"
  // Told of each checkpoint, in this order.
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners{};
  bool save_graph_def = true;  // graph.pbtxt and, with each checkpoint, its .meta
  int64_t steps_per_run = 1;   // that a run may make (StepsPerRun)
  HookIo io{};                 // clock and log of this hook
};
// Hook of the chief that saves by these options.
HookPtr CheckpointSaverHook(const CheckpointSaverOptions& options);

// Logs "global_step/sec: 12.5", and writes the number to the event file of the directory.
struct StepCounterOptions {
  Every every{.steps = 100};                      // between two measurements
  std::string output_dir{};                       // "": no file
  std::shared_ptr<EventWriter> summary_writer{};  // instead of a directory
  int64_t steps_per_run = 1;                      // that a run may make (StepsPerRun)
  HookIo io{};                                    // clock and log of this hook
};
// Hook that measures the global steps of all workers.
HookPtr StepCounterHook(const StepCounterOptions& options);

// Logs "loss = 0.5, step = 100 (3.000 sec)".
struct LoggingTensorOptions {
  std::vector<std::pair<std::string, Output>> tensors{};  // with the names that they are given
  Every every{};                                          // counts runs; none if `at_end` is set
  bool at_end = false;                                    // values once more when training ends
  std::function<std::string(std::span<const Tensor>)> formatter{};  // the whole line
  HookIo io{};                                                      // clock and log of this hook
};
// Hook that fetches the tensors only in the steps that are logged.
HookPtr LoggingTensorHook(const LoggingTensorOptions& options);

// When the loss is NaN: InvalidArgument "NaN loss during training.", or a stop.
struct NanTensorOptions {
  bool fail_on_nan_loss = true;  // false: training stops without an error
  HookIo io{};                   // clock and log of this hook
};
// Hook that looks at the loss, a float scalar, after every step.
HookPtr NanTensorHook(const Output& loss, const NanTensorOptions& options = {});

// Writes what summary ops yield (serialized Summary messages) into the event file of the directory;
// the first step always.
struct SummarySaverOptions {
  std::string output_dir{};                       // directory of the event file
  std::shared_ptr<EventWriter> summary_writer{};  // instead of a directory
  Every every{};  // between two times, counted in global steps or time
  // One of them; of the scaffold it is the summary op, if there is one.
  std::vector<Output> summary_ops{};
  std::shared_ptr<Scaffold> scaffold{};  // source of what is not given above
  HookIo io{};                           // clock and log of this hook
};
// Hook that runs summary ops only in the steps that it writes.
HookPtr SummarySaverHook(const SummarySaverOptions& options);

// Fetches something at the end.
class FinalOpsHook : public SessionRunHook {
 public:
  // Fetches, feeds, targets and options of the run in End.
  explicit FinalOpsHook(SessionRunArgs final_ops) : final_ops_(std::move(final_ops)) {}
  const std::vector<Tensor>& values() const { return values_; }  // after the end
  // Runs them outside of steps; OutOfRange, with an explanation, if they read input that is
  // over.
  Status End(Session& session) override;

 private:
  const SessionRunArgs final_ops_;
  std::vector<Tensor> values_;
};

// What it returns is fed in each step.
HookPtr FeedFnHook(std::function<StatusOr<std::vector<Feed>>()> feed_fn);

// Holds the first step of a worker back until the others have come to a step: workers that begin
// one after the other disturb each other less.
struct GlobalStepWaiterOptions {
  int64_t wait_until_step = 0;          // global step at which the wait is over
  std::chrono::milliseconds poll{500};  // between two looks at the global step
  HookIo io{};                          // clock and log of this hook
};
// Hook that waits in BeforeRun of a worker's first step.
HookPtr GlobalStepWaiterHook(const GlobalStepWaiterOptions& options);

// Every so often a step over time, "timeline-<step>.json" for chrome://tracing and
// ui.perfetto.dev, and the step's statistics in the event file. Never the first step.
struct ProfilerOptions {
  std::string output_dir{};   // directory of the event file
  Every every{};              // between two times, counted in global steps or time
  bool show_dataflow = true;  // arrows from each op to those that use its values
  bool show_memory = true;    // how many bytes the step's tensors take
  HookIo io{};                // clock and log of this hook
};
// Hook that traces the steps whose turn it is.
HookPtr ProfilerHook(const ProfilerOptions& options);

// Of an evaluation: stops after `num_evals` steps, which it counts in the local variable
// "eval_step", and logs "Evaluation [2/20]" (each tenth part, or each step of fewer than 20; each
// run where it makes several). InvalidArgument of Begin if `num_evals` is not positive.
struct StopAfterNEvalsOptions {
  int64_t num_evals = 0;     // steps of the evaluation
  bool log_progress = true;  // the "Evaluation [2/20]" lines
  // More than 1: before each run StepsPerRun is set to as many steps, or to what is left; the run
  // must make so many, which are counted.
  int64_t steps_per_run = 1;
  HookIo io{};  // clock and log of this hook
};
// Hook for EvaluateOnce and the like.
HookPtr StopAfterNEvalsHook(const StopAfterNEvalsOptions& options);

// Drives synchronous replicas: local steps begin at the global step; on the chief the first tokens
// are given out and a thread applies the gradients as they come together. At its end the chief
// frees the workers that wait for a token. `sync`, whose gradients have been applied, is used until
// Begin returns; `num_tokens` as for InitTokensOp.
HookPtr SyncReplicasHook(const SyncReplicas& sync, bool is_chief, int num_tokens = -1);

}  // namespace millrace

#endif  // MILLRACE_HOOKS_H_
