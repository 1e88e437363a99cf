// SPDX-License-Identifier: Apache-2.0
// Sums and zeros of lists and optionals: what gradients of loops and branches are made of.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
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
// As many as a list may have elements, and some.
constexpr int64_t kMostTensors = (int64_t{1} << 24) + (int64_t{1} << 20);

// What one kernel computes with.
class Work {
 public:
  explicit Work(KernelContext& ctx) : ctx_(ctx) {}
  Allocator* allocator() const { return ctx_.allocator(); }

  // What was made of an object, or of two, so far: lists that hold a list twice, which does so
  // itself, hold it more often than any memory has room for. The objects are those of the inputs,
  // or made here, which stay as long as this.
  Variant Known(const RefCounted* a, const RefCounted* b) const {
    const auto it = known_.find({a, b});
    return it == known_.end() ? nullptr : it->second;
  }
  void Keep(const RefCounted* a, const RefCounted* b, const Variant& made) {
    known_[{a, b}] = made;
  }

  // Before each tensor.
  Status Count(int depth) {
    if (depth > kMaxDepth) {
      return errors::ResourceExhausted("variants within variants, more than ", kMaxDepth, " deep");
    }
    if (++tensors_ > kMostTensors) {
      return errors::ResourceExhausted("variants within variants, which hold more than ",
                                       kMostTensors, " tensors");
    }
    if (tensors_ % 1024 == 0 && ctx_.cancellation() != nullptr &&
        ctx_.cancellation()->IsCancelled()) {
      return errors::Cancelled("the step is over");
    }
    return OkStatus();
  }

 private:
  KernelContext& ctx_;
  absl::flat_hash_map<std::pair<const RefCounted*, const RefCounted*>, Variant> known_;
  int64_t tensors_ = 0;
};

// Null if it is none.
const PlainValue* Number(const Variant& object) {
  const auto* const plain = dynamic_cast<PlainValue*>(object.get());
  // Of the others none is called a C++ type, and none has bytes to add.
  return plain != nullptr && plain->value.rank() == 0 &&
                 plain->type_name.find(':') == std::string::npos
             ? plain
             : nullptr;
}

StatusOr<Tensor> ZerosOf(Work& work, const Tensor& of, int depth);

StatusOr<Variant> ZerosOfObject(Work& work, const Variant& object, int depth) {
  if (const auto* list = dynamic_cast<TensorList*>(object.get())) {
    RefPtr<TensorList> zeros = list->Copy();
    MR_RETURN_IF_ERROR(list->elements.ForEachSet([&](int64_t i, const Tensor& t) -> Status {
      MR_ASSIGN_OR_RETURN(Tensor zero, ZerosOf(work, t, depth + 1));
      zeros->elements.Set(i, std::move(zero));
      return OkStatus();
    }));
    return Variant(std::move(zeros));
  }
  if (const auto* optional = dynamic_cast<Optional*>(object.get())) {
    auto zeros = MakeRef<Optional>();
    zeros->has_value = optional->has_value;
    zeros->within = optional->within;
    for (const Tensor& t : optional->components) {
      MR_ASSIGN_OR_RETURN(Tensor zero, ZerosOf(work, t, depth + 1));
      zeros->components.push_back(std::move(zero));
    }
    return Variant(std::move(zeros));
  }
  if (const auto* ragged = dynamic_cast<RaggedVariant*>(object.get())) {
    auto zeros = MakeRef<RaggedVariant>();
    zeros->splits = ragged->splits;
    MR_ASSIGN_OR_RETURN(zeros->values, ZerosOf(work, ragged->values, depth + 1));
    return Variant(std::move(zeros));
  }
  if (const PlainValue* plain = Number(object)) {
    MR_ASSIGN_OR_RETURN(Tensor zero, ZerosOf(work, plain->value, depth + 1));
    return Variant(MakeRef<PlainValue>(plain->type_name, std::move(zero)));
  }
  return errors::InvalidArgument(
      "ZerosLike of a variant that is neither a list, nor an optional, nor ragged, nor a number");
}

StatusOr<Tensor> ZerosOf(Work& work, const Tensor& of, int depth) {
  MR_RETURN_IF_ERROR(work.Count(depth));
  if (of.dtype() != kVariant) return ZeroTensor(work.allocator(), of.dtype(), of.shape());
  MR_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Allocate(work.allocator(), kVariant, of.shape()));
  for (int64_t i = 0; i < of.num_elements(); ++i) {
    const Variant& object = of.data<Variant>()[i];
    Variant& to = zeros.data<Variant>()[i];
    if (to = work.Known(object.get(), nullptr); to) continue;
    MR_ASSIGN_OR_RETURN(to, ZerosOfObject(work, object, depth));
    work.Keep(object.get(), nullptr, to);
  }
  return zeros;
}

StatusOr<Tensor> Sum(Work& work, const Tensor& a, const Tensor& b, int depth);

