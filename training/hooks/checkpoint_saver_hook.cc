// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/hooks.h"
#include "millrace/monitored_session.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "training/hooks/hook_support.h"
#include "training/hooks/update_gate.h"

namespace millrace {
namespace {

// No update of synchronous replicas comes from Begin to End.
class BetweenUpdates {
 public:
  explicit BetweenUpdates(UpdateGate* gate) : gate_(gate->IsUsed() ? gate : nullptr) {}
  ~BetweenUpdates() { End(); }
  BetweenUpdates(const BetweenUpdates&) = delete;
  BetweenUpdates& operator=(const BetweenUpdates&) = delete;

  // Then the global step, which was `step`, may be another one.
  Status Begin(Session& session, const Output& global_step, int64_t* step) {
    if (gate_ == nullptr) return OkStatus();
    is_held_ = true;
    MR_ASSIGN_OR_RETURN(const bool is_sure, gate_->Hold(session));
    MR_ASSIGN_OR_RETURN(*step, hooks::ReadStep(session, global_step));
    if (!is_sure) {
      MR_LOG(kWarning, "the checkpoint of step ", *step,
             " is saved while gradients of synchronous workers wait for others: if these come "
             "meanwhile, it has variables of two steps");
    }
    return OkStatus();
  }
  void End() {
    if (is_held_) gate_->Release();
    is_held_ = false;
  }

 private:
  UpdateGate* const gate_;  // null: there are none
  bool is_held_ = false;
};

class CheckpointSaver : public SessionRunHook {
 public:
  explicit CheckpointSaver(const CheckpointSaverOptions& options)
      : options_(options), prefix_(StrCat(options.checkpoint_dir, "/", options.basename)) {
    hooks::Log(options_.io, "Create CheckpointSaverHook.");
  }

  Status Begin(Graph& graph) override {
    if (options_.checkpoint_dir.empty()) {
      return errors::InvalidArgument("CheckpointSaverHook was given no checkpoint_dir");
    }
    if ((options_.saver == nullptr) == (options_.scaffold == nullptr)) {
      return errors::InvalidArgument(
          "CheckpointSaverHook: exactly one of saver and scaffold must be given");
    }
    MR_RETURN_IF_ERROR(hooks::CheckStepsPerRun("CheckpointSaverHook", options_.steps_per_run));
    graph_ = &graph;
    gate_ = UpdateGate::Of(graph);
    if (options_.scaffold) options_.scaffold->needs_saver = true;
    MR_ASSIGN_OR_RETURN(timer_, StepTimer::Create(options_.every, options_.io));
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "CheckpointSaverHook"));
    MR_RETURN_IF_ERROR(PosixFileSystem()->CreateDirectories(options_.checkpoint_dir));
    MR_ASSIGN_OR_RETURN(events_, hooks::EventWriterFor(options_.checkpoint_dir, graph));
    for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->Begin());
    return OkStatus();
  }
  Status AfterCreateSession(Session& session, Coordinator&) override {
    MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(session, global_step_));
    if (options_.save_graph_def) {
      MR_RETURN_IF_ERROR(hooks::WriteGraphText(options_.checkpoint_dir, *graph_));
    }
    MR_RETURN_IF_ERROR(hooks::WriteGraphEvents(*events_, *graph_, UsedSaver()));
    // Nothing is applied yet in this session.
    BetweenUpdates no_matter(gate_.get());
    MR_RETURN_IF_ERROR(Save(session, step, no_matter).status());
    timer_->Update(step);
    return OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    return SessionRunArgs{.fetches = {global_step_}};
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    if (PreemptionSignal() != 0 && !noticed_) {
      noticed_ = true;
      hooks::Log(options_.io, "This process is to end: saving, and stopping the training.");
      MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(context.session(), global_step_));
      context.RequestStop();
      MR_RETURN_IF_ERROR(SaveNow(context.session(), step).status());
      return UsedSaver()->Sync();
    }
    MR_ASSIGN_OR_RETURN(const int64_t before, hooks::StepIn(values.results[0]));
    if (!timer_->ShouldTrigger(before + options_.steps_per_run)) return OkStatus();
    MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(context.session(), global_step_));
    if (!timer_->ShouldTrigger(step)) return OkStatus();
    MR_ASSIGN_OR_RETURN(const bool stop, SaveNow(context.session(), step));
    if (stop) context.RequestStop();
    return OkStatus();
  }
  Status End(Session& session) override {
    MR_ASSIGN_OR_RETURN(int64_t step, hooks::ReadStep(session, global_step_));
    BetweenUpdates between(gate_.get());
    MR_RETURN_IF_ERROR(between.Begin(session, global_step_, &step));
    if (timer_->last_step() != step) MR_RETURN_IF_ERROR(Save(session, step, between).status());
    // What is written aside has its values from the session, which is closed next.
    if (Saver* const saver = UsedSaver(); saver != nullptr) MR_RETURN_IF_ERROR(saver->Sync());
    for (const auto& listener : options_.listeners) {
      MR_RETURN_IF_ERROR(listener->End(session, step));
    }
    return events_->Flush();
  }

 private:
  // Null if the scaffold has none.
  Saver* UsedSaver() const {
    return options_.saver ? options_.saver.get() : options_.scaffold->saver.get();
  }
  StatusOr<bool> SaveNow(Session& session, int64_t step) {
    BetweenUpdates between(gate_.get());
    MR_RETURN_IF_ERROR(between.Begin(session, global_step_, &step));
    timer_->Update(step);
    return Save(session, step, between);
  }
  // True if a listener asks to stop. Ends `between` when it has the values.
  StatusOr<bool> Save(Session& session, int64_t step, BetweenUpdates& between) {
    Saver* const saver = UsedSaver();
    if (saver == nullptr) {
      return errors::FailedPrecondition(
          "CheckpointSaverHook: the scaffold has no saver; is it the monitored session's?");
    }
    hooks::Log(options_.io,
               StrCat("Calling checkpoint listeners before saving checkpoint ", step, "..."));
    for (const auto& listener : options_.listeners) {
      MR_RETURN_IF_ERROR(listener->BeforeSave(session, step));
    }
    hooks::Log(options_.io, StrCat("Saving checkpoints for ", step, " into ", prefix_, "."));
    SaveOptions save;
    save.global_step = step;
    save.write_meta_graph = options_.save_graph_def;
    MR_RETURN_IF_ERROR(saver->Save(session, prefix_, save).status());
    between.End();
    MR_RETURN_IF_ERROR(events_->WriteSessionCheckpoint(prefix_, step));
    hooks::Log(options_.io,
               StrCat("Calling checkpoint listeners after saving checkpoint ", step, "..."));
    bool stop = false;
    for (const auto& listener : options_.listeners) {
      MR_ASSIGN_OR_RETURN(const bool asks, listener->AfterSave(session, step));
      if (!asks) continue;
      hooks::Log(options_.io, "A CheckpointSaverListener requested that training be stopped.");
      stop = true;
    }
    return stop;
  }

  const CheckpointSaverOptions options_;
  const std::string prefix_;
  Graph* graph_ = nullptr;  // outlives the monitored session
  std::optional<StepTimer> timer_;
  bool noticed_ = false;  // that the process is to end
  Output global_step_;
  std::shared_ptr<EventWriter> events_;
  std::shared_ptr<UpdateGate> gate_;
};

}  // namespace

HookPtr CheckpointSaverHook(const CheckpointSaverOptions& options) {
  return std::make_shared<CheckpointSaver>(options);
}

}  // namespace millrace
