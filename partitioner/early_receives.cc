// SPDX-License-Identifier: Apache-2.0
#include "partitioner/early_receives.h"

#include <string>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "ops/early_receive.h"

namespace millrace {
namespace {

struct Place {
  int part = -1;
  const Node* node = nullptr;
};

bool IsSend(const Node& node) { return node.type() == "_Send"; }
bool IsReceive(const Node& node) { return node.type() == "_Recv"; }
// Between a task and its client, or something that the client's program made itself.
bool IsForeign(const Node& node) {
  return !node.attrs().Has("_src") || node.attrs().GetOr<bool>("client_terminated", false);
}

std::string KeyOf(const Node& node) {
  const AttrMap& attrs = node.attrs();
  return StrCat(attrs.GetOr<std::string>("send_device", ""), ";",
                attrs.GetOr<std::string>("recv_device", ""), ";",
                attrs.GetOr<std::string>("tensor_name", ""));
}

// Readers of a variable do not wait for those that change it, unless an edge says so.
bool IsOfVariable(std::string_view op) {
  return op == "Variable" || op == "VariableV2" || op == "VarHandleOp" || op == "ReadVariableOp" ||
         op.starts_with("Assign") || op.starts_with("Scatter") || op.starts_with("ResourceApply") ||
         op.starts_with("ResourceScatter") || op.starts_with("ResourceSparseApply") ||
         op == "ResourceGather" || op == "VarIsInitializedOp";
}

bool MayWaitForOthers(const Node& node) {
  if (IsSend(node) || IsReceive(node)) return IsForeign(node);
  if (node.is_stateful()) return !IsOfVariable(node.type());
  for (const auto& [name, value] : node.attrs()) {
    if (value.function() != nullptr || value.get_if<std::vector<FunctionName>>() != nullptr) {
      return true;
    }
  }
  return false;
}

bool HasAccelerators(const Partition& part) {
  for (const Node* node : part.graph->OpNodes()) {
    const StatusOr<DeviceName> device = DeviceName::Parse(node->assigned_device());
    if (device.ok() && device->type && *device->type != "CPU") return true;
  }
  return false;
}

class Reach {
 public:
  explicit Reach(const std::vector<Partition>& parts) : parts_(parts) {
    for (int part = 0; part < static_cast<int>(parts.size()); ++part) {
      seen_.emplace_back(parts[part].graph->num_node_ids());
      for (const Node* node : parts[part].graph->OpNodes()) {
        if (IsReceive(*node) && !IsForeign(*node)) receives_[KeyOf(*node)] = {part, node};
        if (MayWaitForOthers(*node)) waiting_.push_back({part, node});
      }
    }
  }

  // From what `part` sends to other tasks.
  void From(int part) {
    ++round_;
    waits_for_all_ = false;
    for (const Node* node : parts_[part].graph->OpNodes()) {
      if (IsSend(*node) && !IsForeign(*node)) Add({part, node});
    }
    while (!reached_.empty()) {
      const Place place = reached_.back();
      reached_.pop_back();
      for (const Edge* edge : place.node->out_edges()) {
        if (edge->dst->IsOp()) Add({place.part, edge->dst});
      }
      if (IsSend(*place.node)) {
        const auto partner = receives_.find(KeyOf(*place.node));
        if (partner != receives_.end()) Add(partner->second);
      }
      if (!waits_for_all_ && MayWaitForOthers(*place.node)) {
        waits_for_all_ = true;
        for (const Place& waiting : waiting_) Add(waiting);
      }
    }
  }
  bool Has(int part, const Node* node) const { return seen_[part][node->id()] == round_; }

 private:
  void Add(const Place& place) {
    int& seen = seen_[place.part][place.node->id()];
    if (seen == round_) return;
    seen = round_;
    reached_.push_back(place);
  }

  const std::vector<Partition>& parts_;
  StringMap<Place> receives_;
  std::vector<Place> waiting_;
  // By part and node id, the last round that reached the node: a round costs what it reaches.
  std::vector<std::vector<int>> seen_;
  int round_ = 0;
  std::vector<Place> reached_;
  bool waits_for_all_ = false;
};

}  // namespace

void MarkEarlyReceives(std::vector<Partition>* parts) {
  if (parts->size() < 2) return;
  Reach reach(*parts);
  for (int part = 0; part < static_cast<int>(parts->size()); ++part) {
    if (!HasAccelerators((*parts)[part])) continue;
    reach.From(part);
    for (Node* node : (*parts)[part].graph->OpNodes()) {
      if (!IsReceive(*node) || IsForeign(*node) || reach.Has(part, node)) continue;
      node->mutable_attrs().Set(kEarlyReceive, true);
    }
  }
}

}  // namespace millrace
