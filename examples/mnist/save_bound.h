// SPDX-License-Identifier: Apache-2.0
// Asynchronous workers do not run away from the newest checkpoint (--checkpoint_dir, --save_steps).
#ifndef EXAMPLES_MNIST_SAVE_BOUND_H_
#define EXAMPLES_MNIST_SAVE_BOUND_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "examples/mnist/flags.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/supervised_session.h"

namespace millrace::mnist {

// No more than --save_steps steps are made beyond the newest checkpoint, or one of each worker if
// that is more. A worker begins a step only where there is room for a step of each, for all may be
// about to begin one; the chief saves before that, so that few wait for it, and waits with them
// where it cannot. One thread at a time.
class SaveBound {
 public:
  static bool IsNeeded(const Flags& flags);
  // Adds its nodes. Graph and flags must outlive it.
  static StatusOr<std::unique_ptr<SaveBound>> Create(const Flags& flags, Graph& graph,
                                                     const Output& global_step, int num_workers);

  // After so many steps the chief saves.
  int64_t period() const;
  // The chief: a checkpoint of this global step is complete, or, `kNoFurther`, none will follow.
  Status SetSaved(Session& session, int64_t step);
  static constexpr int64_t kNoFurther = int64_t{1} << 62;

  // Tries to save at this global step, once, and has told SetSaved if it returns true.
  using Save = std::function<bool(int64_t global_step)>;
  // Until there is room for a step; `global_step` is what the last step of this worker saw. Ends as
  // well when all steps are made, when a signal asks to stop, and, with a warning, when nothing has
  // been saved for --ready_timeout: a job whose chief is gone, or cannot save, trains on. The chief
  // gives `save`, which makes room.
  Status AwaitRoom(SupervisedSession& session, int64_t global_step, const Save& save = {});

 private:
  SaveBound(const Flags& flags, Output global_step, int num_workers);

  const Flags& flags_;
  const Output global_step_;
  const int num_workers_;
  // On the ps of the global step.
  Output value_, is_there_, read_;
  Operation set_;
  int64_t saved_ = 0;    // as far as this worker knows
  int64_t waived_ = -1;  // what was saved when this worker has gone on without room
  std::chrono::steady_clock::time_point next_look_{};  // since then
};

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_SAVE_BOUND_H_
