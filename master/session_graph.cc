// SPDX-License-Identifier: Apache-2.0
#include "master/session_graph.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "graph/graph_def_io.h"

namespace millrace {

SessionGraph::SessionGraph(const OpRegistry* ops, bool keep_control_flow)
    : ops_(ops),
      keep_control_flow_(keep_control_flow),
      graph_(std::make_unique<DataflowGraph>(ops)) {}

Status SessionGraph::Import(const pb::GraphDef& def) {
  MutexLock lock(&mu_);
  graph_ = std::make_unique<DataflowGraph>(ops_);
  MR_RETURN_IF_ERROR(ImportGraphDef({}, def, graph_.get()));
  return Lower(2);
}

Status SessionGraph::Import(NodeBatch nodes) {
  if (&nodes.graph->ops() != ops_) {
    pb::GraphDef def;
    MR_RETURN_IF_ERROR(ExportNodes(nodes, {.origins = true}, &def));
    return Import(def);
  }
  MutexLock lock(&mu_);
  graph_ = std::move(nodes.graph);
  return Lower(2);
}

Status SessionGraph::Lower(int first_node) {
  if (graph_->library() == nullptr) return OkStatus();
  const LoweringOptions options = {.first_node = first_node,
                                   .keep_control_flow = keep_control_flow_};
  MR_RETURN_IF_ERROR(LowerFunctions(options, &bodies_, graph_.get()));
  graph_->FixSourceAndSink(first_node);
  return OkStatus();
}

Status SessionGraph::Place(PlacerInput placer) {
  placer_ = std::move(placer);
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(PlaceAll(2));
  CollectLabels(*graph_, 2, graph_->num_node_ids(), &labels_);
  return OkStatus();
}

Status SessionGraph::Extend(const pb::GraphDef& def, int64_t expected_version,
                            int64_t* new_version) {
  return ExtendBy(def.versions(), expected_version, new_version,
                  [&](DataflowGraph* graph) { return ImportGraphDef({}, def, graph); });
}

Status SessionGraph::Extend(const NodeBatch& nodes, int64_t expected_version,
                            int64_t* new_version) {
  return ExtendBy(nodes.graph->versions(), expected_version, new_version,
                  [&](DataflowGraph* graph) -> Status {
                    if (CanAddNodes(nodes, *graph)) return AddNodes(nodes, graph);
                    pb::GraphDef def;
                    MR_RETURN_IF_ERROR(ExportNodes(nodes, {.origins = true}, &def));
                    return ImportGraphDef({}, def, graph);
                  });
}

Status SessionGraph::ExtendBy(const pb::VersionDef& versions_added, int64_t expected_version,
                              int64_t* new_version,
                              const std::function<Status(DataflowGraph* graph)>& add) {
  MutexLock lock(&mu_);
  if (expected_version != version_) {
    return errors::Aborted("Current version is ", version_, " but caller expected ",
                           expected_version, ".");
  }
  const bool empty = graph_->num_nodes() <= 2;  // source and sink
  if (!empty && graph_->versions().producer() != versions_added.producer()) {
    return errors::InvalidArgument("Can't extend GraphDef at version ",
                                   graph_->versions().producer(), " with graph at version ",
                                   versions_added.producer(), ".");
  }
  const int num_nodes = graph_->num_node_ids(), num_edges = graph_->num_edge_ids();
  const pb::VersionDef versions = graph_->versions();
  const std::shared_ptr<const FunctionLibrary> library = graph_->library();
  Status status = add(graph_.get());
  if (status.ok()) status = Lower(num_nodes);
  if (status.ok()) status = PlaceFrom(num_nodes);
  if (!status.ok()) {
    graph_->RollBack(num_nodes, num_edges);
    graph_->FixSourceAndSink();
    if (graph_->library() != library) graph_->set_library(library);
    *graph_->mutable_versions() = versions;
    return status;
  }
  CollectLabels(*graph_, num_nodes, graph_->num_node_ids(), &labels_);
  *new_version = ++version_;
  return OkStatus();
}

Status SessionGraph::PlaceFrom(int first_node) {
  const StatusOr<bool> placed = PlaceAdded(graph_.get(), first_node, labels_, placer_, nullptr);
  if (!placed.ok()) return placed.status();
  if (!*placed) return PlaceAll(first_node);
  placings_.push_back({.first_node = first_node, .end_node = graph_->num_node_ids()});
  return OkStatus();
}

Status SessionGraph::PlaceAll(int first_node) {
  const std::vector<Node*> nodes = graph_->OpNodes();
  std::vector<InternedString> before;
  before.reserve(nodes.size());
  for (Node* node : nodes) {
    before.push_back(node->shared_assigned_device());
    if (!node->is_stateful()) node->set_assigned_device({});
  }
  if (Status status = millrace::Place(graph_.get(), placer_, nullptr); !status.ok()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i]->set_assigned_device(before[i]);
    return status;
  }
  placings_.clear();
  placings_.push_back({.all = true, .first_node = first_node, .end_node = graph_->num_node_ids()});
  return OkStatus();
}

PlacementLog SessionGraph::Record(const Placing& placing) const {
  std::vector<Node*> nodes = graph_->OpNodes();
  std::erase_if(nodes, [&](const Node* node) { return node->id() >= placing.end_node; });
  const std::unique_ptr<DataflowGraph> copy = graph_->CopyOf(nodes);
  copy->FixSourceAndSink();
  int first_node = 2;  // in the copy, whose ids are dense
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool is_old = nodes[i]->id() < placing.first_node;
    first_node += is_old;
    const bool stayed = is_old && (!placing.all || nodes[i]->is_stateful());
    if (!stayed) copy->node(static_cast<int>(i) + 2)->set_assigned_device({});
  }
  PlacementLog log;
  Status status;
  if (placing.all) {
    status = millrace::Place(copy.get(), placer_, &log);
  } else {
    StringSet labels;
    CollectLabels(*copy, 2, first_node, &labels);
    status = PlaceAdded(copy.get(), first_node, labels, placer_, &log).status();
  }
  // It went well the first time, with the same arguments.
  if (!status.ok()) MR_LOG(kError, "placing a graph again: ", Message(status));
  return log;
}

std::vector<PlacementLog> SessionGraph::RecordAll() const {
  std::vector<PlacementLog> logs;
  for (const Placing& placing : placings_) logs.push_back(Record(placing));
  return logs;
}

std::vector<PlacementLog> SessionGraph::RecordPlacement() const {
  MutexLock lock(&mu_);
  return RecordAll();
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
  if (node.empty()) {
    for (const PlacementLog& log : RecordAll()) text += log.ToText();
    return text;
  }
  if (placings_.empty()) return text;
  const Node* const found = graph_->FindNode(node);
  const int id = found == nullptr ? 0 : found->id();
  const auto placing = std::find_if(placings_.begin(), placings_.end(),
                                    [id](const Placing& p) { return id < p.end_node; });
  return Record(placing == placings_.end() ? placings_.front() : *placing).ToText(node);
}

std::string SessionGraph::PlacementSummary() const {
  MutexLock lock(&mu_);
  return PlacementLog::Summary(RecordAll());
}

}  // namespace millrace
