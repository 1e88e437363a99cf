// SPDX-License-Identifier: Apache-2.0
// Ops that the placer knows by name.
#ifndef PLACER_OP_KINDS_H_
#define PLACER_OP_KINDS_H_

#include <string_view>

#include "proto/op_def.pb.h"

namespace millrace {

// One variant output, and a name that ends in "Dataset" or "DatasetV<n>".
bool IsDatasetOp(const pb::OpDef& def);
// Ops that take resources only to hand them on to functions: the edge does not tie them to
// the resource's device.
bool MayLeaveResource(std::string_view op);
// Shape, Size, Rank: works on the shape of its input and never touches the values.
bool IsMetadataOp(std::string_view op);

}  // namespace millrace

#endif  // PLACER_OP_KINDS_H_
