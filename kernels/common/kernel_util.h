// SPDX-License-Identifier: Apache-2.0
// Small readers of operands that are sizes, axes and indices. They check what they read:
// every value may come from a peer.
#ifndef KERNELS_COMMON_KERNEL_UTIL_H_
#define KERNELS_COMMON_KERNEL_UTIL_H_

#include <cstdint>
#include <string_view>

#include "kernels/kernel_registry.h"
#include "millrace/shape.h"
#include "millrace/tensor.h"

namespace millrace {

// The value of an integer scalar (rank 0) of any width. InvalidArgument, naming `what`, if it has
// another rank or type.
StatusOr<int64_t> IntScalar(const Tensor& t, std::string_view what);
// The elements of an integer tensor of rank 0 or 1 (rank 1 only if `vector_only`).
StatusOr<Dims> IntVector(const Tensor& t, std::string_view what, bool vector_only = false);
// A shape from a vector of sizes; InvalidArgument for negative or too many elements.
StatusOr<Shape> ShapeFromTensor(const Tensor& t, std::string_view what);
// `axis` in [-rank, rank) made non-negative; InvalidArgument that names `what` and the range.
StatusOr<int> NormalizeAxis(int64_t axis, int rank, std::string_view what);

// An int32 or int64 vector tensor (by `dtype`) with the given values.
Tensor IndexTensor(DataType dtype, std::span<const int64_t> values);
// InvalidArgument if int32 is asked for and a value does not fit.
Status CheckFits(DataType dtype, std::span<const int64_t> values);

// Registers `K` for `op` on the CPU, whatever the types.
template <typename K>
void RegisterCpu(KernelRegistry& registry, std::string op) {
  registry.Register(KernelDef(std::move(op)), &MakeKernel<K>);
}

}  // namespace millrace

#endif  // KERNELS_COMMON_KERNEL_UTIL_H_
