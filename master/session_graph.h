// SPDX-License-Identifier: Apache-2.0
// The whole graph of a session: every node that Create and Extend brought, checked and
// placed. Runs cut their plans out of it.
#ifndef MASTER_SESSION_GRAPH_H_
#define MASTER_SESSION_GRAPH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "graph/lowering/lower_functions.h"
#include "graph/node_batch.h"
#include "millrace/status.h"
#include "placer/place_added.h"
#include "placer/placer.h"
#include "proto/graph.pb.h"

namespace millrace {

// Thread-safe. Nodes are only added, and edges only into new nodes.
class SessionGraph {
 public:
  // `ops` must outlive this object. `keep_control_flow`: branches and loops of functions are run
  // as functions, unless they span tasks.
  explicit SessionGraph(const OpRegistry* ops, bool keep_control_flow = false);

  // Before anything else, in this order: the first graph is imported and validated, then, when
  // the devices are known, placed.
  Status Import(const pb::GraphDef& def);
  // The same from nodes of this process, which are moved where that is possible.
  Status Import(NodeBatch nodes);
  Status Place(PlacerInput placer);
  // Adds nodes; on any error the graph is as before. `expected_version` must be the current
  // one (Aborted). InvalidArgument for a name that exists or another producer version.
  // Stateful nodes stay where they are. Costs as much as is new, unless the new nodes may move
  // old ones: then everything is placed again.
  Status Extend(const pb::GraphDef& def, int64_t expected_version, int64_t* new_version);
  Status Extend(const NodeBatch& nodes, int64_t expected_version, int64_t* new_version);

  // Calls `reader` with the placed graph, which does not change meanwhile; extensions wait.
  void Read(const std::function<void(const DataflowGraph& graph)>& reader) const;
  int64_t version() const;
  // Why nodes are where they are, for people: of one node, or of all for "".
  std::string ExplainPlacement(std::string_view node) const;
  // The placer's records: of the last time that everything was placed, and of each extension
  // since. They are not kept: the same code places a copy of the graph again, step by step.
  std::vector<PlacementLog> RecordPlacement() const;
  // How many nodes of which op are on which device: a table for people.
  std::string PlacementSummary() const;

 private:
  // One call of the placer, from which its record can be made again.
  struct Placing {
    bool all = false;    // else only what was added
    int first_node = 2;  // what lies before was there: `all` placed it again, unless stateful
    int end_node = 2;
  };

  // Lowers functions of nodes from `first_node` on.
  Status Lower(int first_node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Calls `add`, lowers and places.
  Status ExtendBy(const pb::VersionDef& versions_added, int64_t expected_version,
                  int64_t* new_version, const std::function<Status(DataflowGraph* graph)>& add);
  Status PlaceFrom(int first_node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status PlaceAll(int first_node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  PlacementLog Record(const Placing& placing) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<PlacementLog> RecordAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const OpRegistry* const ops_;
  const bool keep_control_flow_;
  PlacerInput placer_;  // constant once set
  mutable Mutex mu_;
  std::unique_ptr<DataflowGraph> graph_ ABSL_GUARDED_BY(mu_);
  FunctionBodies bodies_ ABSL_GUARDED_BY(mu_);
  StringSet labels_ ABSL_GUARDED_BY(mu_);  // of attribute _class, of all nodes
  // The last time that everything was placed, and each extension since.
  std::vector<Placing> placings_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // MASTER_SESSION_GRAPH_H_