StatusOr<Variant> SumOfLists(Work& work, const TensorList& a, const TensorList& b, int depth) {
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
  if (!a.element_shape.IsCompatibleWith(b.element_shape)) {
    return errors::InvalidArgument(
        "Trying to add two lists of tensors with incompatible element shapes. One is ",
        a.element_shape.DebugString(), " and the other is ", b.element_shape.DebugString());
  }
  MR_ASSIGN_OR_RETURN(sum->element_shape, a.element_shape.MergeWith(b.element_shape));
  MR_RETURN_IF_ERROR(b.elements.ForEachSet([&](int64_t k, const Tensor& t) -> Status {
    Tensor to = t;
    if (a.elements[k].IsInitialized()) {
      MR_ASSIGN_OR_RETURN(to, Sum(work, a.elements[k], t, depth + 1));
    }
    sum->elements.Set(k, std::move(to));
    return OkStatus();
  }));
  return Variant(std::move(sum));
}

StatusOr<Variant> SumOfOptionals(Work& work, const Optional& a, const Optional& b, int depth) {
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
  sum->within = std::max(a.within, b.within);
  for (std::size_t i = 0; i < a.components.size(); ++i) {
    MR_ASSIGN_OR_RETURN(Tensor component, Sum(work, a.components[i], b.components[i], depth + 1));
    sum->components.push_back(std::move(component));
  }
  return Variant(std::move(sum));
}

StatusOr<Variant> SumOfRagged(Work& work, const RaggedVariant& a, const RaggedVariant& b,
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
  MR_ASSIGN_OR_RETURN(sum->values, Sum(work, a.values, b.values, depth + 1));
  return Variant(std::move(sum));
}

StatusOr<Variant> SumOfNumbers(Work& work, const PlainValue& a, const PlainValue& b) {
  Tensor sum;
  if (a.value.dtype() == kBool) {
    sum = Tensor::Scalar(a.value.scalar<bool>() || b.value.scalar<bool>());
  } else {
    MR_ASSIGN_OR_RETURN(sum, AddTensors(work.allocator(), a.value, b.value));
  }
  return Variant(MakeRef<PlainValue>(a.type_name, std::move(sum)));
}

StatusOr<Tensor> Sum(Work& work, const Tensor& a, const Tensor& b, int depth) {
  MR_RETURN_IF_ERROR(work.Count(depth));
  if (a.dtype() != kVariant || b.dtype() != kVariant) return AddTensors(work.allocator(), a, b);
  if (!(a.shape() == b.shape())) {
    return errors::InvalidArgument("cannot add ", a.shape().DebugString(), " and ",
                                   b.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(Tensor sum, Tensor::Allocate(work.allocator(), kVariant, a.shape()));
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    Variant& to = sum.data<Variant>()[i];
    RefCounted* const x = a.data<Variant>()[i].get();
    RefCounted* const y = b.data<Variant>()[i].get();
    if (to = work.Known(x, y); to) continue;
    const auto *list = dynamic_cast<TensorList*>(x), *other_list = dynamic_cast<TensorList*>(y);
    const auto *optional = dynamic_cast<Optional*>(x), *other = dynamic_cast<Optional*>(y);
    const PlainValue *number = Number(a.data<Variant>()[i]),
                     *other_number = Number(b.data<Variant>()[i]);
    const auto *ragged = dynamic_cast<RaggedVariant*>(x),
               *other_ragged = dynamic_cast<RaggedVariant*>(y);
    if (ragged != nullptr && other_ragged != nullptr) {
      MR_ASSIGN_OR_RETURN(to, SumOfRagged(work, *ragged, *other_ragged, depth));
    } else if (list != nullptr && other_list != nullptr) {
      MR_ASSIGN_OR_RETURN(to, SumOfLists(work, *list, *other_list, depth));
    } else if (optional != nullptr && other != nullptr) {
      MR_ASSIGN_OR_RETURN(to, SumOfOptionals(work, *optional, *other, depth));
    } else if (number != nullptr && other_number != nullptr &&
               number->type_name == other_number->type_name) {
      MR_ASSIGN_OR_RETURN(to, SumOfNumbers(work, *number, *other_number));
    } else {
      return errors::InvalidArgument(
          "AddN of variants that are not all lists or all optionals, nor all ragged or all numbers "
          "of one type");
    }
    work.Keep(x, y, to);
  }
  return sum;
}

class ZerosLikeVariantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    Work work(ctx);
    MR_ASSIGN_OR_RETURN(Tensor zeros, ZerosOf(work, ctx.input(0), 0));
    ctx.SetOutput(0, std::move(zeros));
    return OkStatus();
  }
};

class AddNVariantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    Work work(ctx);
    Tensor sum = ctx.locked_input(0);
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(sum, Sum(work, sum, ctx.input(i), 0));
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
