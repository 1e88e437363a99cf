// SPDX-License-Identifier: Apache-2.0
#include "graph/body_names.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {

StatusOr<std::string> BodyTensorName(const Node& node, int output) {
  const pb::OpDef& op = node.op().def;
  for (const pb::OpDef::ArgDef& arg : op.output_arg()) {
    int begin = 0, end = 0;
    MR_RETURN_IF_ERROR(ArgRange(op, node.attrs(), arg.name(), /*is_input=*/false, &begin, &end));
    if (output >= begin && output < end) {
      return StrCat(node.name(), ":", arg.name(), ":", output - begin);
    }
  }
  return errors::Internal(node.name(), " has no output ", output);
}

}  // namespace millrace
