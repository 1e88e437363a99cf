// SPDX-License-Identifier: Apache-2.0
// The derivative of Cholesky's factor.
#ifndef KERNELS_LINEAR_ALGEBRA_CHOLESKY_GRAD_H_
#define KERNELS_LINEAR_ALGEBRA_CHOLESKY_GRAD_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterCholeskyGradKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_LINEAR_ALGEBRA_CHOLESKY_GRAD_H_
