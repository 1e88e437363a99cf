// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/graph_def_io.h"
#include "graph/node_name.h"

namespace millrace {
namespace {

Status ExportInputs(const Node& node, pb::NodeDef* def) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Edge* edge = node.input_edge(i);
    if (edge == nullptr) {
      return errors::InvalidArgument("Incomplete graph, missing input ", i, " of node '",
                                     node.name(), "'");
    }
    def->add_input(FormatTensorName(edge->src->name(), edge->src_output));
  }
  std::vector<std::string> controls;
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControl() && edge->src->IsOp()) {
      controls.push_back(FormatTensorName(edge->src->name(), kControlSlot));
    }
  }
  std::sort(controls.begin(), controls.end());
  for (std::string& control : controls) def->add_input(std::move(control));
  return OkStatus();
}

// All functions, or those that the nodes from `first_id` on can reach.
void ExportLibrary(const DataflowGraph& graph, int first_id, pb::GraphDef* def) {
  if (first_id <= graph.sink()->id() + 1) {
    return graph.library()->ToProto(def->mutable_library());
  }
  std::vector<std::string> names;
  for (int id = first_id; id < graph.num_node_ids(); ++id) {
    const Node* const node = graph.node(id);
    if (node == nullptr) continue;
    if (graph.IsCall(*node)) names.push_back(node->type());
    for (const auto& [name, value] : node->attrs()) AddMentioned(value, &names);
  }
  const std::shared_ptr<const FunctionLibrary> reached = graph.library()->Reachable(names);
  if (reached != nullptr) reached->ToProto(def->mutable_library());
}

}  // namespace

void ExportNode(const Node& node, const ExportOptions& options, pb::NodeDef* def) {
  def->set_name(node.name());
  def->set_op(node.type());
  def->set_device(node.assigned_device().empty() ? node.requested_device()
                                                 : node.assigned_device());
  if (options.strip_default_attrs) {
    AttrMap attrs = node.attrs();
    StripDefaultAttrs(node.op().def, &attrs);
    for (const auto& [name, value] : attrs) AttrToProto(value, &(*def->mutable_attr())[name]);
  } else {
    for (const auto& [name, value] : node.attrs()) {
      AttrToProto(value, &(*def->mutable_attr())[name]);
    }
  }
  if (options.origins) {
    if (!node.origin().empty()) (*def->mutable_attr())[kOriginAttr].set_s(node.origin());
    if (!node.device_origin().empty()) {
      (*def->mutable_attr())[kDeviceOriginAttr].set_s(node.device_origin());
    }
  }
  if (node.notes() != nullptr) {
    if (node.notes()->debug_info.ByteSizeLong() > 0) {
      *def->mutable_experimental_debug_info() = node.notes()->debug_info;
    }
    if (node.notes()->full_type.ByteSizeLong() > 0) {
      *def->mutable_experimental_type() = node.notes()->full_type;
    }
  }
}

Status ExportGraphDef(const DataflowGraph& graph, const ExportOptions& options, pb::GraphDef* def) {
  def->Clear();
  *def->mutable_versions() = graph.versions();
  if (graph.library() != nullptr) ExportLibrary(graph, options.first_id, def);
  for (int id = std::max(options.first_id, graph.sink()->id() + 1); id < graph.num_node_ids();
       ++id) {
    const Node* const node = graph.node(id);
    if (node == nullptr) continue;
    pb::NodeDef* out = def->add_node();
    ExportNode(*node, options, out);
    MR_RETURN_IF_ERROR(ExportInputs(*node, out));
  }
  return OkStatus();
}

}  // namespace millrace
