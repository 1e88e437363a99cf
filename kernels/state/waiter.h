// SPDX-License-Identifier: Apache-2.0
// For whom a kernel asks a resource for something that may not be there yet.
#ifndef KERNELS_STATE_WAITER_H_
#define KERNELS_STATE_WAITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/cancellation.h"
#include "base/clock.h"
#include "base/strings.h"
#include "base/wait.h"
#include "kernels/kernel_context.h"
#include "kernels/state/session_tensors.h"

namespace millrace {

// The names are views: valid as long as the call that is given the waiter.
struct Waiter {
  // Nobody who could be named.
  Waiter(std::nullptr_t) {}  // NOLINT: may take the place of what cancels
  Waiter(CancellationManager* cancellation) : cancellation(cancellation) {}  // NOLINT: the same
  explicit Waiter(const KernelContext& ctx)
      : cancellation(ctx.cancellation()), node(ctx.node_name()) {
    const auto* const session = static_cast<const SessionTensors*>(ctx.env().session_state);
    this->session = session;
    if (session != nullptr) task = session->owner();
  }

  CancellationManager* cancellation = nullptr;  // may be null
  std::string_view node;
  std::string_view task;          // of the master whose step it is; "" if that is not known
  const void* session = nullptr;  // of the step's environment; only compared

  // What it begins to wait for.
  Wait Begin(Wait::Kind kind, std::string_view name) const {
    Wait wait;
    wait.kind = kind;
    wait.node = node;
    wait.name = name;
    wait.since_nanos = SteadyNanos();
    return wait;
  }
};

// Tenths of seconds that have passed, for people.
inline double SecondsSince(int64_t steady_nanos) {
  return static_cast<double>((SteadyNanos() - steady_nanos) / 100'000'000) / 10;
}

// Who was the last to do something with a resource, and when. Not synchronised.
class LastCall {
 public:
  void Note(std::string_view node, std::string_view task) {
    node_ = node;
    task_ = task;
    nanos_ = SteadyNanos();
  }
  // "no enqueue yet"; "the last enqueue, of {{node put}} for TASK, was 12.3 s ago".
  std::string ToString(std::string_view what) const {
    if (nanos_ == 0) return StrCat("no ", what, " yet");
    return StrCat("the last ", what, node_.empty() ? "" : StrCat(", of {{node ", node_, "}}"),
                  task_.empty() ? "" : StrCat(" for ", task_), node_.empty() ? "" : ",", " was ",
                  SecondsSince(nanos_), " s ago");
  }

 private:
  std::string node_, task_;
  int64_t nanos_ = 0;
};

}  // namespace millrace

#endif  // KERNELS_STATE_WAITER_H_
