#include "graph/dataflow_graph.h"

#include <algorithm>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

// What _SOURCE and _SINK are: ops without inputs and outputs that no registry needs.
const OpInfo* BoundaryOp() {
  static const OpInfo* const op = [] {
    auto* info = new OpInfo;
    info->def.set_name("NoOp");
    return info;
  }();
  return op;
}

constexpr std::size_t kSmallestBlock = 8, kLargestBlock = 4096;

bool Fits(DataType output, DataType input) {
  return output == input || (!IsRefType(input) && BaseType(output) == input);
}

}  // namespace

// ---- Node

AttrMap& Node::mutable_attrs() {
  if (kind_.use_count() > 1) kind_ = std::make_shared<Kind>(*kind_);
  return kind_->attrs;
}

const Edge* Node::input_edge(int i) const {
  const std::span<Edge* const> edges = in_edges();
  if (edges.empty()) return nullptr;
  // Slot i is the i-th edge, or lies before if slots are not connected.
  for (std::size_t at = std::min<std::size_t>(i, edges.size() - 1) + 1; at-- > 0;) {
    const Edge* const edge = edges[at];
    if (edge->dst_input == i) return edge;
    if (!edge->IsControl() && edge->dst_input < i) return nullptr;
  }
  return nullptr;
}

// ---- DataflowGraph

DataflowGraph::DataflowGraph(const OpRegistry* ops) : ops_(ops) {
  static const auto* const no_kind = new std::shared_ptr<Node::Kind>(new Node::Kind);
  for (const char* name : {"_SOURCE", "_SINK"}) {
    auto node = std::make_unique<Node>();
    node->name_ = name;
    node->op_ = BoundaryOp();
    node->kind_ = *no_kind;
    Append(std::move(node));
  }
  NewEdge(source(), kControlSlot, sink(), kControlSlot);
}

DataflowGraph::~DataflowGraph() = default;

Node* DataflowGraph::Append(std::unique_ptr<Node> node) {
  node->id_ = static_cast<int>(nodes_.size());
  Node* const added = node.get();
  by_name_.insert(added);
  nodes_.push_back(std::move(node));
  ++num_nodes_;
  return added;
}

void DataflowGraph::CopySettings(const DataflowGraph& from) {
  next_name_ = from.next_name_;
  versions_ = from.versions_;
  library_ = from.library_;
  function_ops_ = from.function_ops_;
  functions_by_name_ = from.functions_by_name_;
}

std::unique_ptr<DataflowGraph> DataflowGraph::Clone() const {
  auto copy = std::make_unique<DataflowGraph>(ops_);
  copy->edges_.clear();
  copy->nodes_.clear();
  copy->by_name_.clear();
  copy->edge_blocks_.clear();
  copy->edges_in_last_block_ = copy->last_block_size_ = 0;
  copy->nodes_.reserve(nodes_.size());
  copy->edges_.reserve(edges_.size());
  copy->by_name_.reserve(by_name_.size());
  for (const auto& node : nodes_) {
    if (node == nullptr) {
      copy->nodes_.push_back(nullptr);
      continue;
    }
    auto twin = std::make_unique<Node>(*node);
    copy->by_name_.insert(twin.get());
    copy->nodes_.push_back(std::move(twin));
  }
  for (const Edge* edge : edges_) {
    if (edge == nullptr) {
      copy->edges_.push_back(nullptr);
      continue;
    }
    Edge* const twin = copy->MakeEdge(*edge);
    twin->src = copy->nodes_[edge->src->id_].get();
    twin->dst = copy->nodes_[edge->dst->id_].get();
    copy->edges_.push_back(twin);
  }
  // The nodes were copied with pointers to our edges: turn them to the twins.
  for (const auto& node : copy->nodes_) {
    if (node == nullptr) continue;
    for (Edge*& edge : node->in_edges_.view()) edge = copy->edges_[edge->id];
    for (Edge*& edge : node->out_edges_.view()) edge = copy->edges_[edge->id];
  }
  copy->num_nodes_ = num_nodes_;
  copy->CopySettings(*this);
  return copy;
}

