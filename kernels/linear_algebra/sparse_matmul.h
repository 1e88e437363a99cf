// SPDX-License-Identifier: Apache-2.0
// Products of matrices of which many elements are zero.
#ifndef KERNELS_LINEAR_ALGEBRA_SPARSE_MATMUL_H_
#define KERNELS_LINEAR_ALGEBRA_SPARSE_MATMUL_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterSparseMatMulKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_LINEAR_ALGEBRA_SPARSE_MATMUL_H_
