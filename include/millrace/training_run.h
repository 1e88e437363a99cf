// SPDX-License-Identifier: Apache-2.0
// Where a call of Model::Fit is, as callbacks may read, keep and change it: how a run that was
// killed goes on as if it had not been. millrace/checkpoint_callbacks.h has the callbacks for that.
#ifndef MILLRACE_TRAINING_RUN_H_
#define MILLRACE_TRAINING_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// All that it takes to go on, by name. Variables of the model's graph (weights, what optimizers
// keep for them, the count of steps, the learning rate, the loss scale, seeds and counters of
// layers that draw random numbers, sums of metrics) have their own names, so that a checkpoint of
// these tensors is one of the weights by name as well. What else there is begins with kTrainingKey:
// epoch, batch, logs, whether training has been stopped, positions in data, states of callbacks.
//
// Not in it: counters of stateful random ops (millrace/ops.h: RandomUniform and the like), which
// layers here do not use.
using TrainingState = std::map<std::string, Tensor>;
// What the names in a TrainingState begin with that are not variables.
inline constexpr char kTrainingKey[] = "_training/";

// One call of Fit. Lives as long as that; one thread at a time.
class TrainingRun {
 public:
  virtual ~TrainingRun() = default;

  // The epoch that is under way or, if no step of it has been made, comes next; counts from 0. Its
  // steps that have been made.
  virtual int64_t epoch() const = 0;
  virtual int64_t batch() const = 0;  // steps of that epoch that have been made

  // Processes that train together, each with a run of its own, and the number of this one: 0 writes
  // for all. 1 and 0 where one process leads.
  virtual int num_workers() const = 0;
  virtual int worker() const = 0;  // from 0 to num_workers() - 1
  // The value of every worker, in the order of their numbers. A small step of all of them: each
  // must make the same calls. Unavailable or DeadlineExceeded names a worker that is lost or does
  // not come.
  virtual StatusOr<std::vector<int64_t>> OfAllWorkers(int64_t value) = 0;

  // Runs `action` when all callbacks have had the hook that is being called, and before anything
  // else happens: a state that is taken then holds what they have made of it. Its error ends Fit,
  // with the name of the callback `owner`. Not run if the hook of a callback fails.
  virtual void AfterHook(std::string owner, std::function<Status()> action) = 0;

  // Copies of all values. To be taken in an action of AfterHook, or in OnTrainBegin.
  virtual StatusOr<TrainingState> State() = 0;
  // Takes the run back (or ahead) to a state that was taken in a run of the same program: the same
  // layers, optimizer, metrics, kinds of callbacks, data, size of batches and number of workers, of
  // which each takes its own. To be called in OnTrainRestore. InvalidArgument names what does not
  // fit; nothing has changed then.
  virtual Status SetState(TrainingState state) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_TRAINING_RUN_H_
