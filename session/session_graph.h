// The whole graph of a session: every node that Create and Extend brought, checked and
// placed. Runs cut their plans out of it.
#ifndef SESSION_SESSION_GRAPH_H_
#define SESSION_SESSION_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placer.h"
#include "proto/graph.pb.h"

namespace millrace {

// Thread-safe. Plans made before an extension stay right: nodes are only added, and edges
// only into new nodes.
class SessionGraph {
 public:
  // `ops` must outlive this object.
  explicit SessionGraph(const OpRegistry* ops);

  // Before anything else, in this order: the first graph is imported and validated, then, when
  // the devices are known, placed.
  Status Import(const pb::GraphDef& def);
  Status Place(PlacerInput placer);
  // Adds nodes; on any error the graph is as before. `expected_version` must be the current
  // one (Aborted). InvalidArgument for a name that exists or another producer version.
  // Stateful nodes stay where they are.
  Status Extend(const pb::GraphDef& def, int64_t expected_version, int64_t* new_version);

  std::shared_ptr<const DataflowGraph> snapshot() const;
  int64_t version() const;
  // Why nodes are where they are, for people: of one node, or of all for "".
  std::string ExplainPlacement(std::string_view node) const;
  // How many nodes of which op are on which device: a table for people.
  std::string PlacementSummary() const;

 private:
  // Places `graph`, whose stateful nodes may be placed already, and makes it the current one.
  Status Adopt(std::unique_ptr<DataflowGraph> graph, int64_t version);

  const OpRegistry* const ops_;
  PlacerInput placer_;  // constant once set
  std::unique_ptr<DataflowGraph> imported_;
  Mutex extend_mu_;  // one extension at a time; taken before mu_
  mutable Mutex mu_;
  std::shared_ptr<const DataflowGraph> graph_ ABSL_GUARDED_BY(mu_);
  PlacementLog log_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // SESSION_SESSION_GRAPH_H_
