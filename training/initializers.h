// SPDX-License-Identifier: Apache-2.0
// Which parts of an init op give values to variables that have none.
#ifndef TRAINING_INITIALIZERS_H_
#define TRAINING_INITIALIZERS_H_

#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"

namespace millrace {

// Ops that together do what `init_op` does for the variables named in `missing` ("name" or "name @
// device", as ReportUninitializedVariables names them), and nothing to variables that have a value.
// `init_op` itself if no variable has one, or if it is not a group of other ops. What is in the
// group and assigns to no variable (a table, say) belongs to those on its device.
std::vector<Operation> InitializersOf(const Graph& graph, const Operation& init_op,
                                      std::span<const std::string> missing);

}  // namespace millrace

#endif  // TRAINING_INITIALIZERS_H_