std::unique_ptr<DataflowGraph> DataflowGraph::CopyOf(std::span<Node* const> nodes) const {
  auto copy = std::make_unique<DataflowGraph>(ops_);
  copy->CopySettings(*this);
  copy->nodes_.reserve(nodes.size() + 2);
  copy->by_name_.reserve(nodes.size() + 2);
  absl::flat_hash_map<const Node*, Node*> twins;
  twins.reserve(nodes.size());
  std::vector<const Edge*> edges;
  edges.reserve(nodes.size() * 3);
  for (const Node* node : nodes) {
    auto twin = std::make_unique<Node>();
    twin->name_ = node->name_;
    twin->op_ = node->op_;
    twin->kind_ = node->kind_;
    twin->requested_device_ = node->requested_device_;
    twin->assigned_device_ = node->assigned_device_;
    twin->origin_ = node->origin_;
    twin->device_origin_ = node->device_origin_;
    twin->notes_ = node->notes_;
    twins.emplace(node, copy->Append(std::move(twin)));
    for (const Edge* edge : node->in_edges()) {
      if (edge->src->IsOp()) edges.push_back(edge);
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge* a, const Edge* b) { return a->id < b->id; });
  copy->edges_.reserve(edges.size() + nodes.size() / 4);
  for (const Edge* edge : edges) {
    const auto src = twins.find(edge->src);
    if (src == twins.end()) continue;
    copy->NewEdge(src->second, edge->src_output, twins.find(edge->dst)->second, edge->dst_input);
  }
  return copy;
}

StatusOr<Node*> DataflowGraph::AddNode(std::string_view name, std::string_view op, AttrMap attrs) {
  MR_ASSIGN_OR_RETURN(const OpInfo* info, LookupOp(op));
  if (by_name_.contains(name)) {
    return errors::AlreadyExists("node name '", name, "' is not unique in the graph");
  }
  AddDefaultAttrs(info->def, &attrs);
  std::shared_ptr<Node::Kind>& last = last_kinds_[info];
  const auto same_attr = [](const AttrMap::Entry& a, const AttrMap::Entry& b) {
    return a.first == b.first && a.second == b.second;
  };
  if (last == nullptr ||
      !std::equal(attrs.begin(), attrs.end(), last->attrs.begin(), last->attrs.end(), same_attr)) {
    auto kind = std::make_shared<Node::Kind>();
    Status status = ValidateAttrs(info->def, attrs);
    if (status.ok()) status = ExpandTypes(info->def, attrs, &kind->inputs, &kind->outputs);
    if (!status.ok()) return Annotate(status, StrCat("; NodeDef: {{node ", name, "}}"));
    kind->attrs = std::move(attrs);
    last = std::move(kind);
  }
  auto node = std::make_unique<Node>();
  node->name_ = name;
  node->op_ = info;
  node->kind_ = last;
  return Append(std::move(node));
}

StatusOr<Node*> DataflowGraph::AddNodeLike(std::string_view name, const Node& like) {
  if (by_name_.contains(name)) {
    return errors::AlreadyExists("node name '", name, "' is not unique in the graph");
  }
  auto node = std::make_unique<Node>();
  node->name_ = name;
  node->op_ = like.op_;
  node->kind_ = like.kind_;
  return Append(std::move(node));
}

Edge* DataflowGraph::MakeEdge(const Edge& edge) {
  Edge* made = nullptr;
  if (!free_edges_.empty()) {
    made = free_edges_.back();
    free_edges_.pop_back();
  } else {
    if (edges_in_last_block_ == last_block_size_) {
      last_block_size_ = std::clamp(last_block_size_ * 2, kSmallestBlock, kLargestBlock);
      edge_blocks_.push_back(std::make_unique<Edge[]>(last_block_size_));
      edges_in_last_block_ = 0;
    }
    made = &edge_blocks_.back()[edges_in_last_block_++];
  }
  *made = edge;
  return made;
}

void DataflowGraph::DropEdge(Edge* edge) {
  edges_[edge->id] = nullptr;
  free_edges_.push_back(edge);
}

Edge* DataflowGraph::NewEdge(Node* src, int src_output, Node* dst, int dst_input) {
  Edge* const edge =
      MakeEdge(Edge{static_cast<int>(edges_.size()), src, dst, src_output, dst_input});
  edges_.push_back(edge);
  src->out_edges_.Add(edge);
  const std::span<Edge* const> in_edges = dst->in_edges();
  std::size_t at = in_edges.size();
  if (dst_input >= 0) {
    while (at > 0 && (in_edges[at - 1]->IsControl() || in_edges[at - 1]->dst_input > dst_input)) {
      --at;
    }
  }
  dst->in_edges_.Insert(at, edge);
  return edge;
}

StatusOr<Edge*> DataflowGraph::AddEdge(Node* src, int src_output, Node* dst, int dst_input) {
  if (src_output < 0 || src_output >= src->num_outputs()) {
    return errors::InvalidArgument("Node '", dst->name(), "': Connecting to invalid output ",
                                   src_output, " of source node ", src->name(), " which has ",
                                   src->num_outputs(), " outputs.");
  }
  if (dst_input < 0 || dst_input >= dst->num_inputs()) {
    return errors::InvalidArgument("Node '", dst->name(), "' has no input ", dst_input,
                                   "; it takes ", dst->num_inputs());
  }
  if (dst->input_edge(dst_input) != nullptr) {
    return errors::InvalidArgument("input ", dst_input, " of node '", dst->name(),
                                   "' is connected already");
  }
  const DataType output = src->output_types()[src_output];
  const DataType input = dst->input_types()[dst_input];
  if (!Fits(output, input)) {
    return errors::InvalidArgument("Input ", dst_input, " of node ", dst->name(), " was passed ",
                                   DataTypeName(output), " from ", src->name(), ":", src_output,
                                   " incompatible with expected ", DataTypeName(input), ".");
  }
  return NewEdge(src, src_output, dst, dst_input);
}

