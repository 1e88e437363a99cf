// SPDX-License-Identifier: Apache-2.0
// Values that nobody reads are not computed.
#include <algorithm>
#include <string>
#include <vector>

#include "base/interned_string.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"

namespace millrace {
namespace {

using rewrite::InOrder;
using rewrite::IsControlFlow;
using rewrite::Purity;

bool IsRead(const Node& node) {
  return std::any_of(node.out_edges().begin(), node.out_edges().end(),
                     [](const Edge* edge) { return edge->dst->IsOp() && !edge->IsControl(); });
}

// Whether waiting for the node is not waiting for its value: a value that arrives may be dead
// where its node is not.
bool Arrives(const Node& node) { return node.type().starts_with('_'); }

// Whether all inputs can be waited for instead of read. Branches and loops say by values alone
// what is dead; of what arrives, numbers alone are sure to lie where an Identity reads them.
bool CanWait(const Node& node) {
  return std::all_of(node.in_edges().begin(), node.in_edges().end(), [&node](const Edge* edge) {
    if (!edge->src->IsOp() || edge->IsControl()) return true;
    if (IsControlFlow(*edge->src)) return false;
    return !Arrives(*edge->src) ||
           (IsFloating(edge->src->output_types()[edge->src_output]) && node.type() != "Identity");
  });
}

// What stands for the value of an edge: its node, or an Identity where that tells more.
StatusOr<Node*> ToWaitFor(const Edge& edge, const Node& reader, DataflowGraph* graph) {
  if (!Arrives(*edge.src)) return edge.src;
  AttrMap attrs;
  attrs.Set("T", edge.src->output_types()[edge.src_output]);
  std::string name = StrCat(reader.name(), "/_arrives_", edge.dst_input);
  MR_ASSIGN_OR_RETURN(Node* const made, graph->AddNode(name, "Identity", std::move(attrs)));
  made->set_assigned_device(reader.shared_assigned_device());
  made->set_origin(InternedString(reader.origin()));
  MR_RETURN_IF_ERROR(graph->AddEdge(edge.src, edge.src_output, made, 0).status());
  return made;
}

Status BecomeNoOp(Node* node, DataflowGraph* graph) {
  std::vector<Node*> sources;
  const std::vector<Edge*> inputs(node->in_edges().begin(), node->in_edges().end());
  for (const Edge* edge : inputs) {
    if (!edge->src->IsOp() || edge->IsControl()) continue;
    MR_ASSIGN_OR_RETURN(Node* const source, ToWaitFor(*edge, *node, graph));
    sources.push_back(source);
  }
  const std::string name = node->name();
  MR_RETURN_IF_ERROR(rewrite::ReplaceChain({node}, "NoOp", AttrMap(), {}, graph));
  Node* const made = graph->FindNode(name);
  for (Node* source : sources) graph->AddControlEdge(source, made);
  return OkStatus();
}

}  // namespace

StatusOr<int> DropUnread(DataflowGraph* graph) {
  int dropped = 0;
  Purity is_pure;
  std::vector<Node*> nodes = InOrder(*graph);
  // Readers first: an input may be read by nobody then.
  std::reverse(nodes.begin(), nodes.end());
  for (Node* node : nodes) {
    if (IsRead(*node) || !rewrite::HasConsumers(*node) || !is_pure(*node) || !CanWait(*node)) {
      continue;
    }
    MR_RETURN_IF_ERROR(BecomeNoOp(node, graph));
    ++dropped;
  }
  return dropped;
}

}  // namespace millrace
