// SPDX-License-Identifier: Apache-2.0
// A callback that waits for one of two: what it is for, or a cancellation.
#ifndef COLLECTIVE_PENDING_H_
#define COLLECTIVE_PENDING_H_

#include <atomic>
#include <functional>
#include <utility>

#include "base/cancellation.h"
#include "millrace/ref_ptr.h"

namespace millrace {

// Thread-safe once Watch has returned. Whoever claims it calls it; nobody else may.
template <typename... Args>
class Pending : public RefCounted {
 public:
  using Done = std::function<void(Args...)>;
  explicit Pending(Done done) : done_(std::move(done)) {}

  // Once, before others see this object; `cancellation` may be null. A cancellation, also one
  // that has begun already, claims the callback and calls it by `cancel(done)`.
  void Watch(CancellationManager* cancellation, std::function<void(const Done&)> cancel) {
    if (cancellation == nullptr) return;
    cancellation_ = cancellation;
    token_ = cancellation->NextToken();
    auto self = RefPtr<Pending>::Share(this);
    const auto on_cancel = [self, cancel = std::move(cancel)] {
      if (self->Claim()) cancel(std::exchange(self->done_, nullptr));
    };
    if (!cancellation->RegisterCallback(token_, on_cancel)) on_cancel();
  }

  bool claimed() const { return claimed_.load(std::memory_order_acquire); }
  bool Claim() { return !claimed_.exchange(true, std::memory_order_acq_rel); }
  // By the one who claimed it. The cancellation manager may be gone as soon as the callback runs.
  void Finish(Args... args) {
    if (cancellation_ != nullptr) (void)cancellation_->TryDeregisterCallback(token_);
    const Done done = std::exchange(done_, nullptr);
    done(std::forward<Args>(args)...);
  }

 private:
  Done done_;
  std::atomic<bool> claimed_{false};
  CancellationManager* cancellation_ = nullptr;
  CancellationManager::Token token_ = 0;
};

}  // namespace millrace

#endif  // COLLECTIVE_PENDING_H_
