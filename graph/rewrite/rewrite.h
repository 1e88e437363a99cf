// SPDX-License-Identifier: Apache-2.0
// Makes a graph cheaper before it is compiled. What is fetched, what is fed, the order of side
// effects and what control edges ask for stay as they are; so do all values, bit for bit.
#ifndef GRAPH_REWRITE_REWRITE_H_
#define GRAPH_REWRITE_REWRITE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

struct RewriteOptions {
  bool drop_unread = true;        // what nobody reads is waited for and not computed
  bool fold_constants = true;     // nodes of constants become constants
  bool merge_equal = true;        // of nodes that compute the same one stays
  bool simplify = true;           // x * 1, x / 1, x - 0, -(-x), casts and reshapes for nothing
  bool remove_identities = true;  // nodes that hand on what they get
  // A product or convolution, its bias and its activation become one node (docs/fusion.md).
  bool fuse_products = true;
  bool fuse_small_products = true;  // of half and bfloat16 too
  // Elementwise nodes that feed each other become one _Fused (docs/fusion.md), for which whoever
  // runs the graph must have a kernel.
  bool fuse_elementwise = false;
  bool fuse_reductions = true;                   // into such nodes
  int64_t max_folded_bytes = int64_t{10} << 20;  // no constant larger than this is made
};

// How often each rewrite was made.
struct RewriteCounts {
  int dropped = 0, folded = 0, merged = 0, simplified = 0, removed = 0;
  int fused = 0;  // nodes that are part of another one
  int total() const { return dropped + folded + merged + simplified + removed + fused; }
};

// What a node without state computes of these inputs. An error leaves the node as it is.
using Evaluator =
    std::function<StatusOr<std::vector<Tensor>>(const Node& node, std::span<const Tensor> inputs)>;

// `graph` is what one device runs for one signature: fetches are its sends, feeds its receives.
// Nodes with state, references, functions, control flow and communication are never touched,
// nor are nodes that had no consumer to begin with: they may be targets. `evaluate` may be
// null: then nothing is folded.
StatusOr<RewriteCounts> RewriteGraph(const RewriteOptions& options, const Evaluator& evaluate,
                                     DataflowGraph* graph);

// The single passes. Each returns how often it did something.
// A node whose values nobody reads, and for which others wait, becomes a NoOp of its name that
// waits for its inputs: a gradient of TensorFlow's waits for that of the model's input too. The
// errors that the node would have found in its inputs are not found.
StatusOr<int> DropUnread(DataflowGraph* graph);
StatusOr<int> FoldConstants(const RewriteOptions& options, const Evaluator& evaluate,
                            DataflowGraph* graph);
StatusOr<int> MergeEqualNodes(DataflowGraph* graph);
StatusOr<int> SimplifyArithmetic(DataflowGraph* graph);
StatusOr<int> RemoveIdentities(DataflowGraph* graph);
// After those above: MatMul and Conv2D become _FusedMatMul and _FusedConv2D, with the name of the
// last node that was put in.
StatusOr<int> FuseProducts(const RewriteOptions& options, DataflowGraph* graph);
// Last: others do not see what a _Fused computes. A fused node has the name of its last output.
StatusOr<int> FuseElementwise(DataflowGraph* graph);
// After it: reductions become part of the _Fused that they alone read.
StatusOr<int> FuseReductions(DataflowGraph* graph);

}  // namespace millrace

#endif  // GRAPH_REWRITE_REWRITE_H_
