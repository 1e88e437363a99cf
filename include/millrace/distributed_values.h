// Values and variables that replicas have of their own, and what a replica may ask of the others.
// Strategies (millrace/strategy.h) make them.
#ifndef MILLRACE_DISTRIBUTED_VALUES_H_
#define MILLRACE_DISTRIBUTED_VALUES_H_

#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {

class Strategy;

enum class ReduceOp { kSum, kMean };

// When copies of a variable are made equal: kAuto is kOnWrite; kNone is refused.
enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
// How the values of replicas become one.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

// One value for each replica of this process, in their order.
struct PerReplica {
  std::vector<Output> values;

  // The values of this process' replicas (experimental_local_results).
  std::span<const Output> LocalResults() const { return values; }
};

// What a function sees that Strategy::Run calls for a replica. Valid during that call.
class ReplicaContext {
 public:
  int replica_id_in_sync_group() const { return first_replica_ + local_; }
  int local_replica() const { return local_; }
  int num_replicas_in_sync() const;
  const Scope& scope() const { return scope_; }
  Strategy& strategy() const { return *strategy_; }

  // Waits until all replicas of this process have come here, calls `merge` once with what each
  // brought, and gives each its own of the values that it returns. Invalid outputs where replicas
  // do not come together; Run says why.
  using Merge = std::function<std::vector<Output>(const Scope& scope, const PerReplica& values)>;
  Output MergeCall(const Output& value, const Merge& merge);
  // The sum or mean over all replicas of all workers.
  Output AllReduce(ReduceOp op, const Output& value,
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

struct DistributedVariableOptions {
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
};

// A variable with a copy on the device of each replica. Copies share what they stand for; valid as
// long as the graph and the strategy that made it. What cannot be is InvalidArgument in the graph's
// status; the operation or output is then not valid.
class DistributedVariable {
 public:
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

  // The first is what checkpoints keep.
  std::span<const Variable> copies() const { return copies_; }
  const DistributedVariableOptions& options() const { return options_; }

 private:
  friend class Strategy;
  Strategy* strategy_ = nullptr;
  DistributedVariableOptions options_{};
  std::vector<Variable> copies_;
};

}  // namespace millrace

#endif  // MILLRACE_DISTRIBUTED_VALUES_H_
