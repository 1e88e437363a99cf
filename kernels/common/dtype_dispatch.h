// SPDX-License-Identifier: Apache-2.0
// From a run-time element type to a template: one place that lists which C++ types a family
// of kernels takes. All calls are pure.
#ifndef KERNELS_COMMON_DTYPE_DISPATCH_H_
#define KERNELS_COMMON_DTYPE_DISPATCH_H_

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/tensor.h"

namespace millrace {

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

template <typename... Ts>
struct TypeList {};

template <typename A, typename B>
struct JoinTypesT;
template <typename... As, typename... Bs>
struct JoinTypesT<TypeList<As...>, TypeList<Bs...>> {
  using type = TypeList<As..., Bs...>;
};
template <typename A, typename B>
using JoinTypes = typename JoinTypesT<A, B>::type;

using FloatTypes = TypeList<float, double, Half, BFloat16>;
using IndexTypes = TypeList<int32_t, int64_t>;
using SmallIntTypes = TypeList<int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using IntTypes = JoinTypes<IndexTypes, SmallIntTypes>;
using RealTypes = JoinTypes<FloatTypes, IntTypes>;
using ComplexTypes = TypeList<Complex64, Complex128>;
using NumberTypes = JoinTypes<RealTypes, ComplexTypes>;

// The DataTypes of a list, for registrations.
template <typename... Ts>
std::vector<DataType> DataTypesOf(TypeList<Ts...>) {
  return {DataTypeOf<Ts>()...};
}

// Calls f.template operator()<T>() for the T of the list that `dtype` is; false if none is.
template <typename... Ts, typename F>
bool DispatchType(TypeList<Ts...>, DataType dtype, F&& f) {
  return ((dtype == DataTypeOf<Ts>() ? (f.template operator()<Ts>(), true) : false) || ...);
}

// What arithmetic on T computes in: 16-bit floats go through float.
template <typename T>
struct ComputeTypeT {
  using type = T;
};
template <>
struct ComputeTypeT<Half> {
  using type = float;
};
template <>
struct ComputeTypeT<BFloat16> {
  using type = float;
};
template <typename T>
using ComputeType = typename ComputeTypeT<T>::type;

template <typename T>
inline constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T> || kIsSmallFloat<T>;
template <typename T>
inline constexpr bool kIsComplex = std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>;

// 16 bytes that are only moved.
struct alignas(8) Bytes16 {
  uint64_t lo, hi;
};

// Calls f.template operator()<U>() with a type that moves as elements of `dtype` do: an
// unsigned integer or Bytes16 of its size, std::string, or ResourceHandle. False for types
// that have no elements here.
template <typename F>
bool DispatchMovable(DataType dtype, F&& f) {
  if (dtype == DataType::kString) return f.template operator()<std::string>(), true;
  if (dtype == DataType::kResource) return f.template operator()<ResourceHandle>(), true;
  if (!IsMemcpyable(dtype)) return false;
  switch (DataTypeSize(dtype)) {
    case 1:
      return f.template operator()<uint8_t>(), true;
    case 2:
      return f.template operator()<uint16_t>(), true;
    case 4:
      return f.template operator()<uint32_t>(), true;
    case 8:
      return f.template operator()<uint64_t>(), true;
    case 16:
      return f.template operator()<Bytes16>(), true;
    default:
      return false;
  }
}

}  // namespace millrace

#endif  // KERNELS_COMMON_DTYPE_DISPATCH_H_
