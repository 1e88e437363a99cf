#include "session/session_graph.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/graph_def_io.h"

namespace millrace {

SessionGraph::SessionGraph(const OpRegistry* ops)
    : ops_(ops), graph_(std::make_unique<DataflowGraph>(ops)) {}

Status SessionGraph::Import(const pb::GraphDef& def) {
  MutexLock lock(&mu_);
  graph_ = std::make_unique<DataflowGraph>(ops_);
  return Add(def);
}

Status SessionGraph::Add(const pb::GraphDef& def) {
  const int num_nodes = graph_->num_node_ids();
  MR_RETURN_IF_ERROR(ImportGraphDef({}, def, graph_.get()));
  if (graph_->library() == nullptr) return OkStatus();
  MR_RETURN_IF_ERROR(LowerFunctions({.first_node = num_nodes}, &bodies_, graph_.get()));
  graph_->FixSourceAndSink(num_nodes);
  return OkStatus();
}

Status SessionGraph::Place(PlacerInput placer) {
  placer_ = std::move(placer);
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(PlaceAll());
  CollectLabels(*graph_, 2, &labels_);
  return OkStatus();
}

Status SessionGraph::Extend(const pb::GraphDef& def, int64_t expected_version,
                            int64_t* new_version) {
  MutexLock lock(&mu_);
  if (expected_version != version_) {
    return errors::Aborted("Current version is ", version_, " but caller expected ",
                           expected_version, ".");
  }
  for (const pb::NodeDef& node : def.node()) {
    if (graph_->FindNode(node.name()) != nullptr) {
      return errors::InvalidArgument("GraphDef argument to Extend includes node '", node.name(),
                                     "', which was created by a previous call to Create or Extend "
                                     "in this session.");
    }
  }
  const bool empty = graph_->num_nodes() <= 2;  // source and sink
  if (!empty && graph_->versions().producer() != def.versions().producer()) {
    return errors::InvalidArgument("Can't extend GraphDef at version ",
                                   graph_->versions().producer(), " with graph at version ",
                                   def.versions().producer(), ".");
  }
  const int num_nodes = graph_->num_node_ids(), num_edges = graph_->num_edge_ids();
  const pb::VersionDef versions = graph_->versions();
  const std::shared_ptr<const FunctionLibrary> library = graph_->library();
  Status status = Add(def);
  if (status.ok()) status = PlaceFrom(num_nodes);
  if (!status.ok()) {
    graph_->RollBack(num_nodes, num_edges);
    graph_->FixSourceAndSink();
    if (graph_->library() != library) graph_->set_library(library);
    *graph_->mutable_versions() = versions;
    return status;
  }
  CollectLabels(*graph_, num_nodes, &labels_);
  *new_version = ++version_;
  return OkStatus();
}

Status SessionGraph::PlaceFrom(int first_node) {
  PlacementLog log;
  const StatusOr<bool> placed = PlaceAdded(graph_.get(), first_node, labels_, placer_, &log);
  if (!placed.ok()) return placed.status();
  if (!*placed) return PlaceAll();
  logs_.push_back(std::move(log));
  return OkStatus();
}

Status SessionGraph::PlaceAll() {
  const std::vector<Node*> nodes = graph_->OpNodes();
  std::vector<InternedString> before;
  before.reserve(nodes.size());
  for (Node* node : nodes) {
    before.emplace_back(node->assigned_device());
    if (!node->is_stateful()) node->set_assigned_device("");
  }
  PlacementLog log;
  if (Status status = millrace::Place(graph_.get(), placer_, &log); !status.ok()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i]->set_assigned_device(before[i]);
    return status;
  }
  logs_.clear();
  logs_.push_back(std::move(log));
  return OkStatus();
}

void SessionGraph::Read(const std::function<void(const DataflowGraph& graph)>& reader) const {
  MutexLock lock(&mu_);
  reader(*graph_);
}

int64_t SessionGraph::version() const {
  MutexLock lock(&mu_);
  return version_;
}

std::string SessionGraph::ExplainPlacement(std::string_view node) const {
  MutexLock lock(&mu_);
  std::string text;
  for (const PlacementLog& log : logs_) {
    if (node.empty()) {
      text += log.ToText();
    } else if (log.Knows(node)) {
      return log.ToText(node);
    }
  }
  return node.empty() || logs_.empty() ? text : logs_.front().ToText(node);
}

std::string SessionGraph::PlacementSummary() const {
  MutexLock lock(&mu_);
  return PlacementLog::Summary(logs_);
}

}  // namespace millrace
