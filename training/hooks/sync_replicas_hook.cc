// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/hooks.h"
#include "millrace/variables.h"
#include "training/hooks/hook_support.h"
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
    MR_RETURN_IF_ERROR(hooks::GlobalStepOf(graph, "SyncReplicasHook").status());
    SyncOps ops;
    ops.apply = apply_;
    MR_ASSIGN_OR_RETURN(ops.local_init, sync_->local_step_init_op());
    MR_ASSIGN_OR_RETURN(ops.chief_init, sync_->chief_init_op());
    return tokens_.Build(graph, ops);
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
      MR_RETURN_IF_ERROR(tokens_.Follow(session, kSyncChiefWait));
      return session.RunTargets({local_init_});
    }
    MR_RETURN_IF_ERROR(tokens_.Lead(session, local_init_, init_tokens_, num_tokens_ != 0));
    return coordinator.StartThread("sync_replicas", [this, &session] { return Apply(session); });
  }

  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext& context) override {
    const SessionRunArgs& asked = context.original_args();
    takes_token_ = tokens_.AreTakenBy(asked.fetches, asked.targets);
    return takes_token_ ? SessionRunArgs{.fetches = tokens_.fetches()} : SessionRunArgs();
  }

  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    if (!takes_token_) return OkStatus();
    return tokens_.Own(context.session(), values.results, values.options.timeout).status();
  }

  // Who goes first leaves tokens to the others. The chief needs one as well: where its gradient is
  // too old to be counted, no update comes of what it alone has pushed.
  Status End(Session& session) override {
    if (is_chief_) MR_RETURN_IF_ERROR(tokens_.Resign(session));
    const Status freed = tokens_.Leave(session);
    return is_chief_ ? freed : OkStatus();  // the others may be gone already, with the ps
  }

 private:
  // Until the session is closed, which cancels what waits.
  Status Apply(Session& session) {
    // However long the workers take for their gradients.
    const RunOptions forever{.timeout = std::chrono::hours(24 * 365)};
    while (true) {
      MR_RETURN_IF_ERROR(session.Run({}, {}, std::span(&apply_, 1), forever).status());
    }
  }

  const SyncReplicas* const sync_;
  const bool is_chief_;
  const int num_tokens_;
  Output not_ready_;
  Operation local_init_, init_tokens_, apply_;
  SyncTokens tokens_;
  bool takes_token_ = false;  // the step under way
};

}  // namespace

HookPtr SyncReplicasHook(const SyncReplicas& sync, bool is_chief, int num_tokens) {
  return std::make_shared<SyncReplicasDriver>(sync, is_chief, num_tokens);
}

}  // namespace millrace
