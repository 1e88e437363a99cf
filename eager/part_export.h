// SPDX-License-Identifier: Apache-2.0
// A part of a function that was cut by task, as the definition of a function.
#ifndef EAGER_PART_EXPORT_H_
#define EAGER_PART_EXPORT_H_

#include <string>

#include "graph/functions/function_body.h"
#include "millrace/status.h"
#include "proto/eager.pb.h"

namespace millrace {

// With the functions that the part calls. Its nodes say on which devices they are placed; what has
// effects is a control output. Internal if an input is not connected.
StatusOr<pb::RegisterFunctionOp> ExportPart(const FunctionBody& part);

}  // namespace millrace

#endif  // EAGER_PART_EXPORT_H_
