// SPDX-License-Identifier: Apache-2.0
// A function made into a graph: what is inlined, differentiated, placed and run.
#ifndef GRAPH_FUNCTIONS_FUNCTION_BODY_H_
#define GRAPH_FUNCTIONS_FUNCTION_BODY_H_

#include <memory>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/attr_value.h"
#include "millrace/status.h"

namespace millrace {

// Constant once made.
struct FunctionBody {
  std::unique_ptr<DataflowGraph> graph;
  std::string name;
  std::vector<Node*> args;     // nodes _Arg, by index
  std::vector<Node*> results;  // nodes _Retval, by index
  std::vector<Node*> effects;  // what the definition says must run (its control outputs)
  AttrMap attrs;               // of the definition: "_noinline" and the like

  std::vector<DataType> arg_types() const;
  std::vector<DataType> result_types() const;
};

// The body of `function`, with its attributes in place of the placeholders, over these ops and
// functions. NotFound if there is no such function. InvalidArgument, naming the function and
// the node: an attribute that is missing, an input or result that does not exist or has another
// type, names used twice, a cycle without a loop.
StatusOr<std::unique_ptr<FunctionBody>> InstantiateFunction(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const FunctionName& function);

// A text that is the same for equal functions only: a key for what was made of them.
std::string FunctionKey(const FunctionName& function);

}  // namespace millrace

#endif  // GRAPH_FUNCTIONS_FUNCTION_BODY_H_
