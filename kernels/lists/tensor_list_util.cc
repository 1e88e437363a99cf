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

// A number of elements may come from a peer; each costs memory before it is set.
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

StatusOr<PartialShape> CommonElementShape(const TensorList& list, const PartialShape& wanted,
                                          std::span<const Tensor> elements) {
  if (!wanted.IsCompatibleWith(list.element_shape)) {
    return errors::InvalidArgument("Tried to stack list which only contains uninitialized tensors ",
                                   "or has another element shape: op ", wanted.DebugString(),
                                   ", list ", list.element_shape.DebugString());
  }
  MR_ASSIGN_OR_RETURN(PartialShape shape, wanted.MergeWith(list.element_shape));
  for (const Tensor& t : elements) {
    if (!t.IsInitialized()) continue;
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(t.shape()));
  }
  return shape;
}

Status StackListElements(KernelContext& ctx, const TensorList& list, const PartialShape& wanted,
                         std::vector<Tensor> elements) {
  MR_ASSIGN_OR_RETURN(const PartialShape partial, CommonElementShape(list, wanted, elements));
  const auto shape = partial.AsShape();
  if (!shape) {
    return elements.empty()
               ? errors::InvalidArgument("Tried to stack elements of an empty list with ",
                                         "non-fully-defined element_shape: ", partial.DebugString())
               : errors::InvalidArgument(
                     "Tried to stack list which only contains uninitialized ",
                     "tensors and has a non-fully-defined element_shape: ", partial.DebugString());
  }
  for (Tensor& t : elements) {
    if (t.IsInitialized()) continue;
    MR_ASSIGN_OR_RETURN(t, ZeroTensor(ctx.allocator(), list.dtype, *shape));
  }
  MR_ASSIGN_OR_RETURN(Tensor whole, StackTensors(ctx.allocator(), list.dtype, *shape, elements));
  ctx.SetOutput(0, std::move(whole));
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
  for (const Tensor& t : list.elements) {
    if (shape.IsFullyDefined() || !t.IsInitialized()) continue;
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(t.shape()));
  }
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
  if (list.element_shape.IsCompatibleWith(value.shape())) return OkStatus();
  return errors::InvalidArgument("Tried to append a tensor with incompatible shape to a list. ",
                                 "Op element shape: ", value.shape().DebugString(),
                                 " list shape: ", list.element_shape.DebugString());
}

void SetList(KernelContext& ctx, RefPtr<TensorList> list) {
  ctx.SetOutput(0, VariantTensor(std::move(list)));
}

}  // namespace millrace
