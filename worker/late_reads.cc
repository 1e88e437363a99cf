#include "worker/late_reads.h"

#include <string_view>
#include <vector>

#include "base/status_macros.h"

namespace millrace {
namespace {

// Nodes whose inputs belong to another frame or may be dead.
bool IsControlFlow(const Node& node) {
  for (const std::string_view type : {"Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
                                      "NextIteration", "RefNextIteration", "LoopCond"}) {
    if (node.type() == type) return true;
  }
  return false;
}

// The edge from a reference into the Identity that feeds `edge`; null if there is none.
const Edge* ReferenceBehind(const Edge& edge) {
  if (edge.IsControl() || edge.src->type() != "Identity") return nullptr;
  const Edge* read = edge.src->input_edge(0);
  return read != nullptr && IsRefType(read->src->output_types()[read->src_output]) ? read : nullptr;
}

// A constant that waits: TensorFlow's Python leaves a control edge out where an input already
// has it, so a node under control_dependencies may wait through its constants alone.
bool IsWaitingConst(const Node& node) {
  if (node.type() != "Const") return false;
  for (const Edge* edge : node.in_edges()) {
    if (edge->src->IsOp()) return true;
  }
  return false;
}

}  // namespace

Status ReadLate(DataflowGraph* graph) {
  for (Node* node : graph->OpNodes()) {
    if (IsControlFlow(*node)) continue;
    std::vector<Node*> awaited;
    std::vector<Edge*> reads;
    for (Edge* edge : node->in_edges()) {
      const bool waits = edge->IsControl() ? edge->src->IsOp() : IsWaitingConst(*edge->src);
      if (waits) awaited.push_back(edge->src);
      if (ReferenceBehind(*edge) != nullptr) reads.push_back(edge);
    }
    if (awaited.empty()) continue;
    for (Edge* edge : reads) {
      Node* const early = edge->src;
      const Edge* const reference = ReferenceBehind(*edge);
      const int slot = edge->dst_input;
      MR_ASSIGN_OR_RETURN(
          Node * late, graph->AddNode(graph->NewName(early->name()), "Identity", early->attrs()));
      late->set_assigned_device(early->assigned_device());
      MR_RETURN_IF_ERROR(graph->AddEdge(reference->src, reference->src_output, late, 0).status());
      graph->AddControlEdge(early, late);
      for (Node* before : awaited) graph->AddControlEdge(before, late);
      graph->RemoveEdge(edge);
      MR_RETURN_IF_ERROR(graph->AddEdge(late, 0, node, slot).status());
    }
  }
  return OkStatus();
}

}  // namespace millrace
