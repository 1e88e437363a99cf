// SPDX-License-Identifier: Apache-2.0
// All ops of the engine, by family: one *_ops.cc file each.
#ifndef OPS_ALL_OPS_H_
#define OPS_ALL_OPS_H_

#include "millrace/status.h"
#include "ops/op_registry.h"

namespace millrace {

Status RegisterMathOps(OpRegistry& registry);
Status RegisterNnOps(OpRegistry& registry);
Status RegisterArrayOps(OpRegistry& registry);
Status RegisterStateOps(OpRegistry& registry);
Status RegisterResourceVariableOps(OpRegistry& registry);
Status RegisterControlOps(OpRegistry& registry);
Status RegisterFunctionalOps(OpRegistry& registry);
Status RegisterDataFlowOps(OpRegistry& registry);
Status RegisterListOps(OpRegistry& registry);
Status RegisterLookupOps(OpRegistry& registry);
Status RegisterCommOps(OpRegistry& registry);
Status RegisterRandomOps(OpRegistry& registry);
Status RegisterDistributionOps(OpRegistry& registry);
Status RegisterIoOps(OpRegistry& registry);
Status RegisterTrainingOps(OpRegistry& registry);
Status RegisterStringOps(OpRegistry& registry);
Status RegisterTextOps(OpRegistry& registry);
Status RegisterReaderOps(OpRegistry& registry);
Status RegisterRearrangeOps(OpRegistry& registry);
Status RegisterDatasetOps(OpRegistry& registry);
Status RegisterRaggedOps(OpRegistry& registry);
Status RegisterSparseOps(OpRegistry& registry);
Status RegisterImageOps(OpRegistry& registry);
Status RegisterLoggingOps(OpRegistry& registry);
Status RegisterQuantizeOps(OpRegistry& registry);
Status RegisterSignalOps(OpRegistry& registry);
Status RegisterRnnOps(OpRegistry& registry);

// Every family. AlreadyExists if one of them was registered before.
Status RegisterAllOps(OpRegistry& registry);

}  // namespace millrace

#endif  // OPS_ALL_OPS_H_
