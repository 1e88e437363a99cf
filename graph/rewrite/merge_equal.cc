// SPDX-License-Identifier: Apache-2.0
// Of several nodes that compute the same one stays.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"

namespace millrace {
namespace {

using namespace rewrite;  // NOLINT: the passes' own

// More nodes of one hash are not compared.
constexpr int kMaxAlike = 16;

std::vector<const Node*> ControlInputs(const Node& node) {
  std::vector<const Node*> from;
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControl() && edge->src->IsOp()) from.push_back(edge->src);
  }
  std::sort(from.begin(), from.end());
  return from;
}

// Of a constant: as much of it as tells most of them apart.
uint64_t HashOfValue(const Node& node) {
  constexpr std::size_t kMostBytes = 256;
  const StatusOr<Tensor> value = node.attrs().Get<Tensor>("value");
  if (!value.ok()) return 0;
  uint64_t hash = Hash64Combine(static_cast<uint64_t>(value->dtype()), value->num_elements());
  if (!IsMemcpyable(value->dtype()) || value->num_elements() == 0) return hash;
  const std::size_t bytes = std::min(value->num_bytes(), kMostBytes);
  return Hash64Combine(hash, Hash64({static_cast<const char*>(value->raw_data()), bytes}));
}

uint64_t HashOf(const Node& node) {
  uint64_t hash = Hash64Combine(0, reinterpret_cast<uintptr_t>(&node.op()));
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Edge* edge = node.input_edge(i);
    hash = Hash64Combine(hash, static_cast<uint64_t>(edge->src->id()) << 16 | edge->src_output);
  }
  for (const Node* from : ControlInputs(node)) hash = Hash64Combine(hash, from->id());
  return node.num_inputs() > 0 ? hash : Hash64Combine(hash, HashOfValue(node));
}

// Attributes with a leading underscore tell others something about the node.
bool HasSameAttrs(const Node& a, const Node& b) {
  return std::equal(a.attrs().begin(), a.attrs().end(), b.attrs().begin(), b.attrs().end());
}

bool ComputeTheSame(const Node& a, const Node& b) {
  if (&a.op() != &b.op() || a.num_inputs() != b.num_inputs()) return false;
  if (a.output_types() != b.output_types() || a.assigned_device() != b.assigned_device()) {
    return false;
  }
  for (int i = 0; i < a.num_inputs(); ++i) {
    const Edge *x = a.input_edge(i), *y = b.input_edge(i);
    if (x->src != y->src || x->src_output != y->src_output) return false;
  }
  return ControlInputs(a) == ControlInputs(b) && HasSameAttrs(a, b);
}

bool IsConnected(const Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.input_edge(i) == nullptr) return false;
  }
  return true;
}

}  // namespace

StatusOr<int> MergeEqualNodes(DataflowGraph* graph) {
  int merged = 0;
  Purity is_pure;
  // The last node kept of each hash, and by id the one that was kept before it.
  absl::flat_hash_map<uint64_t, Node*> last;
  std::vector<Node*> before(graph->num_node_ids(), nullptr);
  for (Node* node : InOrder(*graph)) {
    if (!is_pure(*node) || !IsConnected(*node)) continue;
    Node*& newest = last[HashOf(*node)];
    Node* same = newest;
    int looked_at = 0;
    while (same != nullptr && !ComputeTheSame(*node, *same)) {
      same = ++looked_at < kMaxAlike ? before[same->id()] : nullptr;
    }
    if (same == nullptr || !HasConsumers(*node)) {
      before[node->id()] = newest;
      newest = node;
      continue;
    }
    for (int i = 0; i < node->num_outputs(); ++i) {
      MR_RETURN_IF_ERROR(MoveConsumers(node, i, same, i, graph));
    }
    MR_RETURN_IF_ERROR(MoveControlOutputs(node, same, graph));
    graph->RemoveNode(node);
    ++merged;
  }
  return merged;
}

}  // namespace millrace
