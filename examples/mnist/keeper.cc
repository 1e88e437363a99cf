// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/keeper.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "examples/mnist/task.h"
#include "millrace/evaluator.h"

namespace millrace::mnist {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{200};
constexpr std::chrono::seconds kPauseAfterFailure{2};    // while training goes on
constexpr std::chrono::milliseconds kPauseInHaste{100};  // while it waits
constexpr char kName[] = "/model.ckpt";

// A task that is coming up forgets, or does not answer yet.
bool MayPass(const Status& status) {
  return errors::IsUnavailable(status) || errors::IsAborted(status);
}

}  // namespace

Keeper::Keeper(const Flags& flags, Graph& graph, Variable global_step, std::unique_ptr<Saver> saver)
    : flags_(flags),
      graph_(graph),
      global_step_(std::move(global_step)),
      saver_(std::move(saver)),
      period_(flags.save_steps) {}

StatusOr<std::unique_ptr<Keeper>> Keeper::Create(const Flags& flags, Graph& graph,
                                                 const Variable& global_step) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Saver> saver, Saver::Create(graph, {.sharded = true}));
  const auto state = RecoverCheckpointState(flags.checkpoint_dir);
  if (state) saver->RecoverLastCheckpoints(state->all_model_checkpoint_paths);
  return std::unique_ptr<Keeper>(new Keeper(flags, graph, global_step, std::move(saver)));
}

bool Keeper::HasCheckpoint() const { return !LatestCheckpoint(flags_.checkpoint_dir).empty(); }

Status Keeper::RestoreIfNeeded(const SupervisedSessionOptions& options) {
  // Waits for the other tasks, and initialises nothing.
  SupervisedSessionOptions waiting;
  waiting.session = options.session;
  waiting.ready_timeout = options.ready_timeout;
  waiting.on_wait = options.on_wait;
  const auto deadline = Clock::now() + options.ready_timeout;
  while (true) {
    const Status status = TryRestore(waiting, options.not_ready);
    if (status.ok() || !MayPass(status) || Clock::now() >= deadline) return status;
    std::this_thread::sleep_for(kPause);
  }
}

Status Keeper::TryRestore(const SupervisedSessionOptions& waiting, const Output& not_ready) {
  MR_ASSIGN_OR_RETURN(const auto session, SupervisedSession::Create(graph_, waiting));
  MR_ASSIGN_OR_RETURN(const Tensor missing, session->session().Eval(not_ready));
  if (missing.num_elements() == 0) return session->Stop();
  MR_RETURN_IF_ERROR(Restore(session->session()).status());
  return session->Stop();
}

int64_t Keeper::NewestStep() const {
  return CheckpointNumber(LatestCheckpoint(flags_.checkpoint_dir)).value_or(0);
}

StatusOr<bool> Keeper::Restore(Session& session) {
  next_try_ = {};  // what the last save failed for may have gone with what was lost
  waived_ = -1;
  const std::string newest = LatestCheckpoint(flags_.checkpoint_dir);
  if (newest.empty()) {
    last_saved_ = 0;
    return false;
  }
  MR_RETURN_IF_ERROR(saver_->Restore(session, newest));
  MR_ASSIGN_OR_RETURN(const Tensor step, session.Eval(global_step_.read));
  last_saved_ = step.scalar<int64_t>();
  std::printf("Worker %d: restored %s (global step: %lld)\n", flags_.task_index, newest.c_str(),
              static_cast<long long>(last_saved_));
  std::fflush(stdout);
  return true;
}

bool Keeper::SaveIfTime(Session& session, int64_t global_step) {
  if (global_step < last_saved_ + period_ || Clock::now() < next_try_) return false;
  return TrySave(session, global_step);
}

bool Keeper::SaveInHaste(Session& session, int64_t global_step) {
  if (Clock::now() < next_try_ - kPauseAfterFailure + kPauseInHaste) return false;
  return TrySave(session, global_step);
}

bool Keeper::TrySave(Session& session, int64_t global_step) {
  const Status status = Save(session);
  if (status.ok()) {
    next_try_ = {};
    return true;
  }
  const auto now = Clock::now();
  next_try_ = now + kPauseAfterFailure;
  if (now >= next_tell_) {
    next_tell_ = next_try_;
    MR_LOG(kWarning, "no checkpoint at global step ", global_step, ": ", Message(status));
  }
  return false;
}

void Keeper::AwaitSave(Session& session, int64_t global_step) {
  if (global_step < last_saved_ + flags_.save_steps || waived_ == last_saved_) return;
  const std::chrono::milliseconds limit = std::chrono::seconds(flags_.ready_timeout);
  const auto give_up = Clock::now() + limit / 2;
  for (bool told = false; StopSignal() == 0;) {
    if (SaveInHaste(session, global_step)) return;
    // With a task that is lost the next step ends as well, and tells so.
    if (!session.Eval(global_step_.read).ok()) return;
    if (Clock::now() >= give_up) break;
    if (!told) TellOfWait(last_saved_, limit / 2);
    told = true;
    std::this_thread::sleep_for(kPauseInHaste);
  }
  if (StopSignal() != 0) return;
  waived_ = last_saved_;
  TellOfWaiver(last_saved_, limit / 2);
}

void Keeper::TellOfWait(int64_t saved, std::chrono::milliseconds limit) {
  MR_LOG(
      kWarning, "training waits, for at most ", limit.count(),
      " ms (--ready_timeout), until a checkpoint can be written: the last one is of global step ",
      saved, ", and no more than --save_steps shall be lost");
}

void Keeper::TellOfWaiver(int64_t saved, std::chrono::milliseconds limit) {
  MR_LOG(kWarning, "no checkpoint could be written for ", limit.count(),
         " ms (--ready_timeout); training goes on from what is saved of global step ", saved,
         ", and more than --save_steps may be lost until one can: is there room in "
         "--checkpoint_dir, and may the parameter servers write there?");
}

Status Keeper::Save(Session& session) {
  MR_ASSIGN_OR_RETURN(const Tensor step, session.Eval(global_step_.read));
  const int64_t global_step = step.scalar<int64_t>();
  MR_ASSIGN_OR_RETURN(const std::string prefix, saver_->Save(session, flags_.checkpoint_dir + kName,
                                                             {.global_step = global_step}));
  last_saved_ = global_step;
  std::printf("Worker %d: saved %s\n", flags_.task_index, prefix.c_str());
  std::fflush(stdout);
  return OkStatus();
}

}  // namespace millrace::mnist
