// SPDX-License-Identifier: Apache-2.0
// Static shapes of a graph while it grows: runs each node's shape function over what is
// known of its inputs, their values included.
#ifndef GRAPH_SHAPE_REFINER_H_
#define GRAPH_SHAPE_REFINER_H_

#include <memory>
#include <optional>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "ops/shape_inference.h"

namespace millrace {

// Keeps results by node id; nodes must be added after their inputs (inputs of a loop's back
// edge, and nodes never added, count as unknown). Not synchronised.
class ShapeRefiner {
 public:
  // InvalidArgument if the node cannot be right; nothing is kept then.
  Status AddNode(const Node* node);
  // Every node of the graph, in topological order as far as there is one; stops at the first
  // error, naming the node.
  Status AddGraph(const DataflowGraph& graph);

  PartialShape shape(const Node* node, int output) const;
  // Shape and type behind a resource output; null if unknown.
  const HandleShape* handle(const Node* node, int output) const;
  // The value of an output, where it is known before anything runs; null otherwise.
  const Tensor* constant(const Node* node, int output) const;

 private:
  struct Known {
    PartialShape shape;
    std::optional<HandleShape> handle;
    std::optional<Tensor> value;
    // For a vector of sizes of which only some are known (-1: unknown).
    std::optional<PartialShape> value_as_shape;
  };
  const Known* Find(const Node* node, int output) const;
  const Known* FindInput(const Node* node, int input) const;
  void LearnValues(const Node* node, std::vector<Known>* outputs) const;
  std::optional<int64_t> ScalarValue(const Known* known) const;

  std::vector<std::vector<Known>> known_;  // by node id
};

}  // namespace millrace

#endif  // GRAPH_SHAPE_REFINER_H_
