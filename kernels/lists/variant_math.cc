// SPDX-License-Identifier: Apache-2.0
// Sums and zeros of lists and optionals: what gradients of loops and branches are made of.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/variant_codec.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/lists/optional.h"
#include "kernels/lists/tensor_list.h"
#include "kernels/ragged/ragged_variant.h"

namespace millrace {
namespace {

// Lists of optionals of lists: a loop of branches of loops. Deeper ones are a mistake.
constexpr int kMaxDepth = 100;

Status CheckDepth(int depth) {
  if (depth <= kMaxDepth) return OkStatus();
  return errors::ResourceExhausted("variants within variants, more than ", kMaxDepth, " deep");
}

// Null if it is none.
const PlainValue* Number(const Variant& object) {
  const auto* const plain = dynamic_cast<PlainValue*>(object.get());
  // Of the others none is called a C++ type, and none has bytes to add.
  return plain != nullptr && plain->value.rank() == 0 &&
                 plain->type_name.find(':') == std::string::npos
             ? plain
             : nullptr;
}

StatusOr<Tensor> ZerosOf(Allocator* allocator, const Tensor& of, int depth);

StatusOr<Variant> ZerosOfObject(Allocator* allocator, const Variant& object, int depth) {
  MR_RETURN_IF_ERROR(CheckDepth(depth));
  if (const auto* list = dynamic_cast<TensorList*>(object.get())) {
    RefPtr<TensorList> zeros = list->Copy();
    MR_RETURN_IF_ERROR(list->elements.ForEachSet([&](int64_t i, const Tensor& t) -> Status {
      MR_ASSIGN_OR_RETURN(Tensor zero, ZerosOf(allocator, t, depth + 1));
      zeros->elements.Set(i, std::move(zero));
      return OkStatus();
    }));
    return Variant(std::move(zeros));
  }
  if (const auto* optional = dynamic_cast<Optional*>(object.get())) {
    auto zeros = MakeRef<Optional>();
    zeros->has_value = optional->has_value;
    zeros->depth = optional->depth;
    for (const Tensor& t : optional->components) {
      MR_ASSIGN_OR_RETURN(Tensor zero, ZerosOf(allocator, t, depth + 1));
      zeros->components.push_back(std::move(zero));
    }
    return Variant(std::move(zeros));
  }
  if (const auto* ragged = dynamic_cast<RaggedVariant*>(object.get())) {
    auto zeros = MakeRef<RaggedVariant>();
    zeros->splits = ragged->splits;
    MR_ASSIGN_OR_RETURN(zeros->values, ZerosOf(allocator, ragged->values, depth + 1));
    return Variant(std::move(zeros));
  }
  if (const PlainValue* plain = Number(object)) {
    MR_ASSIGN_OR_RETURN(Tensor zero, ZerosOf(allocator, plain->value, depth + 1));
    return Variant(MakeRef<PlainValue>(plain->type_name, std::move(zero)));
  }
  return errors::InvalidArgument(
      "ZerosLike of a variant that is neither a list, nor an optional, nor ragged, nor a number");
}

StatusOr<Tensor> ZerosOf(Allocator* allocator, const Tensor& of, int depth) {
  if (of.dtype() != kVariant) return ZeroTensor(allocator, of.dtype(), of.shape());
  MR_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Allocate(allocator, kVariant, of.shape()));
  for (int64_t i = 0; i < of.num_elements(); ++i) {
    MR_ASSIGN_OR_RETURN(zeros.data<Variant>()[i],
                        ZerosOfObject(allocator, of.data<Variant>()[i], depth));
  }
  return zeros;
}

StatusOr<Tensor> Sum(Allocator* allocator, const Tensor& a, const Tensor& b, int depth);

StatusOr<Variant> SumOfLists(Allocator* allocator, const TensorList& a, const TensorList& b,
                             int depth) {
  if (a.dtype != b.dtype) {
    return errors::InvalidArgument("Invalid data types; op elements ", DataTypeName(a.dtype),
                                   " but list elements ", DataTypeName(b.dtype));
  }
  if (a.elements.size() != b.elements.size()) {
    return errors::InvalidArgument(
        "Trying to add two lists of tensors with different lengths. One is ", a.elements.size(),
        " and the other is ", b.elements.size());
  }
  RefPtr<TensorList> sum = a.Copy();
  MR_ASSIGN_OR_RETURN(sum->element_shape, a.element_shape.MergeWith(b.element_shape));
  MR_RETURN_IF_ERROR(b.elements.ForEachSet([&](int64_t k, const Tensor& t) -> Status {
    Tensor to = t;
    if (a.elements[k].IsInitialized()) {
      MR_ASSIGN_OR_RETURN(to, Sum(allocator, a.elements[k], t, depth + 1));
    }
    sum->elements.Set(k, std::move(to));
    return OkStatus();
  }));
  return Variant(std::move(sum));
}

StatusOr<Variant> SumOfOptionals(Allocator* allocator, const Optional& a, const Optional& b,
                                 int depth) {
  if (a.has_value != b.has_value) {
    return errors::InvalidArgument(
        "Cannot add optionals because one has a value and the other doesn't.");
  }
  if (a.components.size() != b.components.size()) {
    return errors::InvalidArgument(
        "Cannot add optionals because they have different numbers of components (",
        a.components.size(), " vs. ", b.components.size(), ").");
  }
  auto sum = MakeRef<Optional>();
  sum->has_value = a.has_value;
  sum->depth = std::max(a.depth, b.depth);
  for (std::size_t i = 0; i < a.components.size(); ++i) {
    MR_ASSIGN_OR_RETURN(Tensor component,
                        Sum(allocator, a.components[i], b.components[i], depth + 1));
    sum->components.push_back(std::move(component));
  }
  return Variant(std::move(sum));
}

StatusOr<Variant> SumOfRagged(Allocator* allocator, const RaggedVariant& a, const RaggedVariant& b,
                              int depth) {
  if (a.values.dtype() != b.values.dtype()) {
    return errors::InvalidArgument("Can't add RaggedTensorVariants of different dtypes. One is ",
                                   DataTypeName(a.values.dtype()), " and the other is ",
                                   DataTypeName(b.values.dtype()));
  }
  if (a.splits.size() != b.splits.size()) {
    return errors::InvalidArgument(
        "Can't add RaggedTensorVariants of different ragged rank. One is ", a.splits.size(),
        " and the other is ", b.splits.size());
  }
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.dtype() == y.dtype() && x.shape() == y.shape() &&
           std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()) == 0;
  };
  if (!std::equal(a.splits.begin(), a.splits.end(), b.splits.begin(), same)) {
    return errors::InvalidArgument("Can't add RaggedTensorVariants with different row_splits.");
  }
  auto sum = MakeRef<RaggedVariant>();
  sum->splits = a.splits;
  MR_ASSIGN_OR_RETURN(sum->values, Sum(allocator, a.values, b.values, depth + 1));
  return Variant(std::move(sum));
}

