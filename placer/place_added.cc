// SPDX-License-Identifier: Apache-2.0
#include "placer/place_added.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "graph/functions/isolate_calls.h"
#include "placer/colocation.h"
#include "placer/op_kinds.h"

namespace millrace {
namespace {

// How many consumers of an old node are looked at.
constexpr std::size_t kMaxConsumers = 64;

// Where it is follows from its consumers, and may change with them.
bool FollowsConsumers(const Node& node) {
  return node.num_inputs() == 0 && node.num_outputs() == 1 && !node.is_stateful() &&
         !IsRefType(node.output_types()[0]);
}

bool MayFollowInput(const Node& node) {
  return IsMetadataOp(node.type()) ||
         (node.type() == "Identity" && node.requested_device().empty());
}

class Addition {
 public:
  Addition(DataflowGraph* graph, int first_node, const StringSet& labels)
      : graph_(graph), first_node_(first_node), labels_(labels), part_(&graph->ops()) {}

  // If the new nodes can be looked at alone.
  bool IsSimple() const {
    for (int id = first_node_; id < graph_->num_node_ids(); ++id) {
      const Node* const node = graph_->node(id);
      if (node == nullptr) continue;
      if (labels_.contains(node->name()) || ReturnsResources(*node)) return false;
      for (const std::string_view label : ClassLabels(*node)) {
        const Node* const named = graph_->FindNode(label);
        if (labels_.contains(label) || (named != nullptr && named->id() < first_node_))
          return false;
      }
      for (const Edge* edge : node->in_edges()) {
        if (IsOld(*edge->src) && !LeavesSource(*edge)) return false;
      }
    }
    return true;
  }

  // The new nodes and, as placed before, their inputs.
  Status MakePart() {
    if (graph_->library() != nullptr) part_.set_library(graph_->library());
    std::vector<const Node*> old;
    for (int id = first_node_; id < graph_->num_node_ids(); ++id) {
      const Node* const node = graph_->node(id);
      if (node == nullptr) continue;
      for (const Edge* edge : node->in_edges()) {
        if (IsOld(*edge->src)) old.push_back(edge->src);
      }
    }
    std::sort(old.begin(), old.end(), [](auto* a, auto* b) { return a->id() < b->id(); });
    old.erase(std::unique(old.begin(), old.end()), old.end());
    for (const Node* node : old) {
      MR_ASSIGN_OR_RETURN(Node* const twin, Add(*node));
      twin->set_assigned_device(node->shared_assigned_device());
    }
    for (int id = first_node_; id < graph_->num_node_ids(); ++id) {
      if (graph_->node(id) != nullptr) MR_RETURN_IF_ERROR(Add(*graph_->node(id)).status());
    }
    for (int id = first_node_; id < graph_->num_node_ids(); ++id) {
      const Node* const node = graph_->node(id);
      if (node == nullptr) continue;
      Node* const twin = twins_[node];
      for (const Edge* edge : node->in_edges()) {
        if (!edge->src->IsOp()) continue;
        if (edge->IsControl()) {
          part_.AddControlEdge(twins_[edge->src], twin);
        } else {
          MR_RETURN_IF_ERROR(
              part_.AddEdge(twins_[edge->src], edge->src_output, twin, edge->dst_input).status());
        }
      }
    }
    part_.FixSourceAndSink();
    return OkStatus();
  }

  // If every old constant would still be where it is.
  bool OldOnesStay() const {
    for (int id = first_node_; id < graph_->num_node_ids(); ++id) {
      const Node* const node = graph_->node(id);
      if (node == nullptr) continue;
      const std::string& here = twins_.find(node)->second->assigned_device();
      for (const Edge* edge : node->in_edges()) {
        const Node& src = *edge->src;
        if (!IsOld(src) || !FollowsConsumers(src) || here == src.assigned_device()) continue;
        if (!OldConsumersDisagree(src)) return false;
      }
    }
    return true;
  }

  void Adopt(PlacementLog* log) {
    for (const auto& [node, twin] : twins_) {
      if (IsOld(*node)) {
        if (log != nullptr) log->MarkAsNeighbour(twin->id());
      } else {
        graph_->node(node->id())->set_assigned_device(twin->shared_assigned_device());
      }
    }
  }

  DataflowGraph* part() { return &part_; }

 private:
  bool IsOld(const Node& node) const { return node.IsOp() && node.id() < first_node_; }

  StatusOr<Node*> Add(const Node& node) {
    MR_ASSIGN_OR_RETURN(Node* const twin, part_.AddCopyOf(node));
    twin->set_assigned_device({});
    twins_.emplace(&node, twin);
    return twin;
  }

  // If an edge from an old node leaves that node, and its group, as they are.
  bool LeavesSource(const Edge& edge) const {
    const Node& src = *edge.src;
    if (src.assigned_device().empty()) return false;
    if (TiesTogether(edge) && !src.is_stateful()) return false;
    // The placer looks at constants last: nodes that follow their input do not follow these.
    if (FollowsConsumers(src) && MayFollowInput(*edge.dst)) return false;
    // An identity between two nodes is a rule of its own; with another consumer it is not.
    if (src.type() == "Identity" && src.requested_device().empty() && src.in_edges().size() == 1) {
      return OldConsumers(src) > 1;
    }
    return true;
  }

  int OldConsumers(const Node& node) const {
    int count = 0;
    for (const Edge* edge : node.out_edges()) {
      if (IsOld(*edge->dst) && ++count > 1) break;
    }
    return count;
  }

  bool OldConsumersDisagree(const Node& node) const {
    const std::string* device = nullptr;
    std::size_t seen = 0;
    for (const Edge* edge : node.out_edges()) {
      if (!IsOld(*edge->dst)) continue;
      if (device != nullptr && *device != edge->dst->assigned_device()) return true;
      device = &edge->dst->assigned_device();
      if (++seen > kMaxConsumers) break;
    }
    return false;
  }

  DataflowGraph* const graph_;
  const int first_node_;
  const StringSet& labels_;
  DataflowGraph part_;
  absl::flat_hash_map<const Node*, Node*> twins_;
};

}  // namespace

StatusOr<bool> PlaceAdded(DataflowGraph* graph, int first_node, const StringSet& labels,
                          const PlacerInput& input, PlacementLog* log) {
  if (first_node <= 2) return false;
  Addition addition(graph, first_node, labels);
  if (!addition.IsSimple()) return false;
  MR_RETURN_IF_ERROR(addition.MakePart());
  MR_RETURN_IF_ERROR(Place(addition.part(), input, log));
  if (!addition.OldOnesStay()) return false;
  addition.Adopt(log);
  return true;
}

void CollectLabels(const DataflowGraph& graph, int first_node, int end_node, StringSet* labels) {
  for (int id = first_node; id < end_node; ++id) {
    if (graph.node(id) == nullptr) continue;
    for (const std::string_view label : ClassLabels(*graph.node(id))) labels->emplace(label);
  }
}

}  // namespace millrace
