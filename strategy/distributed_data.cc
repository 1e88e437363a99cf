// SPDX-License-Identifier: Apache-2.0
#include "millrace/distributed_values.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/pipeline/pieces.h"
#include "frontend/graph_builder.h"
#include "millrace/math.h"
#include "millrace/strategy.h"

namespace millrace {
namespace {

// Of shuffles that nobody gave a seed, in graphs without one: any number, the same everywhere.
constexpr int64_t kOrderSeed = 20170801;

const char* NameOf(AutoShard policy) {
  switch (policy) {
    case AutoShard::kFile:
      return "FILE";
    case AutoShard::kData:
      return "DATA";
    case AutoShard::kHint:
      return "HINT";
    default:
      return "OFF";
  }
}

Output RowsOf(const Scope& scope, const Output& batch) {
  return ops::Cast(scope, ops::GatherV2(scope, ops::Shape(scope, batch), 0, 0), kFloat);
}

// One element for each replica, in turn, of `pieces` with flags (WithEmptyBatches).
DistributedIterator TakeInTurn(const Scope& outer, Strategy& strategy, const Dataset& pieces,
                               std::string_view name, std::source_location where) {
  DistributedIterator made;
  made.pieces = MakeIterator(outer, pieces, name, where);
  if (made.pieces.next.empty()) return made;
  made.initializer = made.pieces.initializer;
  // Data sets are read by processors.
  const Scope scope = outer.Named(name).WithDevice("/device:CPU:0");
  const Output handle = made.pieces.next[0].op().input(0);
  std::vector<std::vector<Output>> taken;
  std::vector<Output> rows, flags;
  Scope in_turn = scope;
  for (int i = 0; i < strategy.num_local_replicas(); ++i) {
    taken.push_back(ops::IteratorGetNext(in_turn, handle, pieces.dtypes(), pieces.shapes(), where));
    if (taken.back().empty()) return made;
    in_turn = scope.WithControlDependencies({taken.back()[0].op()});
    rows.push_back(RowsOf(scope, taken.back()[0]));
    flags.push_back(taken.back().back());
    taken.back().pop_back();
  }
  // A batch of a replica may be without rows before the end, where batches are smaller than
  // replicas are many.
  const Output own = ops::Pack(scope, {ops::AddN(scope, {rows.begin(), rows.end()}),
                                       ops::AddN(scope, {flags.begin(), flags.end()})});
  const Output all = strategy.SumOverWorkers(scope, {{own}}, where)[0];
  // What was taken waits for the step that uses it as the one element of another data set: no step
  // has to fail to tell that there is nothing more.
  std::vector<Output> kept;
  for (const std::vector<Output>& element : taken) {
    kept.insert(kept.end(), element.begin(), element.end());
  }
  kept.push_back(ops::GatherV2(scope, all, 0, 0));
  const DatasetIterator batch =
      MakeIterator(outer, Dataset::FromOutputs(kept, where), StrCat(name, "_batch"), where);
  if (batch.next.size() != kept.size()) return made;
  made.take = batch.initializer;
  made.more = ops::GatherV2(scope, all, 1, 0);
  made.rows = batch.next.back();
  made.next.resize(pieces.dtypes().size() - 1);
  for (std::size_t i = 0; i + 1 < batch.next.size(); ++i) {
    made.next[i % made.next.size()].values.push_back(batch.next[i]);
  }
  return made;
}

InputContext ContextOf(const Strategy& strategy) {
  return {strategy.num_workers(), strategy.worker(), strategy.num_replicas_in_sync()};
}

void Tell(const Strategy& strategy, const Dataset& dataset, const Pieces& pieces) {
  if (strategy.num_workers() == 1 || strategy.worker() != 0) return;
  MR_LOG(kInfo, "the data set ", dataset.DebugString(), " is read by ", strategy.num_workers(),
         " workers under the policy ", NameOf(pieces.policy),
         pieces.policy == AutoShard::kFile || pieces.policy == AutoShard::kHint
             ? ": each reads its part"
         : pieces.policy == AutoShard::kData ? ": each makes all batches and keeps its rows"
                                             : ": each reads and keeps everything",
         pieces.reason.empty() ? "" : "; not FILE: ", pieces.reason);
}

}  // namespace

StatusOr<int64_t> InputContext::PerReplicaBatchSize(int64_t global_batch_size) const {
  if (num_replicas_in_sync > 0 && global_batch_size > 0 &&
      global_batch_size % num_replicas_in_sync == 0) {
    return global_batch_size / num_replicas_in_sync;
  }
  return errors::InvalidArgument("The `global_batch_size` ", global_batch_size,
                                 " is not divisible by `num_replicas_in_sync` ",
                                 num_replicas_in_sync);
}

DistributedIterator MakeDistributedIterator(const Scope& outer, Strategy& strategy,
                                            const Dataset& dataset, std::string_view name,
                                            std::source_location where) {
  const Scope scope = strategy.RootScope(outer.CalledFrom(where));
  const std::vector<int> replicas = strategy.replicas_of_workers();
  const WorkerPart part{.replicas = {replicas.begin(), replicas.end()},
                        .index = strategy.worker(),
                        .takes_neighbours = strategy.is_deterministic()};
  // A graph's seed fixes the orders by itself.
  const int64_t order_seed = scope.graph()->seed == 0 ? kOrderSeed : 0;
  const StatusOr<Pieces> pieces =
      PiecesForWorker(dataset, dataset.options().auto_shard, part, order_seed);
  if (!pieces.ok()) {
    scope.RecordError(pieces.status(), where);
    return {};
  }
  Tell(strategy, dataset, *pieces);
  DistributedIterator made =
      TakeInTurn(scope, strategy, WithEmptyBatches(pieces->dataset), name, where);
  made.steps = pieces->steps;
  return made;
}

DistributedIterator MakeDistributedIterator(
    const Scope& outer, Strategy& strategy,
    const std::function<Dataset(const InputContext& context)>& make, std::string_view name,
    std::source_location where) {
  const Scope scope = strategy.RootScope(outer.CalledFrom(where));
  const Dataset pieces = make(ContextOf(strategy));
  DistributedIterator made = TakeInTurn(scope, strategy, WithEmptyBatches(pieces), name, where);
  if (pieces.cardinality() == Dataset::kInfinite) made.steps = Dataset::kInfinite;
  return made;
}

}  // namespace millrace
