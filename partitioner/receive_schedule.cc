// SPDX-License-Identifier: Apache-2.0
#include "partitioner/receive_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr int kEpochs = 100;
constexpr int kAhead = 6;  // how many epochs early a receive may start
constexpr int kUnknown = std::numeric_limits<int>::max();

bool IsReceive(const Node& node) { return node.type() == "_Recv" || node.type() == "_HostRecv"; }

// When the nodes of a part start.
class PartTimes {
 public:
  PartTimes(const DataflowGraph& whole, const std::vector<int>& starts, int makespan,
            const DataflowGraph& part)
      : makespan_(makespan), start_(part.num_node_ids(), kUnknown) {
    for (const Node* node : part.OpNodes()) {
      const Node* const original = whole.FindNode(node->name());
      if (original != nullptr) {
        start_[node->id()] = starts[original->id()];
      } else if (IsReceive(*node)) {
        made_receives_.push_back(node);
      }
    }
    for (const Node* receive : made_receives_) start_[receive->id()] = FirstUse(*receive);
  }

  // -1: nothing is known of it.
  int EpochOf(const Node& node) const {
    const int start = start_[node.id()];
    return start == kUnknown ? -1 : static_cast<int>(int64_t{start} * kEpochs / makespan_);
  }

  // Those that were made for cut edges; a feed is not one.
  bool IsMadeReceive(const Node& node) const {
    return std::binary_search(made_receives_.begin(), made_receives_.end(), &node,
                              [](const Node* a, const Node* b) { return a->id() < b->id(); });
  }

 private:
  // Through what stands between the receive and the nodes that were in the graph before.
  int FirstUse(const Node& receive) const {
    int first = kUnknown;
    for (const Edge* edge : receive.out_edges()) {
      if (!edge->dst->IsOp()) continue;
      const int start = start_[edge->dst->id()];
      first = std::min(first, start != kUnknown ? start : FirstUse(*edge->dst));
    }
    return first;
  }

  const int makespan_;
  std::vector<int> start_;  // by id in the part
  std::vector<const Node*> made_receives_;
};

// The nodes of one device within a part.
class DeviceSchedule {
 public:
  DeviceSchedule(std::span<Node* const> nodes, const PartTimes& times, DataflowGraph* part)
      : part_(part), members_(kEpochs), triggers_(kEpochs, nullptr), made_(kEpochs, false) {
    for (Node* node : nodes) {
      const int epoch = times.EpochOf(*node);
      if (times.IsMadeReceive(*node)) {
        if (epoch >= kAhead) receives_.emplace_back(epoch, node);
      } else if (epoch >= 0) {
        members_[epoch].push_back(node);
      }
    }
  }

  Status Run() {
    for (const auto& [epoch, receive] : receives_) {
      MR_ASSIGN_OR_RETURN(Node* const trigger, Trigger(epoch - kAhead));
      if (trigger != nullptr) part_->AddControlEdge(trigger, receive);
    }
    return OkStatus();
  }

 private:
  // What runs when all up to this epoch have run; null if nothing has to.
  StatusOr<Node*> Trigger(int epoch) {
    if (!made_[epoch]) {
      made_[epoch] = true;
      MR_ASSIGN_OR_RETURN(triggers_[epoch], MakeTrigger(epoch));
    }
    return triggers_[epoch];
  }

  StatusOr<Node*> MakeTrigger(int epoch) {
    Node* before = nullptr;
    if (epoch > 0) {
      MR_ASSIGN_OR_RETURN(before, Trigger(epoch - 1));
    }
    const std::vector<Node*>& members = members_[epoch];
    if (members.empty()) return before;
    std::string name = StrCat("synch_", epoch);
    if (part_->FindNode(name) != nullptr) name = part_->NewName(name);
    MR_ASSIGN_OR_RETURN(Node* const trigger, part_->AddNode(name, "ControlTrigger", {}));
    trigger->set_requested_device(members.front()->shared_assigned_device());
    trigger->set_assigned_device(members.front()->shared_assigned_device());
    for (Node* node : members) part_->AddControlEdge(node, trigger);
    if (before != nullptr) part_->AddControlEdge(before, trigger);
    return trigger;
  }

  DataflowGraph* const part_;
  std::vector<std::vector<Node*>> members_;  // by epoch
  std::vector<Node*> triggers_;
  std::vector<bool> made_;
  std::vector<std::pair<int, Node*>> receives_;  // epoch
};

}  // namespace

std::vector<int> EarliestStarts(const DataflowGraph& graph, int transfer) {
  std::vector<int> starts(graph.num_node_ids(), 0);
  std::vector<int> waiting(graph.num_node_ids(), 0);
  std::vector<const Node*> ready;
  int left = 0;
  for (const Node* node : graph.OpNodes()) {
    ++left;
    for (const Edge* edge : node->in_edges()) waiting[node->id()] += edge->src->IsOp();
    if (waiting[node->id()] == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    const Node* const node = ready.back();
    ready.pop_back();
    --left;
    for (const Edge* edge : node->out_edges()) {
      if (!edge->dst->IsOp()) continue;
      const bool moves = node->assigned_device() != edge->dst->assigned_device();
      int& start = starts[edge->dst->id()];
      start = std::max(start, starts[node->id()] + 1 + (moves ? transfer : 0));
      if (--waiting[edge->dst->id()] == 0) ready.push_back(edge->dst);
    }
  }
  return left == 0 ? starts : std::vector<int>();
}

Status ScheduleReceives(const DataflowGraph& graph, const std::vector<int>& starts,
                        std::vector<Partition>* parts) {
  if (starts.empty()) return OkStatus();
  const int makespan = *std::max_element(starts.begin(), starts.end()) + 1;
  for (Partition& part : *parts) {
    const PartTimes times(graph, starts, makespan, *part.graph);
    std::map<std::string_view, std::vector<Node*>> by_device;
    for (Node* node : part.graph->OpNodes()) by_device[node->assigned_device()].push_back(node);
    for (const auto& [device, nodes] : by_device) {
      MR_RETURN_IF_ERROR(DeviceSchedule(nodes, times, part.graph.get()).Run());
    }
    part.graph->FixSourceAndSink();
  }
  return OkStatus();
}

}  // namespace millrace
