// SPDX-License-Identifier: Apache-2.0
// How asynchronous training keeps its promise that no update was computed from values which more
// than so many updates of others have changed since.
#ifndef KERNELS_TRAINING_STALENESS_GATE_H_
#define KERNELS_TRAINING_STALENESS_GATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/mutex.h"
#include "device/resource_manager.h"
#include "kernels/state/update_ledger.h"
#include "kernels/state/waiter.h"
#include "millrace/status.h"

namespace millrace {

// Updates are counted. A step enters before it reads variables; it commits before it applies what
// it computed from them, finishes once that is applied, and has left at its end, however it ends.
// Between Commit and Finish nobody else commits. The staleness of an update is how many others were
// finished since its step entered. Commit waits while the update would make one that is still being
// computed too old, and Enter while there are more steps than can all finish within the bound: with
// `bound` 0 one at a time.
//
// Thread-safe; never blocks. Callbacks run outside the lock, on the thread that made them possible.
class StalenessGate : public Resource {
 public:
  using Done = std::function<void(Status)>;

  // With a ledger, every update is in its account of the bound, with its staleness.
  StalenessGate(std::string name, int64_t bound, RefPtr<UpdateLedger> ledger = nullptr)
      : name_(std::move(name)), bound_(bound), ledger_(std::move(ledger)) {
    if (ledger_) account_ = ledger_->Find(LedgerKind::kBound, name_);
  }

  int64_t bound() const { return bound_; }

  // From now on the step reads. `worker` is whose it is, for messages. Cancelled, naming a worker
  // that is waited for, if the waiter is cancelled first; so with Commit.
  void Enter(int64_t step, std::string worker, const Waiter& waiter, Done done);
  // Waits for the step's turn to apply. FailedPrecondition if it has not entered.
  void Commit(int64_t step, const Waiter& waiter, Done done);
  // The update has been applied; the step is out. Nothing happens unless it has committed.
  void Finish(int64_t step);
  // The step is over. An update that was committed counts as finished.
  void Leave(int64_t step);

  struct Totals {
    int64_t updates = 0, max_staleness = 0;
    int64_t waits = 0;  // enters and commits that did not go on at once
  };
  Totals totals() const;
  std::string DebugString() const override;
  // Cancels everything that waits.
  void OnRemoved() override;

 private:
  struct Member {
    int64_t step;
    std::string worker;
    int64_t base;  // updates that were finished when it entered
    std::string task;
    const void* session;
  };
  struct Attempt {
    int64_t id, step;
    std::string worker;
    CancellationManager* cancellation;
    CancellationManager::Token token;
    Done done;
    std::string task;
    const void* session;
  };
  using Line = std::deque<Attempt>;
  using Finished = std::vector<std::function<void()>>;

  void WaitInLine(Line* line, int64_t step, std::string worker, const Waiter& waiter, Done done);
  // The one that an attempt in the line waits for; null: nobody in particular.
  const Member* WaitedFor(const Line* line, int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Cancel(Line* line, int64_t id);
  static void End(Attempt attempt, Status status, Finished* finished);
  static void Call(const Finished& finished) {
    for (const auto& callback : finished) callback();
  }

  std::vector<Member>::const_iterator Find(int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The one that the step's update would make too old; null: none.
  const Member* TooOldAfter(int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndUpdate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Serve(Finished* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  const int64_t bound_;
  const RefPtr<UpdateLedger> ledger_;  // null: none
  UpdateLedger::Entry* account_ = nullptr;
  mutable Mutex mu_;
  // In the order in which they entered. Each can bear as many updates as there are steps before it.
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  bool updating_ ABSL_GUARDED_BY(mu_) = false;  // `updater_` has committed
  int64_t updater_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t updates_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t max_staleness_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t waits_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  Line enters_ ABSL_GUARDED_BY(mu_), commits_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_TRAINING_STALENESS_GATE_H_
