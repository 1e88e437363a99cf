// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <optional>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/hooks.h"
#include "millrace/variables.h"
#include "training/hooks/hook_support.h"
#include "training/hooks/update_gate.h"
#include "training/sync_tokens.h"

namespace millrace {
namespace {

class SyncReplicasDriver : public SessionRunHook {
 public:
  SyncReplicasDriver(const SyncReplicas& sync, bool is_chief, int num_tokens)
      : sync_(&sync), is_chief_(is_chief), num_tokens_(num_tokens) {}

  Status Begin(Graph& graph) override {
    MR_ASSIGN_OR_RETURN(local_init_,
                        is_chief_ ? sync_->chief_init_op() : sync_->local_step_init_op());
    const Scope root = graph.root();
    not_ready_ = ReportUninitializedVariables(root);
    if (is_chief_) {
      MR_ASSIGN_OR_RETURN(init_tokens_, sync_->InitTokensOp(root, num_tokens_));
    }
    MR_ASSIGN_OR_RETURN(apply_, sync_->chief_queue_op());
    step_after_ = apply_.input(1).op().input(1);
    gate_ = UpdateGate::Of(graph);
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "SyncReplicasHook"));
    SyncOps ops;
    ops.apply = apply_;
    MR_ASSIGN_OR_RETURN(ops.local_init, sync_->local_step_init_op());
    MR_ASSIGN_OR_RETURN(ops.chief_init, sync_->chief_init_op());
    return tokens_->Build(graph, ops);
  }

  Status AfterCreateSession(Session& session, Coordinator& coordinator) override {
    MR_ASSIGN_OR_RETURN(const Tensor missing, session.Eval(not_ready_));
    MR_ASSIGN_OR_RETURN(const auto names, missing.TryFlat<std::string>());
    if (!names.empty()) {
      return errors::FailedPrecondition(
          "Init operations did not make model ready for local_init: SyncReplicasHook starts from "
          "the global step, and these have no value: ",
          StrJoin(names, ", "));
    }
    if (!is_chief_) {
      MR_RETURN_IF_ERROR(tokens_->Follow(session, kSyncChiefWait));
      return session.RunTargets({local_init_});
    }
    MR_RETURN_IF_ERROR(tokens_->Lead(session, local_init_, init_tokens_, num_tokens_ != 0));
    // Nothing is applied yet: the local step is the same.
    MR_ASSIGN_OR_RETURN(const int64_t begin, hooks::ReadStep(session, global_step_));
    gate_->StartSession([tokens = tokens_](Session& s) { return tokens->IsEachNeeded(s); }, begin);
    is_unfinished_ = false;
    return coordinator.StartThread("sync_replicas", [this, &session] { return Apply(session); });
  }

  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext& context) override {
    const SessionRunArgs& asked = context.original_args();
    takes_token_ = tokens_->AreTakenBy(asked.fetches, asked.targets);
    if (is_chief_ && takes_token_) {
      if (is_unfinished_) {
        MR_ASSIGN_OR_RETURN(const int64_t step,
                            hooks::ReadStep(context.session(), tokens_->fetches()[1]));
        gate_->SetLocalStep(step);
      }
      is_unfinished_ = true;
      gate_->Push();
    }
    return takes_token_ ? SessionRunArgs{.fetches = tokens_->fetches()} : SessionRunArgs();
  }

  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    if (!takes_token_) return OkStatus();
    MR_ASSIGN_OR_RETURN(const std::optional<int64_t> next,
                        tokens_->Own(context.session(), values.results, values.options.timeout));
    if (!is_chief_ || !next) return OkStatus();
    gate_->SetLocalStep(*next);
    is_unfinished_ = false;
    return OkStatus();
  }

  // Who goes first leaves tokens to the others. The chief needs one as well: where its gradient is
  // too old to be counted, no update comes of what it alone has pushed.
  Status End(Session& session) override {
    if (is_chief_) MR_RETURN_IF_ERROR(tokens_->Resign(session));
    const Status freed = tokens_->Leave(session);
    return is_chief_ ? freed : OkStatus();  // the others may be gone already, with the ps
  }

 private:
  // Until the session is closed, which cancels what waits.
  Status Apply(Session& session) {
    // However long the workers take for their gradients.
    const RunOptions forever{.timeout = std::chrono::hours(24 * 365)};
    while (true) {
      gate_->BeginUpdate();
      const auto after =
          session.Run({}, std::span(&step_after_, 1), std::span(&apply_, 1), forever);
      const StatusOr<int64_t> step = after.ok() ? hooks::StepIn(after->front()) : after.status();
      gate_->EndUpdate(step.ok() ? *step : -1);
      MR_RETURN_IF_ERROR(step.status());
    }
  }

  const SyncReplicas* const sync_;
  const bool is_chief_;
  const int num_tokens_;
  Output not_ready_;
  Operation local_init_, init_tokens_, apply_;
  Output global_step_, step_after_;  // step_after_: an update
  std::shared_ptr<UpdateGate> gate_;
  const std::shared_ptr<SyncTokens> tokens_ = std::make_shared<SyncTokens>();
  bool takes_token_ = false;    // the step under way
  bool is_unfinished_ = false;  // it, or the one before: the local step may have changed
};

}  // namespace

HookPtr SyncReplicasHook(const SyncReplicas& sync, bool is_chief, int num_tokens) {
  return std::make_shared<SyncReplicasDriver>(sync, is_chief, num_tokens);
}

}  // namespace millrace
