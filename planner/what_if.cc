// SPDX-License-Identifier: Apache-2.0
#include "planner/what_if.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/string_map.h"
#include "device/device_name.h"
#include "planner/memory.h"

namespace millrace {
namespace {

constexpr std::string_view kClassPrefix = "loc:@";

std::optional<DeviceName> PsDevice(const Node& node) {
  StatusOr<DeviceName> name = DeviceName::Parse(node.requested_device());
  if (!name.ok() || name->job != "ps") return std::nullopt;
  return *std::move(name);
}

class Groups {
 public:
  explicit Groups(const DataflowGraph& graph) : parent_(graph.num_node_ids()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    StringMap<int> classes;
    for (const Node* node : graph.OpNodes()) {
      for (const Edge* edge : node->in_edges()) {
        if (edge->IsControl()) continue;
        const DataType type = edge->src->output_types()[edge->src_output];
        const bool keeps = IsRefType(node->input_types()[edge->dst_input]) || type == kResource;
        if (keeps) Join(edge->src->id(), node->id());
      }
      using Names = std::vector<std::string>;
      for (const std::string& name : node->attrs().GetOr<Names>("_class", {})) {
        if (!name.starts_with(kClassPrefix)) continue;
        const Node* const other = graph.FindNode(name.substr(kClassPrefix.size()));
        const int id = other != nullptr ? other->id() : node->id();
        Join(node->id(), classes.try_emplace(name, id).first->second);
        Join(node->id(), id);
      }
    }
  }
  int Find(int id) {
    while (parent_[id] != id) id = parent_[id] = parent_[parent_[id]];
    return id;
  }

 private:
  void Join(int a, int b) {
    a = Find(a);
    b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }
  std::vector<int> parent_;
};

void SetTask(DeviceName device, int task, Node* node) {
  device.task = task;
  node->set_requested_device(device.ToString());
}

// Tasks of the groups with variables.
std::map<int, int> ChooseTasks(int num_ps, PsSpread how, const DataflowGraph& graph,
                               Groups* groups) {
  std::map<int, int64_t> bytes;  // by group
  std::vector<int> order;
  for (const Node* node : graph.OpNodes()) {
    if (!IsVariable(*node) || !PsDevice(*node)) continue;
    const int group = groups->Find(node->id());
    const auto [at, is_new] = bytes.try_emplace(group, 0);
    if (is_new) order.push_back(group);
    at->second += VariableBytes(*node).least;
  }
  std::map<int, int> tasks;
  if (how == PsSpread::kRoundRobin) {
    for (std::size_t i = 0; i < order.size(); ++i) tasks[order[i]] = static_cast<int>(i % num_ps);
    return tasks;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bytes[a] > bytes[b]; });
  std::vector<int64_t> load(num_ps);
  for (const int group : order) {
    const auto least = std::min_element(load.begin(), load.end());
    tasks[group] = static_cast<int>(least - load.begin());
    *least += bytes[group];
  }
  return tasks;
}

}  // namespace

void SpreadOverPs(int num_ps, PsSpread how, DataflowGraph* graph) {
  Groups groups(*graph);
  const std::map<int, int> tasks = ChooseTasks(num_ps, how, *graph, &groups);
  const auto task_of = [&](const Node& node) {
    const auto found = tasks.find(groups.Find(node.id()));
    return found == tasks.end() ? -1 : found->second;
  };
  for (Node* node : graph->OpNodes()) {
    node->set_assigned_device({});
    std::optional<DeviceName> device = PsDevice(*node);
    if (!device) continue;
    int task = task_of(*node);
    for (const Edge* edge : node->in_edges()) {
      if (task < 0 && !edge->IsControl()) task = task_of(*edge->src);
    }
    for (const Edge* edge : node->out_edges()) {
      if (task < 0 && !edge->IsControl()) task = task_of(*edge->dst);
    }
    if (task < 0 && !device->task) continue;
    SetTask(*device, task < 0 ? *device->task % num_ps : task, node);
  }
}

}  // namespace millrace
