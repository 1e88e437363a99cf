#include "placer/placer.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "placer/colocation.h"
#include "placer/device_table.h"
#include "placer/op_kinds.h"

namespace millrace {
namespace {

// The walk over the nodes once their groups are known.
class Assignment {
 public:
  Assignment(DataflowGraph* graph, DeviceTable* table, Colocation* groups, PlacementLog* log)
      : graph_(graph), table_(table), groups_(groups), log_(log) {
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
    if (log_ != nullptr) log_->AddChoice(node.id(), ChoiceRule::kAlreadyAssigned, device, -1);
    return groups_->Narrow(node, device);
  }

  Status Assign(Node* node, bool generator) {
    const bool group_is_placed = groups_->PlacedOn(*node) >= 0;
    const StatusOr<const CandidateSet*> candidates = groups_->Candidates(*node);
    if (!candidates.ok()) {
      return errors::InvalidArgument("Cannot assign a device for operation ", node->name(), ": ",
                                     Message(candidates.status()), "\n\t [[{{node ", node->name(),
                                     "}}]]");
    }
    const CandidateSet& set = **candidates;
    int device = set.devices[0];
    ChoiceRule rule = group_is_placed ? ChoiceRule::kGroupIsPlaced : set.rule;
    if (set.devices.size() > 1) {
      ChoiceRule better_rule = ChoiceRule::kNone;
      const int better =
          generator ? ConsumersDevice(*node, &better_rule) : InputsDevice(*node, &better_rule);
      if (set.Has(better)) {
        device = better;
        rule = better_rule;
      }
    }
    device_of_[node->id()] = device;
    node->set_assigned_device(table_->device_name(device));
    if (log_ != nullptr) log_->AddChoice(node->id(), rule, device, set.in_log);
    return groups_->Narrow(*node, device);
  }

  // An identity that asks for nothing, with one edge in and one out, between two nodes that ask for
  // the same: the request of both says more than the sort order of devices.
  static bool IsBetweenEquals(const Node& node) {
    return node.type() == "Identity" && node.requested_device().empty() &&
           node.in_edges().size() == 1 && node.out_edges().size() == 1 &&
           node.in_edges()[0]->src->requested_device() ==
               node.out_edges()[0]->dst->requested_device();
  }

  // -1 if the node does not care where its input is.
  int InputsDevice(const Node& node, ChoiceRule* rule) const {
    if (IsMetadataOp(node.type())) {
      *rule = ChoiceRule::kFollowsInput;
    } else if (IsBetweenEquals(node)) {
      *rule = ChoiceRule::kBetweenEquals;
    } else {
      return -1;
    }
    const Edge* edge = node.num_inputs() > 0 ? node.input_edge(0) : nullptr;
    return edge == nullptr ? -1 : device_of_[edge->src->id()];
  }

  // -1 if the consumers disagree, or one of them waits to be placed.
  int ConsumersDevice(const Node& node, ChoiceRule* rule) const {
    *rule = ChoiceRule::kFollowsConsumers;
    int device = -1;
    for (const Edge* edge : node.out_edges()) {
      const int here = device_of_[edge->dst->id()];
      if (here < 0 || (device >= 0 && here != device)) return -1;
      device = here;
    }
    return device;
  }

  DataflowGraph* const graph_;
  DeviceTable* const table_;
  Colocation* const groups_;
  PlacementLog* const log_;
  std::vector<int> device_of_;  // by node id
};

}  // namespace

Status Place(DataflowGraph* graph, const PlacerInput& input, PlacementLog* log) {
  if (log != nullptr) *log = PlacementLog();
  if (input.devices.empty()) return errors::FailedPrecondition("No devices are registered");
  DeviceTable table(input, log);
  Colocation groups(*graph, input, &table, log);
  MR_RETURN_IF_ERROR(groups.Build());
  return Assignment(graph, &table, &groups, log).Run();
}

}  // namespace millrace
