// SPDX-License-Identifier: Apache-2.0
// What the ops on tensor lists share.
#ifndef KERNELS_LISTS_TENSOR_LIST_UTIL_H_
#define KERNELS_LISTS_TENSOR_LIST_UTIL_H_

#include <cstdint>
#include <span>

#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/lists/tensor_list.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// InvalidArgument for a negative number of elements, ResourceExhausted for an absurd one.
Status CheckListSize(int64_t count);

// Input i, or InvalidArgument if it is no list.
StatusOr<const TensorList*> InputList(KernelContext& ctx, int i);

// InvalidArgument if the list's elements are of another type.
Status CheckListType(const TensorList& list, DataType dtype);

// The list of input 0 as one that may be changed: itself if nobody else has it or will read it,
// else a copy (which shares the elements). Input 0 is not to be read afterwards; output 0 is to be
// set, by SetList.
StatusOr<RefPtr<TensorList>> TakeList(KernelContext& ctx);

// -1 or a vector in which negative sizes are unknown.
StatusOr<PartialShape> ElementShapeOperand(const Tensor& t);

// Elements of `list` along a new first axis; those that are not set are zeros. All of them, or
// those at `indices`, which are within the list.
Status StackList(KernelContext& ctx, const TensorList& list, const PartialShape& wanted);
Status StackListElements(KernelContext& ctx, const TensorList& list, const PartialShape& wanted,
                         std::span<const int64_t> indices);

// Element `index`, or zeros if it was never set.
StatusOr<Tensor> ReadListElement(KernelContext& ctx, const TensorList& list, const Tensor& element,
                                 const PartialShape& wanted);

// InvalidArgument if `value` cannot be an element; ResourceExhausted if too many objects would lie
// within each other.
Status CheckListElement(const TensorList& list, const Tensor& value);

// Output 0.
void SetList(KernelContext& ctx, RefPtr<TensorList> list);

// The ops that make a tensor of a list, or a list of a tensor.
void RegisterTensorListArrayKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_LISTS_TENSOR_LIST_UTIL_H_
