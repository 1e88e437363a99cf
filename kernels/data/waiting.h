// SPDX-License-Identifier: Apache-2.0
// Waiting that ends with the step on whose behalf it is done.
#ifndef KERNELS_DATA_WAITING_H_
#define KERNELS_DATA_WAITING_H_

#include "absl/functional/function_ref.h"
#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "millrace/status.h"

namespace millrace {

// Locks `mu` and waits for `ready`, which is called with the lock held and looked at after each
// signal of `changed`. OK: `mu` is locked. Cancelled: it is not. `cancellation` may be null.
inline Status LockWhen(Mutex* mu, CondVar* changed, CancellationManager* cancellation,
                       absl::FunctionRef<bool()> ready) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (;;) {
    mu->Lock();
    if (ready()) return OkStatus();
    mu->Unlock();
    CancellationManager::Token token = -1;
    const auto wake = [mu, changed] {
      MutexLock lock(mu);
      changed->SignalAll();
    };
    bool cancelled = false;
    if (cancellation != nullptr) {
      token = cancellation->NextToken();
      cancelled = !cancellation->RegisterCallback(token, wake);
    }
    const auto is_cancelled = [&] {
      return cancelled || (cancellation != nullptr && cancellation->IsCancelled());
    };
    mu->Lock();
    while (!ready() && !is_cancelled()) changed->Wait(mu);
    const bool is_ready = ready();
    mu->Unlock();
    // Without the lock: a callback that runs right now wants it.
    if (cancellation != nullptr && !cancelled) cancellation->DeregisterCallback(token);
    if (!is_ready) return errors::Cancelled("the wait for an element was cancelled");
  }
}

// Says to clang's analysis what it does not see: LockWhen has been OK, or calls its `ready`.
inline void AssertLocked(Mutex* mu) ABSL_ASSERT_EXCLUSIVE_LOCK(mu) {}

}  // namespace millrace

#endif  // KERNELS_DATA_WAITING_H_
