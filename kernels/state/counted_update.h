// SPDX-License-Identifier: Apache-2.0
// An update of a variable by a kernel, as the ledger of its device sees it.
#ifndef KERNELS_STATE_COUNTED_UPDATE_H_
#define KERNELS_STATE_COUNTED_UPDATE_H_

#include "base/errors.h"
#include "base/strings.h"
#include "kernels/kernel_context.h"
#include "kernels/state/session_tensors.h"
#include "kernels/state/update_ledger.h"

namespace millrace {

inline StepOrigin OriginOf(const KernelContext& ctx) {
  const StepEnv& env = ctx.env();
  const auto* const session = static_cast<const SessionTensors*>(env.session_state);
  if (session == nullptr) return {.task = {}, .step_id = env.step_id};
  return {session->owner(), session, env.step_id, session->number(), session->name()};
}

// The name of a resource in the ledger: with its container, unless that is the default one.
inline std::string LedgerName(std::string_view container, std::string_view name) {
  if (container.empty() || container == kDefaultContainer) return std::string(name);
  return StrCat(container, "/", name);
}
inline UpdateLedger::Entry* FindInLedger(UpdateLedger* ledger, LedgerKind kind,
                                         std::string_view container, std::string_view name) {
  if (container.empty() || container == kDefaultContainer) return ledger->Find(kind, name);
  return ledger->Find(kind, LedgerName(container, name));
}

// Lives as long as the kernel computes. An update that was begun and not applied has failed.
class CountedUpdate {
 public:
  CountedUpdate(UpdateLedger* ledger, const KernelContext& ctx) : ledger_(ledger), ctx_(ctx) {}
  ~CountedUpdate() {
    if (entry_ != nullptr) ledger_->Push(entry_, OriginOf(ctx_), fate_);
  }
  CountedUpdate(const CountedUpdate&) = delete;
  CountedUpdate& operator=(const CountedUpdate&) = delete;

  // The variable is what input 0 refers to, or names. Cancelled if the step is by now: whoever
  // waited for it has been told that it failed.
  Status Begin() {
    if (ctx_.input_is_ref(0)) {
      entry_ = ledger_->FindReference(ctx_.input_ref_mutex(0));
    } else if (const Tensor& input = ctx_.input(0);
               input.dtype() == kResource && input.num_elements() == 1) {
      const ResourceHandle& handle = input.scalar<ResourceHandle>();
      entry_ = FindInLedger(ledger_, LedgerKind::kVariable, handle.container, handle.name);
    }
    if (ctx_.cancellation() == nullptr || !ctx_.cancellation()->IsCancelled()) return OkStatus();
    fate_ = UpdateFate::kCancelled;
    return errors::Cancelled("the step was cancelled before ", ctx_.node_name(), " was applied");
  }
  // Under the variable's lock: so that updates are counted in the order in which they are made.
  void Applied() {
    if (entry_ != nullptr) ledger_->Push(entry_, OriginOf(ctx_), UpdateFate::kApplied);
    entry_ = nullptr;
  }

 private:
  UpdateLedger* const ledger_;
  const KernelContext& ctx_;
  UpdateLedger::Entry* entry_ = nullptr;
  UpdateFate fate_ = UpdateFate::kFailed;
};

}  // namespace millrace

#endif  // KERNELS_STATE_COUNTED_UPDATE_H_
