// SPDX-License-Identifier: Apache-2.0
#include "master/dump/cost_graph.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node_name.h"

namespace millrace {
namespace {

using CostNode = pb::CostGraphDef::Node;
using Stats = std::map<std::string_view, const pb::NodeExecStats*>;

constexpr int kSource = 0, kSink = 1, kFirst = 2;

void AddOutputs(const pb::NodeExecStats& stats, CostNode* cost) {
  for (const pb::NodeOutput& output : stats.output()) {
    while (cost->output_info_size() <= output.slot() && output.slot() < 1 << 16) {
      CostNode::OutputInfo* unknown = cost->add_output_info();
      unknown->set_size(-1);
      unknown->set_alias_input_port(-1);
      unknown->mutable_shape()->set_unknown_rank(true);
    }
    if (output.slot() < 0 || output.slot() >= cost->output_info_size()) continue;
    CostNode::OutputInfo* info = cost->mutable_output_info(output.slot());
    const pb::TensorDescription& tensor = output.tensor_description();
    info->set_size(tensor.allocation_description().requested_bytes());
    *info->mutable_shape() = tensor.shape();
    info->set_dtype(tensor.dtype());
  }
}

void AddInputs(const pb::NodeDef& node, const std::map<std::string, int, std::less<>>& ids,
               std::vector<bool>* is_read, CostNode* cost) {
  bool has_inputs = false;
  for (const std::string& text : node.input()) {
    const StatusOr<TensorName> input = ParseTensorName(text, /*internal=*/true);
    if (!input.ok()) continue;
    const auto id = ids.find(input->node);
    if (id == ids.end()) continue;
    has_inputs = true;
    (*is_read)[static_cast<std::size_t>(id->second)] = true;
    if (input->index < 0) {
      cost->add_control_input(id->second);
    } else {
      CostNode::InputInfo* info = cost->add_input_info();
      info->set_preceding_node(id->second);
      info->set_preceding_port(input->index);
    }
  }
  if (!has_inputs) cost->add_control_input(kSource);
}

void AddPartition(const pb::GraphDef& graph, const Stats& stats, pb::CostGraphDef* costs) {
  CostNode* source = costs->add_node();
  source->set_name("_SOURCE");
  source->set_id(kSource);
  const int sink_at = costs->node_size();
  costs->add_node()->set_name("_SINK");
  costs->mutable_node(sink_at)->set_id(kSink);
  costs->mutable_node(sink_at)->add_control_input(kSource);
  std::map<std::string, int, std::less<>> ids;
  for (int i = 0; i < graph.node_size(); ++i) ids[graph.node(i).name()] = kFirst + i;
  std::vector<bool> is_read(static_cast<std::size_t>(kFirst + graph.node_size()), false);
  const int first_at = costs->node_size();
  for (const pb::NodeDef& node : graph.node()) {
    CostNode* cost = costs->add_node();
    cost->set_name(node.name());
    cost->set_device(node.device());
    cost->set_id(ids[node.name()]);
    AddInputs(node, ids, &is_read, cost);
    const auto found = stats.find(node.name());
    if (found == stats.end()) continue;
    AddOutputs(*found->second, cost);
    cost->set_compute_cost(found->second->op_end_rel_micros() -
                           found->second->op_start_rel_micros());
    for (const auto& memory : found->second->memory()) {
      cost->set_temporary_memory_size(cost->temporary_memory_size() + memory.total_bytes());
    }
  }
  for (int i = 0; i < graph.node_size(); ++i) {
    if (is_read[static_cast<std::size_t>(kFirst + i)]) continue;
    costs->mutable_node(first_at + i)->set_is_final(true);
    costs->mutable_node(sink_at)->add_control_input(kFirst + i);
  }
}

}  // namespace

bool WantsCosts(const pb::GraphOptions& options, int64_t step) {
  const int64_t every = options.build_cost_model();
  if (every <= 0) return false;
  const int64_t counted = step - options.build_cost_model_after();
  return counted >= 0 && (counted + 1) % every == 0;
}

void AddCostGraph(pb::RunMetadata* metadata) {
  Stats stats;  // names are those of one partition each, but for the runtime's own
  for (const auto& device : metadata->step_stats().dev_stats()) {
    for (const auto& node : device.node_stats()) stats[node.node_name()] = &node;
  }
  for (const pb::GraphDef& graph : metadata->partition_graphs()) {
    AddPartition(graph, stats, metadata->mutable_cost_graph());
  }
}

}  // namespace millrace
