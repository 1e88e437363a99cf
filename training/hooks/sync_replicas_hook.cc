// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/hooks.h"
#include "millrace/variables.h"
#include "training/hooks/hook_support.h"

namespace millrace {
namespace {

// Tokens that free the others at the end, where the graph does not tell how many workers there are.
constexpr int32_t kManyWorkers = 64;

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
    MR_ASSIGN_OR_RETURN(const Output step, hooks::GlobalStepOf(graph, "SyncReplicasHook"));
    // What the chief hands out after each update, once more.
    const Output tokens = apply_.input(1);
    const PartialShape given = tokens.shape();
    const bool is_known = given.has_rank() && given.rank() == 1 && given.dim(0) > 0;
    const int32_t count = is_known ? static_cast<int32_t>(given.dim(0)) : kManyWorkers;
    const Scope beside = root.ColocateWith(apply_);
    free_workers_ = ops::QueueEnqueueManyV2(beside.WithOpName("sync_replicas_end"), apply_.input(0),
                                            {ops::Fill(beside, {count}, step)});
    return graph.status();
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
    MR_RETURN_IF_ERROR(session.RunTargets({local_init_}));
    if (!is_chief_) return OkStatus();
    MR_RETURN_IF_ERROR(session.RunTargets({init_tokens_}));
    return coordinator.StartThread("sync_replicas", [this, &session] { return Apply(session); });
  }

  // Who goes first leaves tokens to the others. The chief needs one as well: where its gradient is
  // too old to be counted, no update comes of what it alone has pushed.
  Status End(Session& session) override {
    const RunOptions shortly{.timeout = std::chrono::seconds(10)};
    const Status freed = session.Run({}, {}, std::span(&free_workers_, 1), shortly).status();
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
  Operation local_init_, init_tokens_, apply_, free_workers_;
};

}  // namespace

HookPtr SyncReplicasHook(const SyncReplicas& sync, bool is_chief, int num_tokens) {
  return std::make_shared<SyncReplicasDriver>(sync, is_chief, num_tokens);
}

}  // namespace millrace
