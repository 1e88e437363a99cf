// SPDX-License-Identifier: Apache-2.0
// Rounds of a synchronous job with checkpoints (--sync_replicas --checkpoint_dir): all its workers
// begin one together, from one checkpoint, and whatever ends the part of one of them ends it for
// all.
//
// A gradient counts once in an accumulator, and a token frees one step. A worker that comes back in
// the middle does not know which of its gradients were counted, nor whether its token still lies in
// the queue; a chief that comes back does not know which variables an update had reached. So nobody
// goes on: accumulators and tokens are thrown away, all variables go back to the checkpoint, and
// what follows is what would have followed without the loss, bit for bit.
#ifndef EXAMPLES_MNIST_ROUNDS_H_
#define EXAMPLES_MNIST_ROUNDS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/mnist/flags.h"
#include "examples/mnist/keeper.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/supervised_session.h"

namespace millrace::mnist {

// One thread at a time.
class Rounds {
 public:
  // Whether the flags, of a job with so many workers, ask for rounds: a worker's share of a step
  // has to be one gradient, neither several nor one that may come too late.
  static bool AreNeeded(const Flags& flags, int num_workers);

  // Adds its nodes to a graph that has all of training. Graph and flags must outlive the rounds.
  static StatusOr<std::unique_ptr<Rounds>> Create(const Flags& flags, Graph& graph,
                                                  const Output& global_step, int num_workers);

  // Once this worker has no step under way: waits for all others (the chief), or for the chief, and
  // returns the global step from which all train. The chief restores what its keeper has, or
  // initialises. A job that has made all its steps begins no further round.
  // DeadlineExceeded names the workers that have not come; Cancelled: a signal asks to stop.
  // `options`: of the session in which training will be: target, init op and what is not ready.
  StatusOr<int64_t> Begin(const SupervisedSessionOptions& options, Keeper* keeper);

  // Ends the round: whoever waits in a step of it is told.
  Status End(Session& session);

  // Whether a step that ended so may have ended with its round, or with a task.
  static bool IsOver(const Status& status);
  // Whether this task is told to stop: so was, then, the one that ended the round. Where a round
  // was ended by somebody, the signal may be a moment behind.
  static bool IsStop(const Status& status);

 private:
  Rounds(const Flags& flags, Graph& graph, Output global_step, int num_workers);
  void Build();
  StatusOr<int64_t> Lead(Session& session, const SupervisedSessionOptions& options, Keeper& keeper);
  StatusOr<int64_t> Follow(Session& session, const SupervisedSessionOptions& options);
  Status AwaitWorkers(Session& session, int64_t round, const SupervisedSessionOptions& options);

  const Flags& flags_;
  Graph& graph_;
  const Output global_step_;
  const int num_workers_;
  // Of the first ps: they go with it.
  struct Number {
    Output is_there, read;
    Operation set;  // to value_
  };
  // What they hold, 0 where there is nothing.
  static StatusOr<std::vector<int64_t>> Look(Session& session,
                                             const std::vector<const Number*>& numbers);
  Status Set(Session& session, const Number& number, int64_t value);
  Output value_;
  Number begun_;                // the round that the chief gathers workers for
  Number open_;                 // the round in which steps are made
  std::vector<Number> joined_;  // the last round of each worker
  Operation end_;               // closes the queues at which workers wait
  Operation clear_;             // accumulators and queues
};

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_ROUNDS_H_
