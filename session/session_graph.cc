#include "session/session_graph.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/graph_def_io.h"

namespace millrace {

SessionGraph::SessionGraph(const OpRegistry* ops)
    : ops_(ops), graph_(std::make_shared<DataflowGraph>(ops)) {}

Status SessionGraph::Import(const pb::GraphDef& def) {
  imported_ = std::make_unique<DataflowGraph>(ops_);
  return ImportGraphDef({}, def, imported_.get());
}

Status SessionGraph::Place(PlacerInput placer) {
  placer_ = std::move(placer);
  return Adopt(std::move(imported_), 0);
}

Status SessionGraph::Extend(const pb::GraphDef& def, int64_t expected_version,
                            int64_t* new_version) {
  MutexLock extend(&extend_mu_);
  std::shared_ptr<const DataflowGraph> old;
  {
    MutexLock lock(&mu_);
    if (expected_version != version_) {
      return errors::Aborted("Current version is ", version_, " but caller expected ",
                             expected_version, ".");
    }
    old = graph_;
  }
  for (const pb::NodeDef& node : def.node()) {
    if (old->FindNode(node.name()) != nullptr) {
      return errors::InvalidArgument("GraphDef argument to Extend includes node '", node.name(),
                                     "', which was created by a previous call to Create or Extend "
                                     "in this session.");
    }
  }
  const bool empty = old->num_nodes() <= 2;  // source and sink
  if (!empty && old->versions().producer() != def.versions().producer()) {
    return errors::InvalidArgument("Can't extend GraphDef at version ", old->versions().producer(),
                                   " with graph at version ", def.versions().producer(), ".");
  }
  std::unique_ptr<DataflowGraph> graph =
      empty ? std::make_unique<DataflowGraph>(ops_) : old->Clone();
  MR_RETURN_IF_ERROR(ImportGraphDef({}, def, graph.get()));
  MR_RETURN_IF_ERROR(Adopt(std::move(graph), expected_version + 1));
  *new_version = expected_version + 1;
  return OkStatus();
}

Status SessionGraph::Adopt(std::unique_ptr<DataflowGraph> graph, int64_t version) {
  for (Node* node : graph->OpNodes()) {
    if (!node->is_stateful()) node->set_assigned_device("");
  }
  PlacementLog log;
  MR_RETURN_IF_ERROR(millrace::Place(graph.get(), placer_, &log));
  MutexLock lock(&mu_);
  graph_ = std::move(graph);
  log_ = std::move(log);
  version_ = version;
  return OkStatus();
}

std::shared_ptr<const DataflowGraph> SessionGraph::snapshot() const {
  MutexLock lock(&mu_);
  return graph_;
}

int64_t SessionGraph::version() const {
  MutexLock lock(&mu_);
  return version_;
}

std::string SessionGraph::ExplainPlacement(std::string_view node) const {
  MutexLock lock(&mu_);
  return node.empty() ? log_.ToText() : log_.ToText(node);
}

std::string SessionGraph::PlacementSummary() const {
  MutexLock lock(&mu_);
  return log_.Summary();
}

}  // namespace millrace
