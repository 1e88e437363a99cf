// SPDX-License-Identifier: Apache-2.0
#include "frontend/subgraph_copy.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"

namespace millrace {
namespace {

bool NeedsNothing(const Node& node) {
  for (const Edge* edge : node.in_edges()) {
    if (edge->src->IsOp()) return false;
  }
  return true;
}

// The same in every run: constants, and names of what lives between runs.
bool IsShared(const Node& node) {
  if (!NeedsNothing(node)) return false;
  return node.type() == "Const" || (node.num_outputs() == 1 && node.output_types()[0] == kResource);
}

// The edge that closes a loop.
bool IsBackEdge(const Edge& edge) { return edge.src->type() == "NextIteration"; }

class Copier {
 public:
  Copier(GraphState* state, std::span<const OutputReplacement> replacements, const Operation& pivot)
      : state_(*state), pivot_(pivot), prefix_(pivot.name().substr(0, pivot.name().rfind('/'))) {
    for (const auto& [from, to] : replacements) {
      replaced_[{from.op().node(), from.index()}] = to;
    }
  }

  StatusOr<Operation> Run(const Operation& target) {
    const std::vector<Node*> nodes = NeededBy(target.node());
    for (Node* node : nodes) MR_RETURN_IF_ERROR(CopyNode(*node));
    for (Node* node : nodes) MR_RETURN_IF_ERROR(CloseLoop(*node));
    return Operation(&state_, copies_.at(target.node()));
  }

  // All that are copied, behind what they need but for the edges that close loops.
  std::vector<Node*> NeededBy(Node* target) const {
    std::vector<Node*> order;
    std::map<const Node*, bool> is_done;  // of those that were met
    std::vector<Node*> stack = {target};
    while (!stack.empty()) {
      Node* const node = stack.back();
      const auto [met, is_new] = is_done.try_emplace(node, false);
      if (!is_new) {
        stack.pop_back();
        if (!met->second) order.push_back(node);
        met->second = true;
        continue;
      }
      for (const Edge* edge : node->in_edges()) {
        if (IsCopied(*edge) && !IsBackEdge(*edge) && !is_done.contains(edge->src)) {
          stack.push_back(edge->src);
        }
      }
      // What closes a loop is needed as well, whenever.
      for (const Edge* edge : node->in_edges()) {
        if (IsBackEdge(*edge) && !is_done.contains(edge->src))
          stack.insert(stack.begin(), edge->src);
      }
    }
    return order;
  }

 private:
  bool IsReplaced(const Edge& edge) const {
    return !edge.IsControl() && replaced_.contains({edge.src, edge.src_output});
  }
  // Whether the copy of the edge comes from a copy.
  bool IsCopied(const Edge& edge) const {
    return edge.src->IsOp() && !IsReplaced(edge) && !IsShared(*edge.src) &&
           !(edge.IsControl() && edge.src->type() == "Placeholder");
  }

  Status CopyNode(const Node& node) {
    if (node.type() == "Placeholder") {
      return errors::InvalidArgument("the placeholder ", node.name(),
                                     " has no value in a loop over steps");
    }
    const std::string name = state_.UniqueName(StrCat(prefix_, "/", node.name()));
    MR_ASSIGN_OR_RETURN(Node* const copy, state_.graph->AddNodeLike(name, node));
    copies_[&node] = copy;
    copy->set_requested_device(node.requested_device());
    copy->set_device_origin(node.device_origin());
    copy->set_origin(node.origin());
    CopyNames(node, copy);
    bool is_gated = false;
    for (const Edge* edge : node.in_edges()) {
      if (!edge->src->IsOp() || IsBackEdge(*edge)) continue;
      if (!edge->IsControl()) {
        const auto [source, index] = SourceOf(*edge);
        MR_RETURN_IF_ERROR(state_.graph->AddEdge(source, index, copy, edge->dst_input).status());
      } else if (IsCopied(*edge)) {
        state_.graph->AddControlEdge(copies_.at(edge->src), copy);
      }
      is_gated = is_gated || IsCopied(*edge) || IsReplaced(*edge);
    }
    if (!is_gated) state_.graph->AddControlEdge(pivot_.node(), copy);
    return state_.shapes.AddNode(copy);
  }

  Status CloseLoop(const Node& node) {
    for (const Edge* edge : node.in_edges()) {
      if (!edge->src->IsOp() || !IsBackEdge(*edge)) continue;
      MR_RETURN_IF_ERROR(
          state_.graph
              ->AddEdge(copies_.at(edge->src), edge->src_output, copies_.at(&node), edge->dst_input)
              .status());
    }
    return OkStatus();
  }

  std::pair<Node*, int> SourceOf(const Edge& edge) const {
    const auto to = replaced_.find({edge.src, edge.src_output});
    if (to != replaced_.end()) return {to->second.op().node(), to->second.index()};
    return {IsCopied(edge) ? copies_.at(edge.src) : edge.src, edge.src_output};
  }

  // A copy of a variable is the same variable. Frames of the copies are others; what stands beside
  // a node that was copied stands beside the copy.
  void CopyNames(const Node& node, Node* copy) {
    const AttrValue* const shared = node.attrs().Find("shared_name");
    if (NeedsNothing(node) && shared != nullptr) {
      const auto* const name = shared->get_if<std::string>();
      if (name != nullptr && name->empty()) copy->mutable_attrs().Set("shared_name", node.name());
    }
    if (const AttrValue* frame = node.attrs().Find("frame_name"); frame != nullptr) {
      if (const std::string* name = frame->get_if<std::string>(); name != nullptr) {
        std::string& own = frames_[*name];
        if (own.empty()) own = state_.UniqueName(StrCat(*name, "_in_steps"));
        copy->mutable_attrs().Set("frame_name", own);
      }
    }
    const AttrValue* const beside = node.attrs().Find("_class");
    const auto* const given =
        beside == nullptr ? nullptr : beside->get_if<std::vector<std::string>>();
    if (given == nullptr) return;
    std::vector<std::string> places = *given;
    for (std::string& place : places) {
      constexpr std::string_view kLoc = "loc:@";
      if (!place.starts_with(kLoc)) continue;
      const Node* other = state_.graph->FindNode(place.substr(kLoc.size()));
      const auto copied = copies_.find(other);
      if (copied != copies_.end()) place = StrCat(kLoc, copied->second->name());
    }
    copy->mutable_attrs().Set("_class", places);
  }

  GraphState& state_;
  const Operation pivot_;
  const std::string prefix_;  // of the copies' names
  std::map<std::pair<const Node*, int>, Output> replaced_;
  std::map<const Node*, Node*> copies_;
  std::map<std::string, std::string> frames_;
};

}  // namespace

StatusOr<Operation> CopySubgraph(const Operation& target,
                                 std::span<const OutputReplacement> replacements,
                                 const Operation& pivot) {
  if (!target.valid() || !pivot.valid()) return errors::InvalidArgument("there is no node to copy");
  return Copier(target.graph(), replacements, pivot).Run(target);
}

bool AsksForNoTask(const Operation& target) {
  if (!target.valid()) return false;
  for (const Node* node : Copier(target.graph(), {}, target).NeededBy(target.node())) {
    const std::string& device = node->requested_device();
    if (device.find("/job:") != std::string::npos || device.find("/task:") != std::string::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace millrace