Edge* DataflowGraph::AddControlEdge(Node* src, Node* dst) {
  // Look on the side with fewer edges: a hub may have thousands.
  const bool from_src = src->out_edges().size() < dst->in_edges().size();
  for (Edge* edge : from_src ? src->out_edges() : dst->in_edges()) {
    if (edge->IsControl() && edge->src == src && edge->dst == dst) return edge;
  }
  return NewEdge(src, kControlSlot, dst, kControlSlot);
}

void DataflowGraph::RemoveEdge(Edge* edge) {
  edge->src->out_edges_.Remove(edge);
  edge->dst->in_edges_.Remove(edge);
  DropEdge(edge);
}

void DataflowGraph::RemoveNode(Node* node) {
  MR_CHECK(node->IsOp());
  while (!node->in_edges_.empty()) RemoveEdge(node->in_edges_.view().back());
  while (!node->out_edges_.empty()) RemoveEdge(node->out_edges_.view().back());
  by_name_.erase(node);
  --num_nodes_;
  nodes_[node->id_].reset();
}

void DataflowGraph::RollBack(int num_node_ids, int num_edge_ids) {
  while (this->num_edge_ids() > num_edge_ids) {
    if (edges_.back() != nullptr) RemoveEdge(edges_.back());
    edges_.pop_back();
  }
  while (this->num_node_ids() > num_node_ids) {
    if (nodes_.back() != nullptr) RemoveNode(nodes_.back().get());
    nodes_.pop_back();
  }
}

void DataflowGraph::FixSourceAndSink(int first_node) {
  for (std::size_t i = static_cast<std::size_t>(first_node); i < nodes_.size(); ++i) {
    Node* const node = nodes_[i].get();
    if (node == nullptr) continue;
    if (first_node > 2) {
      for (std::size_t k = 0; k < node->in_edges().size(); ++k) {
        Node* const input = node->in_edges()[k]->src;
        if (input->IsOp() && input->id_ < first_node) FixEnds(input);
      }
    }
    FixEnds(node);
  }
}

void DataflowGraph::FixEnds(Node* node) {
  for (const bool incoming : {true, false}) {
    Node* const boundary = incoming ? source() : sink();
    const std::span<Edge* const> edges = incoming ? node->in_edges() : node->out_edges();
    const auto at_boundary = [&](const Edge* edge) {
      return (incoming ? edge->src : edge->dst) == boundary;
    };
    if (edges.empty()) {
      incoming ? NewEdge(boundary, kControlSlot, node, kControlSlot)
               : NewEdge(node, kControlSlot, boundary, kControlSlot);
    } else if (edges.size() > 1) {
      // Mostly there is no such edge among the many.
      const auto stale = std::find_if(edges.begin(), edges.end(), at_boundary);
      if (stale != edges.end() && !std::all_of(edges.begin(), edges.end(), at_boundary)) {
        RemoveEdge(*stale);
      }
    }
  }
}

Node* DataflowGraph::FindNode(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : *it;
}

std::vector<Node*> DataflowGraph::OpNodes() const {
  std::vector<Node*> nodes;
  nodes.reserve(static_cast<std::size_t>(num_nodes_));
  for (std::size_t i = 2; i < nodes_.size(); ++i) {
    if (nodes_[i] != nullptr) nodes.push_back(nodes_[i].get());
  }
  return nodes;
}

std::string DataflowGraph::NewName(std::string_view prefix) {
  for (;;) {
    std::string name = StrCat(prefix, "/_", next_name_++);
    if (!by_name_.contains(name)) return name;
  }
}

void DataflowGraph::set_library(FunctionLibrary library) {
  library_ = std::move(library);
  functions_by_name_.clear();
  if (library_ == nullptr) return;
  for (const pb::FunctionDef& function : library_->function()) {
    auto info = std::make_shared<OpInfo>();
    info->def = function.signature();
    functions_by_name_.emplace(info->def.name(), info.get());
    function_ops_.push_back(std::move(info));
  }
}

StatusOr<const OpInfo*> DataflowGraph::LookupOp(std::string_view name) const {
  auto it = functions_by_name_.find(name);
  if (it != functions_by_name_.end()) return it->second;
  return ops_->Lookup(name);
}

}  // namespace millrace
