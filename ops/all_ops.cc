// SPDX-License-Identifier: Apache-2.0
#include "ops/all_ops.h"

#include "base/status_macros.h"

namespace millrace {

Status RegisterAllOps(OpRegistry& registry) {
  MR_RETURN_IF_ERROR(RegisterMathOps(registry));
  MR_RETURN_IF_ERROR(RegisterNnOps(registry));
  MR_RETURN_IF_ERROR(RegisterArrayOps(registry));
  MR_RETURN_IF_ERROR(RegisterStateOps(registry));
  MR_RETURN_IF_ERROR(RegisterResourceVariableOps(registry));
  MR_RETURN_IF_ERROR(RegisterControlOps(registry));
  MR_RETURN_IF_ERROR(RegisterFunctionalOps(registry));
  MR_RETURN_IF_ERROR(RegisterDataFlowOps(registry));
  MR_RETURN_IF_ERROR(RegisterListOps(registry));
  MR_RETURN_IF_ERROR(RegisterLookupOps(registry));
  MR_RETURN_IF_ERROR(RegisterCommOps(registry));
  MR_RETURN_IF_ERROR(RegisterRandomOps(registry));
  MR_RETURN_IF_ERROR(RegisterDistributionOps(registry));
  MR_RETURN_IF_ERROR(RegisterIoOps(registry));
  MR_RETURN_IF_ERROR(RegisterTrainingOps(registry));
  MR_RETURN_IF_ERROR(RegisterStringOps(registry));
  MR_RETURN_IF_ERROR(RegisterTextOps(registry));
  MR_RETURN_IF_ERROR(RegisterReaderOps(registry));
  MR_RETURN_IF_ERROR(RegisterRearrangeOps(registry));
  MR_RETURN_IF_ERROR(RegisterDatasetOps(registry));
  MR_RETURN_IF_ERROR(RegisterRaggedOps(registry));
  MR_RETURN_IF_ERROR(RegisterSparseOps(registry));
  MR_RETURN_IF_ERROR(RegisterImageOps(registry));
  MR_RETURN_IF_ERROR(RegisterLoggingOps(registry));
  MR_RETURN_IF_ERROR(RegisterQuantizeOps(registry));
  MR_RETURN_IF_ERROR(RegisterSignalOps(registry));
  MR_RETURN_IF_ERROR(RegisterRnnOps(registry));
  return OkStatus();
}

}  // namespace millrace
