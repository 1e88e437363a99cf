// SPDX-License-Identifier: Apache-2.0
// How a chief tells the other workers that the variables have values, so that they need not
// ask again and again.
#ifndef TRAINING_READY_SIGNAL_H_
#define TRAINING_READY_SIGNAL_H_

#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// An empty queue on the CPU of every task that has variables. Whoever waits for an element
// waits until the queue is closed; a task that lost its variables has lost its queue as well,
// and the new one is open. Closing it again is Cancelled, a wait for it OutOfRange.
struct ReadySignal {
  std::vector<Operation> announce;  // each is run by the chief, one by one
  std::vector<Operation> await;     // each is run by the others
};

// Adds the nodes, under "supervised_session/", or finds those of an earlier call. The lists
// are empty if the graph has no variables.
StatusOr<ReadySignal> MakeReadySignal(Graph& graph);

}  // namespace millrace

#endif  // TRAINING_READY_SIGNAL_H_
