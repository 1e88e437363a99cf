// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training job, which its chief keeps (--checkpoint_dir).
#ifndef EXAMPLES_MNIST_KEEPER_H_
#define EXAMPLES_MNIST_KEEPER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/mnist/flags.h"
#include "millrace/graph.h"
#include "millrace/saver.h"
#include "millrace/supervised_session.h"
#include "millrace/variables.h"

namespace millrace::mnist {

// One thread at a time.
class Keeper {
 public:
  // Adds the nodes that save and restore all variables, each on its own ps. The graph must have its
  // variables, and outlive the keeper.
  static StatusOr<std::unique_ptr<Keeper>> Create(const Flags& flags, Graph& graph,
                                                  const Variable& global_step);

  // Before a session initialises anything: if some variable has no value and there is a checkpoint,
  // all get the values of the newest. `options` are those of the session to come.
  Status RestoreIfNeeded(const SupervisedSessionOptions& options);
  // All variables get the values of the newest checkpoint. False: there is none.
  StatusOr<bool> Restore(Session& session);
  // The global step of the newest checkpoint, 0 without one.
  int64_t NewestStep() const;
  // Whether variables that were lost are to be restored, not initialised.
  bool HasCheckpoint() const;

  // Saves if `period` steps (--save_steps, unless set) have gone by; true if it has. What fails is
  // told, and tried again two seconds later.
  bool SaveIfTime(Session& session, int64_t global_step);
  Status Save(Session& session);
  void set_period(int64_t period) { period_ = period; }
  // The number of the last checkpoint of this process, or that was restored; 0: none yet.
  int64_t last_saved() const { return last_saved_; }

 private:
  Keeper(const Flags& flags, Graph& graph, Variable global_step, std::unique_ptr<Saver> saver);
  Status TryRestore(const SupervisedSessionOptions& waiting, const Output& not_ready);

  const Flags& flags_;
  Graph& graph_;
  const Variable global_step_;
  const std::unique_ptr<Saver> saver_;
  int64_t period_;
  int64_t last_saved_ = 0;  // global step
  std::chrono::steady_clock::time_point next_try_{};
};

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_KEEPER_H_
