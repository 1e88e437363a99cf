// SPDX-License-Identifier: Apache-2.0
#include "placer/placer.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "placer/colocation.h"
#include "placer/conflict.h"
#include "placer/device_table.h"
#include "placer/inspection.h"
#include "placer/op_kinds.h"

namespace millrace {
namespace {

// The walk over the nodes once their groups are known.
class Assignment {
 public:
  Assignment(DataflowGraph* graph, const PlacerInput& input, DeviceTable* table, Colocation* groups,
             PlacementLog* log)
      : graph_(graph), input_(input), table_(table), groups_(groups), log_(log) {
    device_of_.resize(graph->num_node_ids(), -1);
  }

  Status Run() {
    std::vector<Node*> generators;
    for (int id = 0; id < graph_->num_node_ids(); ++id) {
      Node* node = graph_->node(id);
      if (node == nullptr || !node->IsOp()) continue;
      if (!node->assigned_device().empty()) {
        MR_RETURN_IF_ERROR(Keep(*node));
      } else if (IsGenerator(*node)) {
        generators.push_back(node);
      } else {
        MR_RETURN_IF_ERROR(Assign(node, /*generator=*/false));
      }
    }
    for (Node* node : generators) MR_RETURN_IF_ERROR(Assign(node, /*generator=*/true));
    return OkStatus();
  }

 private:
  static bool IsGenerator(const Node& node) {
    return node.num_inputs() == 0 && node.num_outputs() == 1 && !IsRefType(node.output_types()[0]);
  }

  Status Keep(const Node& node) {
    MR_ASSIGN_OR_RETURN(const int spec, table_->specs().Parse(node.assigned_device()));
    const int device = table_->FindDevice(spec);
    device_of_[node.id()] = device;
    if (log_ != nullptr) log_->AddChoice(node.id(), ChoiceRule::kAlreadyAssigned, device, -1, -1);
    return groups_->Narrow(node, device);
  }

  Status Assign(Node* node, bool generator) {
    int followed = groups_->PlacedBy(*node);
    const StatusOr<const CandidateSet*> candidates = groups_->Candidates(*node);
    if (!candidates.ok()) {
      return errors::InvalidArgument("Cannot assign a device for operation ", node->name(), ": ",
                                     Message(candidates.status()), "\n\t [[{{node ", node->name(),
                                     "}}]]");
    }
    const CandidateSet& set = **candidates;
    int device = set.devices[0];
    ChoiceRule rule = followed >= 0 ? ChoiceRule::kGroupIsPlaced : set.rule;
    if (set.devices.size() > 1) {
      ChoiceRule better_rule = ChoiceRule::kNone;
      const Node* better =
          generator ? AgreeingConsumer(*node, &better_rule) : Input(*node, &better_rule);
      if (better != nullptr && set.Has(device_of_[better->id()]) && !input_.Ignores(better_rule)) {
        device = device_of_[better->id()];
        rule = better_rule;
        followed = better->id();
      }
      const int chosen = Chosen(*node, set);
      if (chosen >= 0) {
        device = chosen;
        rule = ChoiceRule::kCost;
        followed = -1;
      }
    }
    device_of_[node->id()] = device;
    node->set_assigned_device(table_->shared_name(device));
    if (log_ != nullptr) log_->AddChoice(node->id(), rule, device, set.in_log, followed);
    return groups_->Narrow(*node, device);
  }

  // What the caller prefers among the candidates; -1 for no preference.
  int Chosen(const Node& node, const CandidateSet& set) const {
    if (input_.choose == nullptr) return -1;
    const std::string_view wanted = input_.choose(node);
    for (const int device : set.devices) {
      if (table_->device_name(device) == wanted) return device;
    }
    return -1;
  }

  // An identity that asks for nothing, with one edge in and one out, between two nodes that ask for
  // the same: the request of both says more than the sort order of devices.
  static bool IsBetweenEquals(const Node& node) {
    return node.type() == "Identity" && node.requested_device().empty() &&
           node.in_edges().size() == 1 && node.out_edges().size() == 1 &&
           node.in_edges()[0]->src->requested_device() ==
               node.out_edges()[0]->dst->requested_device();
  }

  // Null if the node does not care where its input is.
  static const Node* Input(const Node& node, ChoiceRule* rule) {
    if (IsMetadataOp(node.type())) {
      *rule = ChoiceRule::kFollowsInput;
    } else if (IsBetweenEquals(node)) {
      *rule = ChoiceRule::kBetweenEquals;
    } else {
      return nullptr;
    }
    const Edge* edge = node.num_inputs() > 0 ? node.input_edge(0) : nullptr;
    return edge == nullptr ? nullptr : edge->src;
  }

  // Null if the consumers disagree, or one of them waits to be placed.
  const Node* AgreeingConsumer(const Node& node, ChoiceRule* rule) const {
    *rule = ChoiceRule::kFollowsConsumers;
    const Node* first = nullptr;
    for (const Edge* edge : node.out_edges()) {
      const int here = device_of_[edge->dst->id()];
      if (here < 0 || (first != nullptr && here != device_of_[first->id()])) return nullptr;
      if (first == nullptr) first = edge->dst;
    }
    return first;
  }

  DataflowGraph* const graph_;
  const PlacerInput& input_;
  DeviceTable* const table_;
  Colocation* const groups_;
  PlacementLog* const log_;
  std::vector<int> device_of_;  // by node id
};

// Places or says why not; `culprit` is then the node of the error, if it has one.
Status TryToPlace(DataflowGraph* graph, const PlacerInput& input, PlacementLog* log,
                  const Node** culprit) {
  DeviceTable table(input, log);
  Inspection inspection(input, &table);
  Colocation groups(*graph, input, &table, log, &inspection);
  Status status = groups.Build();
  if (status.ok()) status = Assignment(graph, input, &table, &groups, log).Run();
  *culprit = groups.culprit();
  return status;
}

}  // namespace

Status Place(DataflowGraph* graph, const PlacerInput& input, PlacementLog* log) {
  if (log != nullptr) *log = PlacementLog();
  if (input.devices.empty()) return errors::FailedPrecondition("No devices are registered");
  const Node* culprit = nullptr;
  const Status status = TryToPlace(graph, input, log, &culprit);
  if (status.ok() || culprit == nullptr) return status;
  const auto attempt = [](DataflowGraph* part, const PlacerInput& with) {
    const Node* ignored = nullptr;
    return TryToPlace(part, with, nullptr, &ignored);
  };
  return Annotate(status, ExplainConflict(*graph, input, *culprit, attempt));
}

}  // namespace millrace
