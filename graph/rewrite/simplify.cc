// SPDX-License-Identifier: Apache-2.0
// Arithmetic that changes nothing. Every rule keeps all bits of a result, NaN included; x + 0
// is not among them, as it makes 0 of -0.
#include <bit>
#include <cstdint>

#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"

namespace millrace {
namespace {

using namespace rewrite;  // NOLINT: the passes' own

struct Source {
  Node* node = nullptr;
  int output = 0;
};

Source InputOf(const Node& node, int i) {
  const Edge* edge = node.input_edge(i);
  return edge == nullptr ? Source{} : Source{edge->src, edge->src_output};
}

// A constant scalar: an operand that leaves the other one's shape as it is.
bool IsScalar(const Source& source, float wanted) {
  if (source.node == nullptr || !IsConst(*source.node) || HasControlInputs(*source.node)) {
    return false;
  }
  const StatusOr<Tensor> value = source.node->attrs().Get<Tensor>("value");
  if (!value.ok() || value->rank() != 0) return false;
  switch (value->dtype()) {
    case DataType::kFloat:
      return std::bit_cast<uint32_t>(value->scalar<float>()) == std::bit_cast<uint32_t>(wanted);
    case DataType::kDouble:
      return std::bit_cast<uint64_t>(value->scalar<double>()) ==
             std::bit_cast<uint64_t>(static_cast<double>(wanted));
    case DataType::kInt32:
      return value->scalar<int32_t>() == static_cast<int32_t>(wanted);
    case DataType::kInt64:
      return value->scalar<int64_t>() == static_cast<int64_t>(wanted);
    default:
      return false;
  }
}

// Of the same op: what went into the first of two that undo each other.
Source Undone(const Node& node, const Source& in) {
  return in.node != nullptr && in.node->type() == node.type() && !HasControlInputs(*in.node)
             ? InputOf(*in.node, 0)
             : Source{};
}

// What the node's output equals; no node if nothing simpler is known.
Source SameAs(const Node& node) {
  const std::string& type = node.type();
  const Source a = InputOf(node, 0);
  const Source b = node.num_inputs() > 1 ? InputOf(node, 1) : Source{};
  if (type == "Mul") {
    if (IsScalar(b, 1)) return a;
    if (IsScalar(a, 1)) return b;
  } else if (type == "Div" || type == "RealDiv") {
    if (IsScalar(b, 1)) return a;
  } else if (type == "Sub") {
    if (IsScalar(b, 0)) return a;
  } else if (type == "Add" || type == "AddV2") {
    if (IsScalar(b, -0.0f)) return a;  // for integers this is 0
    if (IsScalar(a, -0.0f)) return b;
  } else if (type == "Cast") {
    if (node.input_types()[0] == node.output_types()[0]) return a;
  } else if (type == "Neg" || type == "LogicalNot" || type == "Invert" || type == "Conj") {
    return Undone(node, a);
  }
  return {};
}

// Reshape(Reshape(x, s), t) is Reshape(x, t).
StatusOr<bool> SkipReshape(Node* node, DataflowGraph* graph) {
  if (node->type() != "Reshape") return false;
  Edge* const edge = const_cast<Edge*>(node->input_edge(0));
  if (edge == nullptr || edge->src->type() != "Reshape" || HasControlInputs(*edge->src)) {
    return false;
  }
  Node* const skipped = edge->src;
  const Source from = InputOf(*skipped, 0);
  if (from.node == nullptr) return false;
  graph->RemoveEdge(edge);
  MR_RETURN_IF_ERROR(graph->AddEdge(from.node, from.output, node, 0).status());
  RemoveUnused(skipped, graph);
  return true;
}

}  // namespace

StatusOr<int> SimplifyArithmetic(DataflowGraph* graph) {
  int simplified = 0;
  Purity is_pure;
  const int num_ids = graph->num_node_ids();
  for (int id = 0; id < num_ids; ++id) {
    Node* const node = graph->node(id);  // may be gone by now
    if (node == nullptr || !is_pure(*node) || !HasConsumers(*node)) continue;
    MR_ASSIGN_OR_RETURN(const bool skipped, SkipReshape(node, graph));
    if (skipped) ++simplified;
    // What waits for the node would have to wait for something else.
    if (HasControlInputs(*node) || HasControlOutputs(*node)) continue;
    const Source same = SameAs(*node);
    if (same.node == nullptr || same.node == node) continue;
    MR_RETURN_IF_ERROR(MoveConsumers(node, 0, same.node, same.output, graph));
    RemoveUnused(node, graph);
    ++simplified;
  }
  return simplified;
}

StatusOr<int> RemoveIdentities(DataflowGraph* graph) {
  int removed = 0;
  const OpInfo* last_op = nullptr;
  bool passes_on = false;
  for (Node* node : graph->OpNodes()) {
    if (&node->op() != last_op) {
      passes_on = node->type() == "Identity" || node->type() == "StopGradient" ||
                  node->type() == "PreventGradient" || node->type() == "Snapshot";
      last_op = &node->op();
    }
    if (!passes_on || !IsPure(*node) || !HasConsumers(*node)) continue;
    if (HasControlInputs(*node) || HasControlOutputs(*node)) continue;
    const Source from = InputOf(*node, 0);
    if (from.node == nullptr) continue;
    MR_RETURN_IF_ERROR(MoveConsumers(node, 0, from.node, from.output, graph));
    graph->RemoveNode(node);
    ++removed;
  }
  return removed;
}

StatusOr<RewriteCounts> RewriteGraph(const RewriteOptions& options, const Evaluator& evaluate,
                                     DataflowGraph* graph) {
  RewriteCounts counts;
  if (options.drop_unread) {
    MR_ASSIGN_OR_RETURN(counts.dropped, DropUnread(graph));
  }
  constexpr int kMaxRounds = 4;  // one rewrite makes room for another, mostly once
  for (int round = 0; round < kMaxRounds; ++round) {
    const RewriteCounts before = counts;
    if (options.remove_identities) {
      MR_ASSIGN_OR_RETURN(const int n, RemoveIdentities(graph));
      counts.removed += n;
    }
    if (options.simplify) {
      MR_ASSIGN_OR_RETURN(const int n, SimplifyArithmetic(graph));
      counts.simplified += n;
    }
    if (options.fold_constants && evaluate != nullptr) {
      MR_ASSIGN_OR_RETURN(const int n, FoldConstants(options, evaluate, graph));
      counts.folded += n;
    }
    if (options.merge_equal) {
      MR_ASSIGN_OR_RETURN(const int n, MergeEqualNodes(graph));
      counts.merged += n;
    }
    // Nodes were merged in order, and no other pass asks what is equal.
    if (counts.total() - counts.merged == before.total() - before.merged) break;
  }
  if (options.fuse_products) {
    MR_ASSIGN_OR_RETURN(counts.fused, FuseProducts(options, graph));
  }
  if (options.fuse_elementwise) {
    MR_ASSIGN_OR_RETURN(const int n, FuseElementwise(graph));
    counts.fused += n;
  }
  if (options.fuse_elementwise && options.fuse_reductions) {
    MR_ASSIGN_OR_RETURN(const int n, FuseReductions(graph));
    counts.fused += n;
  }
  if (counts.total() > 0) graph->FixSourceAndSink();
  return counts;
}

}  // namespace millrace