StatusOr<Variant> SumOfNumbers(Allocator* allocator, const PlainValue& a, const PlainValue& b) {
  Tensor sum;
  if (a.value.dtype() == kBool) {
    sum = Tensor::Scalar(a.value.scalar<bool>() || b.value.scalar<bool>());
  } else {
    MR_ASSIGN_OR_RETURN(sum, AddTensors(allocator, a.value, b.value));
  }
  return Variant(MakeRef<PlainValue>(a.type_name, std::move(sum)));
}

StatusOr<Tensor> Sum(Allocator* allocator, const Tensor& a, const Tensor& b, int depth) {
  if (a.dtype() != kVariant || b.dtype() != kVariant) return AddTensors(allocator, a, b);
  MR_RETURN_IF_ERROR(CheckDepth(depth));
  if (!(a.shape() == b.shape())) {
    return errors::InvalidArgument("cannot add ", a.shape().DebugString(), " and ",
                                   b.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(Tensor sum, Tensor::Allocate(allocator, kVariant, a.shape()));
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    Variant& to = sum.data<Variant>()[i];
    RefCounted* const x = a.data<Variant>()[i].get();
    RefCounted* const y = b.data<Variant>()[i].get();
    const auto *list = dynamic_cast<TensorList*>(x), *other_list = dynamic_cast<TensorList*>(y);
    const auto *optional = dynamic_cast<Optional*>(x), *other = dynamic_cast<Optional*>(y);
    const PlainValue *number = Number(a.data<Variant>()[i]),
                     *other_number = Number(b.data<Variant>()[i]);
    const auto *ragged = dynamic_cast<RaggedVariant*>(x),
               *other_ragged = dynamic_cast<RaggedVariant*>(y);
    if (ragged != nullptr && other_ragged != nullptr) {
      MR_ASSIGN_OR_RETURN(to, SumOfRagged(allocator, *ragged, *other_ragged, depth));
    } else if (list != nullptr && other_list != nullptr) {
      MR_ASSIGN_OR_RETURN(to, SumOfLists(allocator, *list, *other_list, depth));
    } else if (optional != nullptr && other != nullptr) {
      MR_ASSIGN_OR_RETURN(to, SumOfOptionals(allocator, *optional, *other, depth));
    } else if (number != nullptr && other_number != nullptr &&
               number->type_name == other_number->type_name) {
      MR_ASSIGN_OR_RETURN(to, SumOfNumbers(allocator, *number, *other_number));
    } else {
      return errors::InvalidArgument(
          "AddN of variants that are not all lists or all optionals, nor all ragged or all numbers "
          "of one type");
    }
  }
  return sum;
}

class ZerosLikeVariantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor zeros, ZerosOf(ctx.allocator(), ctx.input(0), 0));
    ctx.SetOutput(0, std::move(zeros));
    return OkStatus();
  }
};

class AddNVariantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    Tensor sum = ctx.locked_input(0);
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(sum, Sum(ctx.allocator(), sum, ctx.input(i), 0));
    }
    ctx.SetOutput(0, std::move(sum));
    return OkStatus();
  }
};

}  // namespace

void RegisterVariantMathKernels(KernelRegistry& r) {
  r.Register(KernelDef("ZerosLike").Type<Variant>("T").Priority(1),
             MakeKernel<ZerosLikeVariantKernel>);
  r.Register(KernelDef("AddN").Type<Variant>("T"), MakeKernel<AddNVariantKernel>);
}

}  // namespace millrace
