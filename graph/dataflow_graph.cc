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

template <typename T>
void EraseFrom(std::vector<T*>* items, T* item) {
  auto it = std::find(items->begin(), items->end(), item);
  if (it != items->end()) items->erase(it);
}

bool Fits(DataType output, DataType input) {
  return output == input || (!IsRefType(input) && BaseType(output) == input);
}

}  // namespace

DataflowGraph::DataflowGraph(const OpRegistry* ops) : ops_(ops) {
  for (const char* name : {"_SOURCE", "_SINK"}) {
    auto node = std::make_unique<Node>();
    node->id_ = num_nodes_++;
    node->name_ = name;
    node->op_ = BoundaryOp();
    by_name_.emplace(name, node.get());
    nodes_.push_back(std::move(node));
  }
  NewEdge(source(), kControlSlot, sink(), kControlSlot);
}

DataflowGraph::~DataflowGraph() = default;

std::unique_ptr<DataflowGraph> DataflowGraph::Clone() const {
  auto copy = std::make_unique<DataflowGraph>(ops_);
  copy->edges_.clear();
  copy->nodes_.clear();
  copy->by_name_.clear();
  copy->nodes_.reserve(nodes_.size());
  copy->edges_.reserve(edges_.size());
  for (const auto& node : nodes_) {
    if (node == nullptr) {
      copy->nodes_.push_back(nullptr);
      continue;
    }
    auto twin = std::make_unique<Node>(*node);
    copy->by_name_.emplace(twin->name_, twin.get());
    copy->nodes_.push_back(std::move(twin));
  }
  for (const auto& edge : edges_) {
    if (edge == nullptr) {
      copy->edges_.push_back(nullptr);
      continue;
    }
    auto twin = std::make_unique<Edge>(*edge);
    twin->src = copy->nodes_[edge->src->id_].get();
    twin->dst = copy->nodes_[edge->dst->id_].get();
    copy->edges_.push_back(std::move(twin));
  }
  // The nodes were copied with pointers to our edges: turn them to the twins.
  for (const auto& node : copy->nodes_) {
    if (node == nullptr) continue;
    for (auto* list : {&node->in_edges_, &node->out_edges_, &node->input_slots_}) {
      for (Edge*& edge : *list) edge = edge == nullptr ? nullptr : copy->edges_[edge->id].get();
    }
  }
  copy->num_nodes_ = num_nodes_;
  copy->next_name_ = next_name_;
  copy->versions_ = versions_;
  copy->library_ = library_;
  copy->function_ops_ = function_ops_;
  copy->functions_by_name_ = functions_by_name_;
  return copy;
}

StatusOr<Node*> DataflowGraph::AddNode(std::string_view name, std::string_view op, AttrMap attrs) {
  MR_ASSIGN_OR_RETURN(const OpInfo* info, LookupOp(op));
  if (by_name_.contains(name)) {
    return errors::AlreadyExists("node name '", name, "' is not unique in the graph");
  }
  AddDefaultAttrs(info->def, &attrs);
  auto node = std::make_unique<Node>();
  Status status = ValidateAttrs(info->def, attrs);
  if (status.ok()) {
    status = ExpandTypes(info->def, attrs, &node->input_types_, &node->output_types_);
  }
  if (!status.ok()) return Annotate(status, StrCat("; NodeDef: {{node ", name, "}}"));
  node->id_ = static_cast<int>(nodes_.size());
  node->name_ = name;
  node->op_ = info;
  node->attrs_ = std::move(attrs);
  node->input_slots_.assign(node->input_types_.size(), nullptr);
  Node* added = node.get();
  by_name_.emplace(added->name_, added);
  nodes_.push_back(std::move(node));
  ++num_nodes_;
  return added;
}

Edge* DataflowGraph::NewEdge(Node* src, int src_output, Node* dst, int dst_input) {
  edges_.push_back(std::make_unique<Edge>(
      Edge{static_cast<int>(edges_.size()), src, dst, src_output, dst_input}));
  Edge* edge = edges_.back().get();
  src->out_edges_.push_back(edge);
  dst->in_edges_.push_back(edge);
  if (dst_input >= 0) dst->input_slots_[dst_input] = edge;
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
  if (dst->input_slots_[dst_input] != nullptr) {
    return errors::InvalidArgument("input ", dst_input, " of node '", dst->name(),
                                   "' is connected already");
  }
  const DataType output = src->output_types_[src_output];
  const DataType input = dst->input_types_[dst_input];
  if (!Fits(output, input)) {
    return errors::InvalidArgument("Input ", dst_input, " of node ", dst->name(), " was passed ",
                                   DataTypeName(output), " from ", src->name(), ":", src_output,
                                   " incompatible with expected ", DataTypeName(input), ".");
  }
  return NewEdge(src, src_output, dst, dst_input);
}

Edge* DataflowGraph::AddControlEdge(Node* src, Node* dst) {
  // Look on the side with fewer edges: a hub may have thousands.
  const bool from_src = src->out_edges_.size() < dst->in_edges_.size();
  for (Edge* edge : from_src ? src->out_edges_ : dst->in_edges_) {
    if (edge->IsControl() && edge->src == src && edge->dst == dst) return edge;
  }
  return NewEdge(src, kControlSlot, dst, kControlSlot);
}

void DataflowGraph::RemoveEdge(Edge* edge) {
  EraseFrom(&edge->src->out_edges_, edge);
  EraseFrom(&edge->dst->in_edges_, edge);
  if (!edge->IsControl()) edge->dst->input_slots_[edge->dst_input] = nullptr;
  edges_[edge->id].reset();
}

void DataflowGraph::RemoveNode(Node* node) {
  MR_CHECK(node->IsOp());
  while (!node->in_edges_.empty()) RemoveEdge(node->in_edges_.back());
  while (!node->out_edges_.empty()) RemoveEdge(node->out_edges_.back());
  by_name_.erase(node->name_);
  --num_nodes_;
  nodes_[node->id_].reset();
}

void DataflowGraph::RollBack(int num_node_ids, int num_edge_ids) {
  while (this->num_edge_ids() > num_edge_ids) {
    if (edges_.back() != nullptr) RemoveEdge(edges_.back().get());
    edges_.pop_back();
  }
  while (this->num_node_ids() > num_node_ids) {
    if (nodes_.back() != nullptr) RemoveNode(nodes_.back().get());
    nodes_.pop_back();
  }
}

void DataflowGraph::FixSourceAndSink() {
  const auto only_touches = [](const std::vector<Edge*>& edges, bool incoming, Node* boundary) {
    return std::all_of(edges.begin(), edges.end(), [&](const Edge* edge) {
      return (incoming ? edge->src : edge->dst) == boundary;
    });
  };
  for (std::size_t i = 2; i < nodes_.size(); ++i) {
    Node* node = nodes_[i].get();
    if (node == nullptr) continue;
    for (const bool incoming : {true, false}) {
      Node* boundary = incoming ? source() : sink();
      const std::vector<Edge*>& edges = incoming ? node->in_edges_ : node->out_edges_;
      if (edges.empty()) {
        incoming ? NewEdge(boundary, kControlSlot, node, kControlSlot)
                 : NewEdge(node, kControlSlot, boundary, kControlSlot);
      } else if (!only_touches(edges, incoming, boundary)) {
        const auto stale = std::find_if(edges.begin(), edges.end(), [&](const Edge* edge) {
          return (incoming ? edge->src : edge->dst) == boundary;
        });
        if (stale != edges.end()) RemoveEdge(*stale);
      }
    }
  }
}

Node* DataflowGraph::FindNode(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
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
