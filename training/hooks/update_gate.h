// SPDX-License-Identifier: Apache-2.0
// Keeps updates of synchronous replicas apart from saves: on the chief one thread applies
// gradients, however long it waits for them, and another saves. A checkpoint between two updates
// is all that a job is: gradients of the next update are computed, and pushed, again.
#ifndef TRAINING_HOOKS_UPDATE_GATE_H_
#define TRAINING_HOOKS_UPDATE_GATE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe. One for all hooks of a graph.
class UpdateGate {
 public:
  UpdateGate();
  ~UpdateGate();
  static std::shared_ptr<UpdateGate> Of(const Graph& graph);

  // By the hook that drives the replicas. A session of the chief begins; `needs_chief` says whether
  // no update can come without a gradient of the chief, and is called by threads that save.
  void StartSession(std::function<StatusOr<bool>(Session&)> needs_chief, int64_t local_step);
  // A step begins in which the chief pushes a gradient of its local step.
  void Push();
  void SetLocalStep(int64_t step);

  // By the thread that applies: an update may come until EndUpdate. Waits while somebody saves.
  void BeginUpdate();
  // With the global step after it, -1 if it has failed.
  void EndUpdate(int64_t step);

  // Whether there is anything to wait for.
  bool IsUsed() const;
  // Lets no further update begin, and waits for the one under way: for ten seconds at most, for one
  // where updates come without the chief or the process is to end. False if it may still come.
  // Release is to be called in any case.
  StatusOr<bool> Hold(Session& session);
  void Release();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace millrace

#endif  // TRAINING_HOOKS_UPDATE_GATE_H_
