// SPDX-License-Identifier: Apache-2.0
// Names of nodes, and how they stand in the inputs of a NodeDef: "n", "n:1", "^n".
#ifndef GRAPH_NODE_NAME_H_
#define GRAPH_NODE_NAME_H_

#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

// [A-Za-z0-9.][A-Za-z0-9_./-]*, or several such groups joined by '>'. With `internal` the
// first character may also be '_', as in the names that the runtime itself makes.
bool IsNodeName(std::string_view name, bool internal = false);

// An output of a node by name, or the node itself as a control input (index -1).
struct TensorName {
  std::string_view node;
  int index = 0;
  bool IsControl() const { return index < 0; }
};

// Views into `text`. InvalidArgument "Illegal op input name" if it is none of the forms;
// "a:01" is none.
StatusOr<TensorName> ParseTensorName(std::string_view text, bool internal = false);

// "n" for output 0, "n:K" for others, "^n" for index -1.
std::string FormatTensorName(std::string_view node, int index);

}  // namespace millrace

#endif  // GRAPH_NODE_NAME_H_
