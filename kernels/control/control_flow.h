// SPDX-License-Identifier: Apache-2.0
// The kernels that steer a step rather than compute: branches, loops, arguments, no-ops.
#ifndef KERNELS_CONTROL_CONTROL_FLOW_H_
#define KERNELS_CONTROL_CONTROL_FLOW_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// NoOp, ControlTrigger, Switch, Merge, Enter, Exit, NextIteration, their Ref variants, and
// LoopCond.
void RegisterControlFlowKernels(KernelRegistry& registry);
// _Arg and _Retval: the values that a step is called with and returns.
void RegisterCallKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_CONTROL_CONTROL_FLOW_H_
