// SPDX-License-Identifier: Apache-2.0
// Nodes that are added to a while loop, or that make a new one.
#ifndef GRAPH_GRADIENTS_LOOP_NODES_H_
#define GRAPH_GRADIENTS_LOOP_NODES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "frontend/graph_builder.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

class LoopNodes {
 public:
  // `like`: whose device and line of the program the nodes get. `prefix`: of their names.
  LoopNodes(GraphState* state, const Node* like, int64_t parallel_iterations, std::string prefix)
      : state_(*state),
        like_(like),
        parallel_iterations_(parallel_iterations),
        prefix_(std::move(prefix)) {}

  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const { return prefix_; }

  StatusOr<Node*> Add(std::string_view name, std::string_view op, AttrMap attrs,
                      std::initializer_list<OutputRef> inputs);
  // With the type as attribute T.
  StatusOr<Node*> AddTyped(std::string_view name, std::string_view op, DataType type,
                           std::initializer_list<OutputRef> inputs);
  StatusOr<Node*> Enter(const OutputRef& source, const std::string& frame, bool constant);

  // A variable of a loop, made step by step: Carry, Test, Next, Exit.
  struct Carried {
    Node* merge = nullptr;
    Node* branch = nullptr;  // the Switch
    OutputRef current;
  };
  StatusOr<Carried> Carry(const OutputRef& source, const std::string& frame);
  Status Test(const OutputRef& condition, Carried* carried);
  StatusOr<Node*> Next(const Carried& carried, const OutputRef& value);
  StatusOr<OutputRef> Exit(const Carried& carried);

 private:
  GraphState& state_;
  const Node* const like_;
  const int64_t parallel_iterations_;
  std::string prefix_;
};

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_LOOP_NODES_H_
