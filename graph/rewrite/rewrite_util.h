// SPDX-License-Identifier: Apache-2.0
// What the rewrites of a graph have in common.
#ifndef GRAPH_REWRITE_REWRITE_UTIL_H_
#define GRAPH_REWRITE_REWRITE_UTIL_H_

#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace::rewrite {

// True if the node computes its outputs from its inputs and nothing else: it may then be run
// once for many, or not at all.
bool IsPure(const Node& node);
// The same for many nodes: what an op's name tells is looked up once.
class Purity {
 public:
  bool operator()(const Node& node);

 private:
  absl::flat_hash_map<const OpInfo*, bool> ops_;
  const OpInfo* last_op_ = nullptr;
  bool last_ = false;
};
bool IsConst(const Node& node);
// Loops and branches: their edges mean more than values.
bool IsControlFlow(const Node& node);

bool HasControlInputs(const Node& node);
bool HasControlOutputs(const Node& node);
bool HasConsumers(const Node& node);

// Nodes in an order in which each comes after its inputs, but for what a NextIteration brings;
// those on other cycles at the end.
std::vector<Node*> InOrder(const DataflowGraph& graph);

// The one node that reads the output, at its first input; null if others read it or wait for it.
Node* OnlyReader(const Node& node);
// The reduction that can become part of a node with this output: the only reader, over constant
// axes.
Node* ReductionOver(const Node& node);

// A node of type `op` in the place of `members`, a chain of which only the last one has readers
// elsewhere: it reads `inputs`, waits for all that a member waited for, and has name, device and
// origin of the last one.
Status ReplaceChain(const std::vector<Node*>& members, std::string_view op, AttrMap attrs,
                    const std::vector<std::pair<Node*, int>>& inputs, DataflowGraph* graph);

// All that read output `from` of `node`, or wait for it, read output `to` of `by`, or wait for it.
Status MoveConsumers(Node* node, int from, Node* by, int to, DataflowGraph* graph);
Status MoveControlOutputs(Node* node, Node* by, DataflowGraph* graph);
// Removes the node if nobody needs it any more, and then those inputs that nobody needs.
void RemoveUnused(Node* node, DataflowGraph* graph);

}  // namespace millrace::rewrite

#endif  // GRAPH_REWRITE_REWRITE_UTIL_H_
