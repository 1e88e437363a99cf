// SPDX-License-Identifier: Apache-2.0
// Variables in device memory that are references, and assignments to them.
#ifndef KERNELS_ACCELERATOR_REFERENCE_VARIABLE_H_
#define KERNELS_ACCELERATOR_REFERENCE_VARIABLE_H_

#include <memory>

#include "kernels/kernel_registry.h"

namespace millrace {

// Factories of Variable and VariableV2, and of Assign, for an accelerator. None is recorded.
std::unique_ptr<Kernel> MakeAcceleratorVariable(KernelConstruction& c);
std::unique_ptr<Kernel> MakeAcceleratorReferenceAssign(KernelConstruction& c);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_REFERENCE_VARIABLE_H_
