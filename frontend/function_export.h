// SPDX-License-Identifier: Apache-2.0
// The body of a function, which was built as a graph, as a definition.
#ifndef FRONTEND_FUNCTION_EXPORT_H_
#define FRONTEND_FUNCTION_EXPORT_H_

#include <string>
#include <vector>

#include "millrace/graph.h"
#include "proto/function.pb.h"

namespace millrace {

// A node that stands for an argument, and the argument's name.
struct ExportedArg {
  std::string name;
  Output node;
};

// `results` are outputs of `body`, whose nodes are all written but for those of arguments. What has
// effects becomes a control output. InvalidArgument: placeholders, which nobody could feed;
// inputs that are not connected.
StatusOr<pb::FunctionDef> ExportFunction(const GraphState& body, const std::string& name,
                                         const std::vector<ExportedArg>& args,
                                         const std::vector<Output>& results);

}  // namespace millrace

#endif  // FRONTEND_FUNCTION_EXPORT_H_
