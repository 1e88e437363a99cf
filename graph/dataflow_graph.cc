// SPDX-License-Identifier: Apache-2.0
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

// Clients add outputs to branches and loops for their gradients, also after the node was sent.
std::string_view HintOfIntermediates(const Node& source) {
  const std::string_view op = source.op().def.name();
  for (const char* known :
       {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}) {
    if (op == known) {
      return " Try using tf.compat.v1.experimental.output_all_intermediates(True).";
    }
  }
  return "";
}

// Below one in so many of all, what is wanted is collected and sorted; else all are looked at.
constexpr std::size_t kFew = 16;

bool Fits(DataType output, DataType input) {
  return output == input || (!IsRefType(input) && BaseType(output) == input);
}

}  // namespace

// ---- Node

void Node::CopyFrom(const Node& other) {
  op_ = other.op_;
  kind_ = other.kind_;
  requested_device_ = other.requested_device_;
  assigned_device_ = other.assigned_device_;
  origin_ = other.origin_;
  device_origin_ = other.device_origin_;
  notes_ = other.notes_;
}

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
    Node* const node = NewNode(name, NameHash::Short(name));
    node->op_ = BoundaryOp();
    node->kind_ = *no_kind;
    Append(node);
  }
  NewEdge(source(), kControlSlot, sink(), kControlSlot);
}

DataflowGraph::~DataflowGraph() {
  for (Node* node : nodes_) {
    if (node != nullptr) node_slab_.Delete(node);
  }
  if (Slab<Edge>::kFreesWhatIsLeft) return;
  for (Edge* edge : edges_) {
    if (edge != nullptr) edge_slab_.Delete(edge);
  }
}

Node* DataflowGraph::NewNode(std::string_view name, uint32_t name_hash) {
  Node* const node = node_slab_.New();
  node->name_ = name;
  node->name_hash_ = name_hash;
  return node;
}

Node* DataflowGraph::Append(Node* node) {
  node->id_ = static_cast<int>(nodes_.size());
  by_name_.insert(node);
  nodes_.push_back(node);
  ++num_nodes_;
  return node;
}

void DataflowGraph::CopySettings(const DataflowGraph& from) {
  next_name_ = from.next_name_;
  versions_ = from.versions_;
  library_ = from.library_;
}

std::unique_ptr<DataflowGraph> DataflowGraph::Clone() const {
  auto copy = std::make_unique<DataflowGraph>(ops_);
  copy->nodes_.reserve(nodes_.size());
  copy->edges_.reserve(edges_.size());
  copy->by_name_.reserve(by_name_.size());
  for (std::size_t i = 2; i < nodes_.size(); ++i) {
    const Node* const node = nodes_[i];
    if (node == nullptr) {
      copy->nodes_.push_back(nullptr);
      continue;
    }
    Node* const twin = copy->NewNode(node->name_, node->name_hash_);
    twin->CopyFrom(*node);
    copy->Append(twin);
  }
  copy->RemoveEdge(copy->edges_[0]);
  copy->edges_.clear();
  for (const Edge* edge : edges_) {
    if (edge == nullptr) {
      copy->edges_.push_back(nullptr);
      continue;
    }
    copy->edges_.push_back(copy->edge_slab_.New(Edge{edge->id, copy->nodes_[edge->src->id_],
                                                     copy->nodes_[edge->dst->id_], edge->src_output,
                                                     edge->dst_input}));
  }
  for (const Node* node : nodes_) {
    if (node == nullptr) continue;
    Node* const twin = copy->nodes_[node->id_];
    for (const Edge* edge : node->in_edges()) twin->in_edges_.Add(copy->edges_[edge->id]);
    for (const Edge* edge : node->out_edges()) twin->out_edges_.Add(copy->edges_[edge->id]);
  }
  copy->CopySettings(*this);
  return copy;
}

