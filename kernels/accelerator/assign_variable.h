// SPDX-License-Identifier: Apache-2.0
// Assignments to variables in device memory.
#ifndef KERNELS_ACCELERATOR_ASSIGN_VARIABLE_H_
#define KERNELS_ACCELERATOR_ASSIGN_VARIABLE_H_

#include <memory>

#include "kernels/kernel_registry.h"

namespace millrace {

// A factory of AssignVariableOp for an accelerator.
std::unique_ptr<Kernel> MakeAcceleratorAssign(KernelConstruction& c);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_ASSIGN_VARIABLE_H_
