// SPDX-License-Identifier: Apache-2.0
// What a step receives, before it is known how the step will run.
#ifndef EXECUTOR_CAPTURE_CAPTURED_INPUTS_H_
#define EXECUTOR_CAPTURE_CAPTURED_INPUTS_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/capture/capture_plan.h"
#include "rendezvous/rendezvous.h"

namespace millrace {

// Receives the values of the heads from `base`, and is itself a rendezvous in which they can be
// received once more: so that whoever finds that they do not fit can leave the step to the
// executor. Thread-safe.
class CapturedInputs final : public Rendezvous {
 public:
  CapturedInputs(RefPtr<Rendezvous> base, std::span<const CapturePlan::Head> heads)
      : base_(std::move(base)), heads_(heads), arrivals_(heads.size()) {}

  // Calls `ready` once: when all values have come, or one came that is dead or an error; maybe
  // before this returns, and then `at_once` is true.
  void Start(CancellationManager* cancellation, std::function<void(bool at_once)> ready);

  // Once ready. Whether all have come, and are alive.
  bool complete() const;
  // Then: those of the heads, in their order.
  const Tensor& value(int head) const { return arrivals_[head].value; }

  Status Send(std::string_view key, Tensor value, bool is_dead) override {
    return base_->Send(key, std::move(value), is_dead);
  }
  void RecvAsync(std::string_view key, CancellationManager* cancellation, RecvDone done) override;
  void StartAbort(const Status& status) override { base_->StartAbort(status); }
  void ListWaits(std::size_t limit, std::vector<std::string>* keys) const override {
    base_->ListWaits(limit, keys);
  }

 private:
  struct Arrival {
    bool arrived = false;
    bool is_dead = false;
    Status status;
    Tensor value;  // constant once complete
    RecvDone waiting;
  };
  void Arrive(std::size_t head, const Status& status, const Tensor& value, bool is_dead);
  // True for the one who is to call `ready`.
  bool BecomesReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RefPtr<Rendezvous> base_;
  const std::span<const CapturePlan::Head> heads_;
  std::function<void(bool)> ready_;  // constant from Start on
  mutable Mutex mu_;
  std::vector<Arrival> arrivals_;  // guarded by mu_ until complete
  std::size_t num_arrived_ ABSL_GUARDED_BY(mu_) = 0;
  bool all_good_ ABSL_GUARDED_BY(mu_) = true;
  bool asked_for_all_ ABSL_GUARDED_BY(mu_) = false;
  bool told_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace

#endif  // EXECUTOR_CAPTURE_CAPTURED_INPUTS_H_
