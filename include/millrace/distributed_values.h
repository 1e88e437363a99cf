// SPDX-License-Identifier: Apache-2.0
// Values, variables and data that replicas have of their own, and what a replica may ask of the
// others.
// Strategies (millrace/strategy.h) make them.
#ifndef MILLRACE_DISTRIBUTED_VALUES_H_
#define MILLRACE_DISTRIBUTED_VALUES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/collectives.h"
#include "millrace/data.h"
#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {

class Strategy;

// When copies of a variable are made equal: kAuto is kOnWrite; kNone is refused.
enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
// How the values of replicas become one.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

// One value for each replica of this process, in their order.
struct PerReplica {
  std::vector<Output> values;  // by local replica

  // The values of this process' replicas (experimental_local_results).
  std::span<const Output> LocalResults() const { return values; }
};

// What a function sees that Strategy::Run calls for a replica. Valid during that call.
class ReplicaContext {
 public:
  // Number of the replica among those of all workers, from 0.
  int replica_id_in_sync_group() const { return first_replica_ + local_; }
  // Number of the replica among those of this process, from 0.
  int local_replica() const { return local_; }
  // Number of replicas of all workers.
  int num_replicas_in_sync() const;
  // Scope on the device of the replica: what the function adds its nodes to.
  const Scope& scope() const { return scope_; }
  // Strategy that runs the function.
  Strategy& strategy() const { return *strategy_; }

  // Waits until all replicas of this process have come here, calls `merge` once with what each
  // brought, and gives each its own of the values that it returns. Invalid outputs where replicas
  // do not come together; Run says why.
  using Merge = std::function<std::vector<Output>(const Scope& scope, const PerReplica& values)>;
  // Calls `merge` as said above; blocks until it has returned.
  Output MergeCall(const Output& value, const Merge& merge);
  // The sum or mean over all replicas of all workers.
  Output AllReduce(ReduceOp op, const Output& value,
                   std::source_location where = std::source_location::current());
  // The values of all replicas of all workers, one behind the other along an axis.
  Output AllGather(const Output& value, int axis = 0,
                   std::source_location where = std::source_location::current());

 private:
  friend class Strategy;
  friend class ReplicaThreads;
  class Meeting {
   public:
    virtual ~Meeting() = default;
    virtual Output Merge(int local, const Output& value, const Merge& merge) = 0;
  };
  ReplicaContext(Strategy* strategy, int first_replica, int local, const Scope& scope,
                 Meeting* meeting)
      : strategy_(strategy),
        first_replica_(first_replica),
        local_(local),
        scope_(scope),
        meeting_(meeting) {}

  Strategy* const strategy_;
  const int first_replica_, local_;
  const Scope scope_;
  Meeting* const meeting_;
};

// How Strategy::MakeVariable makes a variable.
struct DistributedVariableOptions {
  bool trainable = true;  // whether its first copy is in kTrainableVariables
  VariableSynchronization synchronization =
      VariableSynchronization::kAuto;  // when copies are made equal; kAuto: at each Apply
  VariableAggregation aggregation =
      VariableAggregation::kNone;  // kMean: of floating-point variables only
};

// A variable with a copy on the device of each replica. Copies share what they stand for; valid as
// long as the graph and the strategy that made it. What cannot be is InvalidArgument in the graph's
// status; the operation or output is then not valid.
class DistributedVariable {
 public:
  // What Apply does to the variable with the value.
  enum class Update { kAssign, kAdd, kSubtract };

  // In a replica: its own copy as it is when the scope's control dependencies are met.
  Output Read(ReplicaContext& context) const;
  // In a replica. kOnRead: its own copy. kOnWrite: the values of all replicas become one, as
  // `aggregation` says (InvalidArgument for kNone), which every copy is changed by.
  Operation Apply(ReplicaContext& context, Update update, const Output& value,
                  std::source_location where = std::source_location::current()) const;
  // Outside of replicas. kOnRead: what `aggregation` makes of the copies of this process
  // (InvalidArgument for kNone).
  Output Read(const Scope& scope,
              std::source_location where = std::source_location::current()) const;
  // Outside of replicas: every copy; of a kOnRead sum each gets value / replicas, and may only be
  // assigned.
  Operation Apply(const Scope& scope, Update update, const Output& value,
                  std::source_location where = std::source_location::current()) const;

