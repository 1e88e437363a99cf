// SPDX-License-Identifier: Apache-2.0
#include "kernels/lists/tensor_list_util.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// A number of elements may come from a peer, and what is made of the list has as many.
constexpr int64_t kMaxElements = int64_t{1} << 24;

}  // namespace

Status CheckListSize(int64_t count) {
  if (count < 0) {
    return errors::InvalidArgument("The num_elements to reserve must be a non negative number, ",
                                   "but got ", count);
  }
  if (count <= kMaxElements) return OkStatus();
  return errors::ResourceExhausted("a TensorList of ", count, " elements; at most ", kMaxElements,
                                   " are possible");
}

StatusOr<const TensorList*> InputList(KernelContext& ctx, int i) {
  const auto* list = VariantCast<TensorList>(ctx.input(i));
  if (list != nullptr) return list;
  return errors::InvalidArgument("Input handle is not a list. Saw: '", ctx.input(i).DebugString(1),
                                 "'");
}

Status CheckListType(const TensorList& list, DataType dtype) {
  if (list.dtype == dtype) return OkStatus();
  return errors::InvalidArgument("Invalid data types; op elements ", DataTypeName(dtype),
                                 " but list elements ", DataTypeName(list.dtype));
}

StatusOr<RefPtr<TensorList>> TakeList(KernelContext& ctx) {
  MR_RETURN_IF_ERROR(InputList(ctx, 0).status());
  const Tensor& input = ctx.input(0);
  const Buffer* const buffer = input.buffer();
  auto* list = static_cast<TensorList*>(static_cast<Variant*>(input.raw_data())[0].get());
  if (!input.OwnsBufferAlone() || !list->RefCountIsOne()) return list->Copy();
  // Others may read the same value after this kernel: who is the last one, the context knows.
  MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.ForwardOrAllocateOutput({0}, 0, Shape()));
  if (out->buffer() != buffer) return list->Copy();
  Variant& element = static_cast<Variant*>(out->raw_data())[0];
  return RefPtr<TensorList>(static_cast<TensorList*>(element.release()));
}

StatusOr<PartialShape> ElementShapeOperand(const Tensor& t) {
  if (t.rank() == 0) {
    MR_ASSIGN_OR_RETURN(const int64_t value, IntScalar(t, "element_shape"));
    if (value == -1) return PartialShape();
    return errors::InvalidArgument("The only valid scalar shape tensor is the fully unknown ",
                                   "shape specified as -1.");
  }
  MR_ASSIGN_OR_RETURN(Dims dims, IntVector(t, "element_shape", /*vector_only=*/true));
  for (int64_t& dim : dims) {
    if (dim < -1) {
      return errors::InvalidArgument("element_shape has a size of ", dim);
    }
  }
  return PartialShape(dims);
}

namespace {

// What elements of `list` look like, given the op's operand: a shape that those that are set, which
// are merged with it, may narrow.
StatusOr<PartialShape> DeclaredShape(const TensorList& list, const PartialShape& wanted) {
  if (wanted.IsCompatibleWith(list.element_shape)) return wanted.MergeWith(list.element_shape);
  return errors::InvalidArgument("Tried to stack list which only contains uninitialized tensors ",
                                 "or has another element shape: op ", wanted.DebugString(),
                                 ", list ", list.element_shape.DebugString());
}
Status Narrow(PartialShape* shape, const Tensor& element) {
  MR_ASSIGN_OR_RETURN(*shape, shape->MergeWith(element.shape()));
  return OkStatus();
}

// Room for `n` elements of `partial`, all of a list or some that are gathered.
StatusOr<Tensor*> AllocateStack(KernelContext& ctx, int64_t n, const PartialShape& partial,
                                bool gathers) {
  const auto shape = partial.AsShape();
  if (!shape && gathers) {
    return n == 0 ? errors::InvalidArgument("Tried to gather 0-elements from a list with ",
                                            "non-fully-defined shape: ", partial.DebugString())
                  : errors::InvalidArgument(
                        "Tried to gather uninitialized tensors from a list ",
                        "with non-fully-defined element_shape: ", partial.DebugString());
  }
  if (!shape) {
    return n == 0
               ? errors::InvalidArgument("Tried to stack elements of an empty list with ",
                                         "non-fully-defined element_shape: ", partial.DebugString())
               : errors::InvalidArgument(
                     "Tried to stack list which only contains uninitialized ",
                     "tensors and has a non-fully-defined element_shape: ", partial.DebugString());
  }
  Shape whole = *shape;
  whole.InsertDim(0, n);
  return ctx.AllocateOutput(0, whole);
}

}  // namespace

