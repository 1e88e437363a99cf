// SPDX-License-Identifier: Apache-2.0
#include "graph/functions/isolate_calls.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Marks the identities: they are not isolated again when the graph grows.
constexpr char kIsolates[] = "_isolates_call";

bool IsIsolator(const Node& node) { return node.attrs().Has(kIsolates); }

std::string FreeName(const DataflowGraph& graph, const std::string& wanted) {
  std::string name = wanted;
  for (int n = 0; graph.FindNode(name) != nullptr; ++n) name = StrCat(wanted, "_", n);
  return name;
}

StatusOr<Node*> AddIdentity(const std::string& name, DataType type, DataflowGraph* graph) {
  AttrMap attrs;
  attrs.Set("T", BaseType(type));
  attrs.Set(kIsolates, true);
  return graph->AddNode(FreeName(*graph, name), "Identity", std::move(attrs));
}

// The edge as two, with an identity between them.
Status Split(Edge* edge, DataflowGraph* graph) {
  Node *const src = edge->src, *const dst = edge->dst;
  const int output = edge->src_output, input = edge->dst_input;
  MR_ASSIGN_OR_RETURN(Node* const identity, AddIdentity(StrCat(src->name(), "_", dst->name()),
                                                        src->output_types()[output], graph));
  graph->RemoveEdge(edge);
  MR_RETURN_IF_ERROR(graph->AddEdge(src, output, identity, 0).status());
  return graph->AddEdge(identity, 0, dst, input).status();
}

Status IsolateInputs(Node* call, DataflowGraph* graph) {
  for (int i = 0; i < call->num_inputs(); ++i) {
    Edge* const edge = const_cast<Edge*>(call->input_edge(i));
    if (edge != nullptr && !IsIsolator(*edge->src)) MR_RETURN_IF_ERROR(Split(edge, graph));
  }
  return OkStatus();
}

Status IsolateOutputs(Node* call, DataflowGraph* graph) {
  std::vector<bool> used(call->num_outputs());
  const std::vector<Edge*> edges(call->out_edges().begin(), call->out_edges().end());
  for (Edge* edge : edges) {
    if (edge->IsControl()) continue;
    used[edge->src_output] = true;
    if (!IsIsolator(*edge->dst)) MR_RETURN_IF_ERROR(Split(edge, graph));
  }
  for (int i = 0; i < call->num_outputs(); ++i) {
    if (used[i]) continue;
    MR_ASSIGN_OR_RETURN(Node* const identity,
                        AddIdentity(call->name(), call->output_types()[i], graph));
    MR_RETURN_IF_ERROR(graph->AddEdge(call, i, identity, 0).status());
  }
  return OkStatus();
}

}  // namespace

bool ReturnsResources(const Node& node) {
  const auto& outputs = node.output_types();
  if (std::find(outputs.begin(), outputs.end(), kResource) == outputs.end()) return false;
  return node.type() == "PartitionedCall" || node.type() == "StatefulPartitionedCall";
}

Status IsolateCalls(int first_node, DataflowGraph* graph) {
  const int end_node = graph->num_node_ids();
  for (int id = first_node; id < end_node; ++id) {
    Node* const node = graph->node(id);
    if (node == nullptr || !node->IsOp() || IsIsolator(*node)) continue;
    if (ReturnsResources(*node)) {
      MR_RETURN_IF_ERROR(IsolateInputs(node, graph));
      MR_RETURN_IF_ERROR(IsolateOutputs(node, graph));
      continue;
    }
    for (int i = 0; i < node->num_inputs(); ++i) {
      Edge* const edge = const_cast<Edge*>(node->input_edge(i));
      if (edge == nullptr || edge->src->id() >= first_node) continue;
      if (ReturnsResources(*edge->src)) MR_RETURN_IF_ERROR(Split(edge, graph));
    }
  }
  return OkStatus();
}

}  // namespace millrace
