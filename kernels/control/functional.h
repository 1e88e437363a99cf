// SPDX-License-Identifier: Apache-2.0
// The kernels that run functions.
#ifndef KERNELS_CONTROL_FUNCTIONAL_H_
#define KERNELS_CONTROL_FUNCTIONAL_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// Calls, If, Case, While, their stateless kin, SymbolicGradient; ToBool and FakeParam.
void RegisterFunctionalKernels(KernelRegistry& registry);
void RegisterMapDefunKernel(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_CONTROL_FUNCTIONAL_H_
