// SPDX-License-Identifier: Apache-2.0
// Outputs of a node by the name of the argument in the op's definition; for the generated
// op wrappers.
#ifndef FRONTEND_OP_OUTPUTS_H_
#define FRONTEND_OP_OUTPUTS_H_

#include <string_view>
#include <vector>

#include "millrace/graph.h"

namespace millrace {

// Not valid if `op` is not.
Output OneOutput(const Operation& op, std::string_view arg);
std::vector<Output> OutputList(const Operation& op, std::string_view arg);

}  // namespace millrace

#endif  // FRONTEND_OP_OUTPUTS_H_