Status StackList(KernelContext& ctx, const TensorList& list, const PartialShape& wanted) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, DeclaredShape(list, wanted));
  MR_RETURN_IF_ERROR(list.elements.ForEachSet(
      [&](int64_t, const Tensor& element) { return Narrow(&shape, element); }));
  const int64_t n = list.elements.size();
  MR_ASSIGN_OR_RETURN(Tensor * out, AllocateStack(ctx, n, shape, /*gathers=*/false));
  if (out->num_elements() == 0) return OkStatus();
  const int64_t count = out->num_elements() / n;
  int64_t set = 0;
  MR_RETURN_IF_ERROR(list.elements.ForEachSet([&](int64_t, const Tensor&) {
    ++set;
    return OkStatus();
  }));
  if (set < n) ClearRange(out, 0, out->num_elements());
  return list.elements.ForEachSet([&](int64_t i, const Tensor& element) {
    CopyRange(element, 0, out, i * count, count);
    return OkStatus();
  });
}

Status StackListElements(KernelContext& ctx, const TensorList& list, const PartialShape& wanted,
                         std::span<const int64_t> indices) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, DeclaredShape(list, wanted));
  for (const int64_t i : indices) {
    const Tensor& element = list.elements[i];
    if (element.IsInitialized()) MR_RETURN_IF_ERROR(Narrow(&shape, element));
  }
  const auto n = static_cast<int64_t>(indices.size());
  MR_ASSIGN_OR_RETURN(Tensor * out, AllocateStack(ctx, n, shape, /*gathers=*/true));
  if (out->num_elements() == 0) return OkStatus();
  const int64_t count = out->num_elements() / n;
  for (int64_t at = 0; at < n; ++at) {
    const Tensor& element = list.elements[indices[at]];
    if (element.IsInitialized()) {
      CopyRange(element, 0, out, at * count, count);
    } else {
      ClearRange(out, at * count, count);
    }
  }
  return OkStatus();
}

StatusOr<Tensor> ReadListElement(KernelContext& ctx, const TensorList& list, const Tensor& element,
                                 const PartialShape& wanted) {
  if (element.IsInitialized()) {
    if (!wanted.IsCompatibleWith(element.shape())) {
      return errors::InvalidArgument("Incompatible shapes during merge: op element shape ",
                                     wanted.DebugString(), ", list element ",
                                     element.shape().DebugString());
    }
    return element;
  }
  MR_ASSIGN_OR_RETURN(PartialShape shape, wanted.MergeWith(list.element_shape));
  MR_RETURN_IF_ERROR(list.elements.ForEachSet([&](int64_t, const Tensor& t) {
    return shape.IsFullyDefined() ? OkStatus() : Narrow(&shape, t);
  }));
  const auto known = shape.AsShape();
  if (!known) {
    return errors::InvalidArgument("Trying to read an uninitialized tensor but element_shape is ",
                                   "not fully defined: ", shape.DebugString(),
                                   " and no list element is set.");
  }
  return ZeroTensor(ctx.allocator(), list.dtype, *known);
}

Status CheckListElement(const TensorList& list, const Tensor& value) {
  MR_RETURN_IF_ERROR(CheckListType(list, value.dtype()));
  MR_RETURN_IF_ERROR(CheckNesting(value));
  if (list.element_shape.IsCompatibleWith(value.shape())) return OkStatus();
  return errors::InvalidArgument("Tried to append a tensor with incompatible shape to a list. ",
                                 "Op element shape: ", value.shape().DebugString(),
                                 " list shape: ", list.element_shape.DebugString());
}

void SetList(KernelContext& ctx, RefPtr<TensorList> list) {
  ctx.SetOutput(0, VariantTensor(std::move(list)));
}

}  // namespace millrace
