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
  // Saves whatever the period; true if it has. What has just failed is not tried again at once, but
  // much sooner: for a training that waits for it.
  bool SaveInHaste(Session& session, int64_t global_step);
  // Before a step of a synchronous chief, for whose gradient the others wait: where --save_steps
  // could not be saved, tries until they are, for half of --ready_timeout, after which the others'
  // steps end; a warning tells that training goes on. Ends as well when a signal asks to stop, and
  // when the variables cannot be read.
  void AwaitSave(Session& session, int64_t global_step);
  // What a wait for a checkpoint after that of the step `saved` is told by, and its end in vain.
  static void TellOfWait(int64_t saved, std::chrono::milliseconds limit);
  static void TellOfWaiver(int64_t saved, std::chrono::milliseconds limit);
  Status Save(Session& session);
  void set_period(int64_t period) { period_ = period; }
  // The number of the last checkpoint of this process, or that was restored; 0: none yet.
  int64_t last_saved() const { return last_saved_; }

 private:
  Keeper(const Flags& flags, Graph& graph, Variable global_step, std::unique_ptr<Saver> saver);
  bool TrySave(Session& session, int64_t global_step);
  Status TryRestore(const SupervisedSessionOptions& waiting, const Output& not_ready);

  const Flags& flags_;
  Graph& graph_;
  const Variable global_step_;
  const std::unique_ptr<Saver> saver_;
  int64_t period_;
  int64_t last_saved_ = 0;  // global step
  int64_t waived_ = -1;     // what was saved when training went on without a further save
  std::chrono::steady_clock::time_point next_try_{}, next_tell_{};
};

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_KEEPER_H_
