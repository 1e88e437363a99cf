// SPDX-License-Identifier: Apache-2.0
// Makes of the whole graph what one run needs: feeds and fetches become receives from and
// sends to the client, and what does not lead to a fetch or a target goes.
#ifndef MASTER_FEED_FETCH_H_
#define MASTER_FEED_FETCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/dataflow_graph.h"
#include "master/plan.h"
#include "millrace/status.h"

namespace millrace {

struct ClientDevice {
  std::string name;
  uint64_t incarnation = 0;
};

// Tensor "to" is replaced by tensor "from" for all its consumers. InvalidArgument: "unknown
// node", "unknown edge" (of from), types that differ, "would create a cycle". NotFound: "unable
// to find feed output" (of to).
Status ConnectTensors(const std::vector<std::pair<std::string, std::string>>& connections,
                      DataflowGraph* graph);

// A copy of what RewriteForRun needs of the whole graph for this signature; its cost is that of
// what it copies. Nodes have the order of the whole graph, but new ids. The whole graph if the
// signature connects tensors.
std::unique_ptr<DataflowGraph> CopyForRun(const RunSignature& signature, const DataflowGraph& full);

// NotFound: "FeedInputs: unable to find feed output", "FetchOutputs node x:0: not found",
// "PruneForTargets: Some target nodes not found". InvalidArgument: an output that the node
// does not have. The graph may be half changed then.
Status RewriteForRun(const RunSignature& signature, const ClientDevice& client,
                     DataflowGraph* graph);

}  // namespace millrace

#endif  // MASTER_FEED_FETCH_H_
