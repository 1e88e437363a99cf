// SPDX-License-Identifier: Apache-2.0
// Elements of variant tensors: values that only their own kernels understand (lists, data
// sets). A tensor of them is shared and copied like any other.
#ifndef KERNELS_COMMON_VARIANT_H_
#define KERNELS_COMMON_VARIANT_H_

#include "millrace/dtype.h"
#include "millrace/ref_ptr.h"
#include "millrace/tensor.h"

namespace millrace {

// One element: a shared object, or null until something is put in. Objects are shared between
// tensors and steps: whoever changes one must know that it is the only owner.
using Variant = RefPtr<RefCounted>;

template <>
struct DataTypeTraits<Variant> {
  static constexpr DataType kValue = DataType::kVariant;
};

// The scalar's object as a V; null if it is empty, of another class, or not a scalar variant.
template <typename V>
V* VariantCast(const Tensor& tensor) {
  if (tensor.dtype() != kVariant || tensor.num_elements() != 1) return nullptr;
  return dynamic_cast<V*>(tensor.data<Variant>()[0].get());
}

// A scalar variant tensor that holds `object`.
inline Tensor VariantTensor(Variant object) { return Tensor::Scalar<Variant>(std::move(object)); }

}  // namespace millrace

#endif  // KERNELS_COMMON_VARIANT_H_