std::unique_ptr<DataflowGraph> DataflowGraph::CopyOf(std::span<Node* const> nodes) const {
  auto copy = std::make_unique<DataflowGraph>(ops_);
  copy->CopySettings(*this);
  copy->nodes_.reserve(nodes.size() + 2);
  copy->by_name_.reserve(nodes.size() + 2);
  // Twins by id, if that is not too much for these few.
  const bool few = nodes.size() * kFew < nodes_.size();
  absl::flat_hash_map<const Node*, Node*> twin_of;
  LargeVector<Node*> twins(few ? 0 : nodes_.size());
  std::size_t num_edges = 0;
  for (const Node* node : nodes) {
    Node* const twin = copy->NewNode(node->name_, node->name_hash_);
    twin->CopyFrom(*node);
    copy->Append(twin);
    if (few) {
      twin_of.emplace(node, twin);
    } else {
      twins[node->id_] = twin;
    }
    num_edges += node->in_edges().size();
  }
  copy->edges_.reserve(num_edges + nodes.size() / 4);
  if (!few) {
    for (const Edge* edge : edges_) {
      if (edge == nullptr || !edge->src->IsOp() || !edge->dst->IsOp()) continue;
      Node* const src = twins[edge->src->id_];
      Node* const dst = twins[edge->dst->id_];
      if (src == nullptr || dst == nullptr) continue;
      copy->NewEdge(src, edge->src_output, dst, edge->dst_input);
    }
    return copy;
  }
  std::vector<const Edge*> edges;
  edges.reserve(num_edges);
  for (const Node* node : nodes) {
    for (const Edge* edge : node->in_edges()) {
      if (edge->src->IsOp() && twin_of.contains(edge->src)) edges.push_back(edge);
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge* a, const Edge* b) { return a->id < b->id; });
  for (const Edge* edge : edges) {
    copy->NewEdge(twin_of.find(edge->src)->second, edge->src_output,
                  twin_of.find(edge->dst)->second, edge->dst_input);
  }
  return copy;
}

StatusOr<uint32_t> DataflowGraph::CheckName(std::string_view name) const {
  const uint32_t hash = NameHash::Short(name);
  if (by_name_.find(name, NameHash::Spread(hash)) != by_name_.end()) {
    return errors::AlreadyExists("node name '", name, "' is not unique in the graph");
  }
  return hash;
}

StatusOr<Node*> DataflowGraph::AddNode(std::string_view name, std::string_view op, AttrMap attrs) {
  MR_ASSIGN_OR_RETURN(const OpInfo* info, LookupOp(op));
  MR_ASSIGN_OR_RETURN(const uint32_t hash, CheckName(name));
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
  Node* const node = NewNode(name, hash);
  node->op_ = info;
  node->kind_ = last;
  return Append(node);
}

StatusOr<Node*> DataflowGraph::AddNodeLike(std::string_view name, const Node& like) {
  MR_ASSIGN_OR_RETURN(const uint32_t hash, CheckName(name));
  Node* const node = NewNode(name, hash);
  node->op_ = like.op_;
  node->kind_ = like.kind_;
  return Append(node);
}

StatusOr<Node*> DataflowGraph::AddCopyOf(const Node& node) {
  if (by_name_.find(node.name_, NameHash()(&node)) != by_name_.end()) {
    return CheckName(node.name_).status();
  }
  Node* const copy = NewNode(node.name_, node.name_hash_);
  copy->CopyFrom(node);
  return Append(copy);
}

void DataflowGraph::DropEdge(Edge* edge) {
  edges_[edge->id] = nullptr;
  edge_slab_.Delete(edge);
}

Edge* DataflowGraph::NewEdge(Node* src, int src_output, Node* dst, int dst_input) {
  Edge* const edge =
      edge_slab_.New(Edge{static_cast<int>(edges_.size()), src, dst, src_output, dst_input});
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
                                   src->num_outputs(), " outputs.", HintOfIntermediates(*src));
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
  nodes_[node->id_] = nullptr;
  node_slab_.Delete(node);
}

void DataflowGraph::RollBack(int num_node_ids, int num_edge_ids) {
  while (this->num_edge_ids() > num_edge_ids) {
    if (edges_.back() != nullptr) RemoveEdge(edges_.back());
    edges_.pop_back();
  }
  while (this->num_node_ids() > num_node_ids) {
    if (nodes_.back() != nullptr) RemoveNode(nodes_.back());
    nodes_.pop_back();
  }
}

void DataflowGraph::FixSourceAndSink(int first_node) {
  for (std::size_t i = static_cast<std::size_t>(first_node); i < nodes_.size(); ++i) {
    Node* const node = nodes_[i];
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
    if (nodes_[i] != nullptr) nodes.push_back(nodes_[i]);
  }
  return nodes;
}

std::string DataflowGraph::NewName(std::string_view prefix) {
  for (;;) {
    std::string name = StrCat(prefix, "/_", next_name_++);
    if (!by_name_.contains(name)) return name;
  }
}

bool DataflowGraph::IsCall(const Node& node) const {
  if (library_ == nullptr) return false;
  const Function* const function = library_->Find(node.type());
  return function != nullptr && &function->op == &node.op();
}

StatusOr<const OpInfo*> DataflowGraph::LookupOp(std::string_view name) const {
  if (library_ != nullptr) {
    if (const Function* function = library_->Find(name)) return &function->op;
  }
  return ops_->Lookup(name);
}

}  // namespace millrace
