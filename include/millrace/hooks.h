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

namespace millrace {

class EventWriter;
class Saver;
struct Scaffold;

// What a step computes for one of those that have a share in it.
struct SessionRunArgs {
  std::vector<Output> fetches{};
  std::vector<Operation> targets{};
  std::vector<Feed> feeds{};  // no two of them, and not the caller's, may feed one tensor
  // Of all that are asked for, the step gets the longest timeout, the highest pool, and each flag
  // that anybody sets.
  RunOptions options{};
};

struct SessionRunValues {
  std::span<const Tensor> results;  // of the hook's own fetches, in their order
  const RunOptions& options;        // of the step
  const RunMetadata& metadata;
};

// One step, as hooks see it.
class SessionRunContext {
 public:
  SessionRunContext(const SessionRunArgs& original, Session& session)
      : original_(original), session_(session) {}
  const SessionRunArgs& original_args() const { return original_; }  // the caller's
  // For what a hook runs itself, without hooks.
  Session& session() const { return session_; }
  bool stop_requested() const { return stop_requested_; }
  // Ends the training loop after this step: MonitoredSession::ShouldStop is true from then on.
  void RequestStop() { stop_requested_ = true; }

 private:
  const SessionRunArgs& original_;
  Session& session_;
  bool stop_requested_ = false;
};

class SessionRunHook {
 public:
  virtual ~SessionRunHook() = default;
  virtual Status Begin(Graph& /*graph*/) { return OkStatus(); }
  // `coordinator` stops when the session ends; threads that are started with it may use the session
  // until then.
  virtual Status AfterCreateSession(Session& /*session*/, Coordinator& /*coordinator*/) {
    return OkStatus();
  }
  virtual StatusOr<SessionRunArgs> BeforeRun(SessionRunContext& /*context*/) {
    return SessionRunArgs();
  }
  virtual Status AfterRun(SessionRunContext& /*context*/, const SessionRunValues& /*values*/) {
    return OkStatus();
  }
  virtual Status End(Session& /*session*/) { return OkStatus(); }
};
using HookPtr = std::shared_ptr<SessionRunHook>;

// Where hooks take the time from and where their lines go: a steady clock in nanoseconds and the
// log, unless a test gives others.
struct HookIo {
  std::function<int64_t()> now{};
  std::function<void(const std::string&)> log{};
};

// How often something happens: every so many steps, or after so much time. Exactly one is set.
struct Every {
  int64_t steps = 0;
  std::chrono::milliseconds time{0};
};

// Says at which steps it is time. The first step that it is asked about always is; none is twice.
// Not synchronised.
class StepTimer {
 public:
  // InvalidArgument unless exactly one of the two is positive.
  static StatusOr<StepTimer> Create(const Every& every, HookIo io = {});
  bool ShouldTrigger(int64_t step) const;
  struct Elapsed {
    double seconds = 0;
    int64_t steps = 0;
  };
  // What has passed since the update before; nothing at the first.
  std::optional<Elapsed> Update(int64_t step);
  std::optional<int64_t> last_step() const { return last_step_; }
  void Reset() { last_step_.reset(); }

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

// Stops after `num_steps` more steps than there were in the first session, or at step `last_step`
// whoever made it. Exactly one is set.
struct StopAtStepOptions {
  int64_t num_steps = 0;
  int64_t last_step = 0;
};
HookPtr StopAtStepHook(const StopAtStepOptions& options);

// Told of checkpoints.
class CheckpointSaverListener {
 public:
  virtual ~CheckpointSaverListener() = default;
  virtual Status Begin() { return OkStatus(); }
  virtual Status BeforeSave(Session& /*session*/, int64_t /*step*/) { return OkStatus(); }
  // True: training stops after this step.
  virtual StatusOr<bool> AfterSave(Session& /*session*/, int64_t /*step*/) { return false; }
  virtual Status End(Session& /*session*/, int64_t /*step*/) { return OkStatus(); }
};

// Saves "<checkpoint_dir>/<basename>-<step>" whenever there is a session, then every so often, and
// at the end if the step has grown since. Writes the graph to graph.pbtxt and into the event file
// of the directory.
struct CheckpointSaverOptions {
  std::string checkpoint_dir{};  // made if it is not there
  Every every{};
  // One of them; the scaffold's saver is made when the session is.
  std::shared_ptr<Saver> saver{};
  std::shared_ptr<Scaffold> scaffold{};
  std::string basename = "model.ckpt";
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners{};
  bool save_graph_def = true;  // graph.pbtxt and, with each checkpoint, its .meta
  HookIo io{};
};
HookPtr CheckpointSaverHook(const CheckpointSaverOptions& options);

// Logs "global_step/sec: 12.5", and writes the number to the event file of the directory.
struct StepCounterOptions {
  Every every{.steps = 100};
  std::string output_dir{};                       // "": no file
  std::shared_ptr<EventWriter> summary_writer{};  // instead of a directory
  HookIo io{};
};
HookPtr StepCounterHook(const StepCounterOptions& options);

// Logs "loss = 0.5, step = 100 (3.000 sec)".
struct LoggingTensorOptions {
  std::vector<std::pair<std::string, Output>> tensors{};  // with the names that they are given
  Every every{};                                          // counts runs; none if `at_end` is set
  bool at_end = false;
  std::function<std::string(std::span<const Tensor>)> formatter{};  // the whole line
  HookIo io{};
};
HookPtr LoggingTensorHook(const LoggingTensorOptions& options);

// When the loss is NaN: InvalidArgument "NaN loss during training.", or a stop.
struct NanTensorOptions {
  bool fail_on_nan_loss = true;
  HookIo io{};
};
HookPtr NanTensorHook(const Output& loss, const NanTensorOptions& options = {});

// Writes what summary ops yield (serialized Summary messages) into the event file of the directory;
// the first step always.
struct SummarySaverOptions {
  std::string output_dir{};
  std::shared_ptr<EventWriter> summary_writer{};  // instead of a directory
  Every every{};
  // One of them; of the scaffold it is the summary op, if there is one.
  std::vector<Output> summary_ops{};
  std::shared_ptr<Scaffold> scaffold{};
  HookIo io{};
};
HookPtr SummarySaverHook(const SummarySaverOptions& options);

// Fetches something at the end.
class FinalOpsHook : public SessionRunHook {
 public:
  explicit FinalOpsHook(SessionRunArgs final_ops) : final_ops_(std::move(final_ops)) {}
  const std::vector<Tensor>& values() const { return values_; }  // after the end
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
  int64_t wait_until_step = 0;
  std::chrono::milliseconds poll{500};
  HookIo io{};
};
HookPtr GlobalStepWaiterHook(const GlobalStepWaiterOptions& options);

// Every so often a step over time, "timeline-<step>.json" for chrome://tracing and
// ui.perfetto.dev, and the step's statistics in the event file. Never the first step.
struct ProfilerOptions {
  std::string output_dir{};
  Every every{};
  bool show_dataflow = true;  // arrows from each op to those that use its values
  bool show_memory = true;    // how many bytes the step's tensors take
  HookIo io{};
};
HookPtr ProfilerHook(const ProfilerOptions& options);

// Of an evaluation: stops after `num_evals` steps, which it counts in the local variable
// "eval_step", and logs "Evaluation [2/20]" (each tenth part, or each step of fewer than 20).
// InvalidArgument of Begin if `num_evals` is not positive.
struct StopAfterNEvalsOptions {
  int64_t num_evals = 0;
  bool log_progress = true;
  HookIo io{};
};
HookPtr StopAfterNEvalsHook(const StopAfterNEvalsOptions& options);

// Drives synchronous replicas: local steps begin at the global step; on the chief the first tokens
// are given out and a thread applies the gradients as they come together. At its end the chief
// frees the workers that wait for a token. `sync`, whose gradients have been applied, is used until
// Begin returns; `num_tokens` as for InitTokensOp.
HookPtr SyncReplicasHook(const SyncReplicas& sync, bool is_chief, int num_tokens = -1);

}  // namespace millrace

#endif  // MILLRACE_HOOKS_H_