  // Checkpoints keep one value under the name of the first, and give it to all: that of the first,
  // or of a kOnRead variable what Read(scope) is, a sum to be divided among them.
  std::span<const Variable> copies() const { return copies_; }
  // What it was made with.
  const DistributedVariableOptions& options() const { return options_; }

 private:
  friend class Strategy;
  Strategy* strategy_ = nullptr;
  DistributedVariableOptions options_{};
  std::vector<Variable> copies_;
};

// ---- Variables that lie on several devices --------------------------------------------
//
// What their copies are together, for whoever saves, restores or sets them as a whole.

// Variables of replicas that no checkpoint keeps and no initializer of the graph's runs.
inline constexpr char kReplicaVariables[] = "replica_variables";

// What the whole is: the value that all have, the sum of their values, or the mean.
enum class CopiesAre { kEqual, kSum, kMean };

// A variable that is only in kReplicaVariables.
Variable MakeReplicaVariable(const Scope& scope, std::string_view name, const Output& initial_value,
                             std::source_location where = std::source_location::current());
// Makes `copy` one of `variable`, whose copies are all of one kind.
void AddCopy(const Variable& variable, const Variable& copy, CopiesAre are);
// Without the variable itself.
std::vector<Variable> CopiesOf(const Variable& variable);

// What a checkpoint keeps of the variable and its copies. Read when the scope's control
// dependencies are met.
Output WholeValue(const Scope& scope, const Variable& variable,
                  std::source_location where = std::source_location::current());
// Gives the variable and its copies this value as a whole: of a sum equal parts, and the first what
// is left over of integers.
Operation AssignWhole(const Scope& scope, const Variable& variable, const Input& value,
                      std::source_location where = std::source_location::current());

// ---- Data sets -----------------------------------------------------------------------
//
//   DistributedIterator data = MakeDistributedIterator(root, *strategy, dataset.Batch(64));
//   // data.next[0].values[i]: the images of replica i of this process
//   session.RunTargets({data.initializer});                        // an epoch begins
//   while (session.Run({}, {data.more}, {data.take}) is not 0) {   // takes a batch
//     session.RunTargets({train_op});                              // and uses it
//   }
//
// Model::Fit and Evaluate do so by themselves. docs/strategies.md says who gets what.

// Nodes that read a data set batch by batch, for the replicas of this process.
struct DistributedIterator {
  // Begins an epoch.
  Operation initializer;
  // Takes the next global batch, to be run together with fetching `more`: how many replicas of all
  // workers get a part of it, a float scalar. 0 in all workers alike: the data have ended.
  Operation take;
  // The count that `take` comes with: fetch it in the step that runs `take`.
  Output more;
  // What was taken, by component, for one step: that of each replica of this process. Those of
  // replicas that nothing was left for have no rows. OutOfRange if nothing was taken since the last
  // step.
  std::vector<PerReplica> next;
  // Of the batch that was taken, over all replicas of all workers: a float scalar.
  Output rows;
  // Until the end, Dataset::kInfinite or kUnknown.
  int64_t steps = Dataset::kUnknown;
  // What the batches come from: for IteratorPosition.
  DatasetIterator pieces;
};

// The data set's elements are global batches. Several workers read it as
// DatasetOptions::auto_shard says: by files, each its own; as a whole, each making all batches and
// keeping its rows (kData); or everything (kOff: then an epoch has each row once per worker). What
// is wrong is in the graph's status. The first worker's log says which was chosen.
DistributedIterator MakeDistributedIterator(
    const Scope& scope, Strategy& strategy, const Dataset& dataset,
    std::string_view name = "iterator",
    std::source_location where = std::source_location::current());

// What a process should know that makes its own part of the data.
struct InputContext {
  int64_t num_input_pipelines = 1;   // workers
  int64_t input_pipeline_id = 0;     // which of them this is
  int64_t num_replicas_in_sync = 1;  // replicas of all workers

  // InvalidArgument if there is no such size.
  StatusOr<int64_t> PerReplicaBatchSize(int64_t global_batch_size) const;
};

// The same of a data set whose elements are batches of one replica: each step takes as many as this
// process has replicas. `make` is called once.
DistributedIterator MakeDistributedIterator(
    const Scope& scope, Strategy& strategy,
    const std::function<Dataset(const InputContext& context)>& make,
    std::string_view name = "iterator",
    std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_DISTRIBUTED_VALUES_H_
