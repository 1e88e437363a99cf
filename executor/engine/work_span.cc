// SPDX-License-Identifier: Apache-2.0
#include "executor/engine/work_span.h"

#include <algorithm>
#include <vector>

#include "executor/compiled_graph.h"
#include "executor/engine/sequential_program.h"

namespace millrace {
namespace {

// What a node costs beside its kernel. With several threads: counts of arrivals that are atomic,
// lists of ready nodes, measuring, and what the other thread's cache holds. Generously: costs that
// were measured on several threads hold what these take from each other (an addition of scalars in
// a layered graph takes 12 ns on one thread, up to 250 on each of two).
constexpr uint64_t kNodeAlone = 30, kNodeShared = 1'500;
// Waking a thread, and the others' values coming from its cache.
constexpr uint64_t kWorthwhile = 100'000;

}  // namespace

WorkSpan EstimateWorkSpan(const CompiledGraph& graph) {
  WorkSpan total;
  std::vector<uint64_t> start(graph.nodes().size());  // by node: the end of what precedes it
  // Constants are not among them: they keep their values.
  for (const SeqOp& op : graph.sequential()->ops) {
    const CompiledNode& node = graph.nodes()[op.node];
    uint64_t cost = 0;
    if ((node.flags & kNodeMaybeExpensive) != 0) {
      cost = graph.CostOf(op.node);
      if (cost == CompiledGraph::kUnknownCycles) cost = 0;
    }
    total.alone += cost + kNodeAlone;
    total.work += cost + kNodeShared;
    const uint64_t end = start[op.node] + cost + kNodeShared;
    total.span = std::max(total.span, end);
    const OutEdge* edge = graph.edges() + node.edges_begin;
    for (const OutEdge* const last = edge + node.num_edges; edge != last; ++edge) {
      start[edge->dst] = std::max(start[edge->dst], end);
    }
  }
  return total;
}

bool GainsFromThreads(const WorkSpan& estimate) {
  const uint64_t shared = std::max(estimate.work / 2, estimate.span);
  return shared + kWorthwhile < estimate.alone && shared < estimate.alone / 5 * 4;
}

}  // namespace millrace
