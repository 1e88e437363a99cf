// SPDX-License-Identifier: Apache-2.0
// Telling everything that waits on behalf of a step that the step is over.
#ifndef BASE_CANCELLATION_H_
#define BASE_CANCELLATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "millrace/status.h"

namespace millrace {

// One per step (and one per session as its parent). Thread-safe.
class CancellationManager {
 public:
  using Token = int64_t;
  using Callback = std::function<void()>;

  CancellationManager() = default;
  // Cancelled when `parent` is; the parent must outlive this object.
  explicit CancellationManager(CancellationManager* parent);
  ~CancellationManager();
  CancellationManager(const CancellationManager&) = delete;
  CancellationManager& operator=(const CancellationManager&) = delete;

  // Runs every registered callback once, on this thread, and remembers `reason`.
  // Later calls do nothing.
  void StartCancel(Status reason);
  bool IsCancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Why: the status given to StartCancel; OK if not cancelled.
  Status reason() const;

  Token NextToken() { return next_token_.fetch_add(1, std::memory_order_relaxed); }
  // False, and the callback is not kept, if cancellation has begun: the caller must then
  // fail with a Cancelled status itself. The callback must not call back into this object.
  [[nodiscard]] bool RegisterCallback(Token token, Callback callback);
  // True if the callback was removed before it ran. Waits until a running cancellation is
  // over, so that the callback cannot run after this returned. Not from within a callback.
  bool DeregisterCallback(Token token);
  // Like DeregisterCallback but returns false at once while a cancellation is running.
  bool TryDeregisterCallback(Token token);

  // What a callback's owner waits for, for whom a step is late: "queue 'q': 0 of 1 elements".
  using Description = std::function<std::string()>;
  // Kept, as long as the callback is. It is called on any thread, without a lock of this object,
  // and perhaps after the callback was removed: it owns what it uses.
  void Describe(Token token, Description description);
  // What the descriptions of the callbacks that are registered now say, each text once.
  std::vector<std::string> DescribeWaits() const;

 private:
  void TakeDescription(Token token, Description* description) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> cancelled_{false};
  std::atomic<Token> next_token_{0};
  CancellationManager* const parent_ = nullptr;
  Token parent_token_ = -1;
  mutable Mutex mu_;
  CondVar done_cv_;
  bool cancelling_ ABSL_GUARDED_BY(mu_) = false;
  Status reason_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Token, Callback> callbacks_ ABSL_GUARDED_BY(mu_);
  // Apart, as few have one.
  absl::flat_hash_map<Token, Description> descriptions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // BASE_CANCELLATION_H_
