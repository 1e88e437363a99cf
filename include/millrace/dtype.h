// SPDX-License-Identifier: Apache-2.0
// Element types, numbered as TensorFlow's DataType on the wire and in files.
#ifndef MILLRACE_DTYPE_H_
#define MILLRACE_DTYPE_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/float16.h"

namespace millrace {

struct ResourceHandle;

// These numbers live on the wire and on disk: never renumber. A reference type is its
// base type plus 100 (see MakeRefType).
enum class DataType : int32_t {
  kInvalid = 0,
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kQint8 = 11,
  kQuint8 = 12,
  kQint32 = 13,
  kBfloat16 = 14,
  kQint16 = 15,
  kQuint16 = 16,
  kUint16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kResource = 20,
  kVariant = 21,
  kUint32 = 22,
  kUint64 = 23,
};

inline constexpr DataType kFloat = DataType::kFloat;
inline constexpr DataType kDouble = DataType::kDouble;
inline constexpr DataType kInt32 = DataType::kInt32;
inline constexpr DataType kUint8 = DataType::kUint8;
inline constexpr DataType kInt16 = DataType::kInt16;
inline constexpr DataType kInt8 = DataType::kInt8;
inline constexpr DataType kString = DataType::kString;
inline constexpr DataType kComplex64 = DataType::kComplex64;
inline constexpr DataType kInt64 = DataType::kInt64;
inline constexpr DataType kBool = DataType::kBool;
inline constexpr DataType kBfloat16 = DataType::kBfloat16;
inline constexpr DataType kUint16 = DataType::kUint16;
inline constexpr DataType kComplex128 = DataType::kComplex128;
inline constexpr DataType kHalf = DataType::kHalf;
inline constexpr DataType kResource = DataType::kResource;
inline constexpr DataType kVariant = DataType::kVariant;
inline constexpr DataType kUint32 = DataType::kUint32;
inline constexpr DataType kUint64 = DataType::kUint64;

inline constexpr int kRefOffset = 100;

constexpr bool IsRefType(DataType dtype) { return static_cast<int>(dtype) > kRefOffset; }
constexpr DataType MakeRefType(DataType dtype) {
  return IsRefType(dtype) ? dtype : static_cast<DataType>(static_cast<int>(dtype) + kRefOffset);
}
constexpr DataType BaseType(DataType dtype) {
  return IsRefType(dtype) ? static_cast<DataType>(static_cast<int>(dtype) - kRefOffset) : dtype;
}

// TensorFlow's lower-case name ("float", "int32", "float_ref"); "INVALID" for unknown ones.
std::string DataTypeName(DataType dtype);
// The inverse of DataTypeName; also takes "DT_FLOAT" and "DT_FLOAT_REF". False if unknown.
bool DataTypeFromName(std::string_view name, DataType* dtype);
// Bytes of one element of the base type; for string, resource and variant the size of the
// object that holds one element; 0 for kInvalid and for types that have no kernels here.
std::size_t DataTypeSize(DataType dtype);
// True if elements are plain bytes that may be copied with memcpy and sent as they lie.
bool IsMemcpyable(DataType dtype);
bool IsFloating(DataType dtype);  // half, bfloat16, float, double
bool IsInteger(DataType dtype);   // int8..int64, uint8..uint64
bool IsComplex(DataType dtype);

// C++ type -> DataType: DataTypeOf<float>() == kFloat.
template <typename T>
struct DataTypeTraits;
#define MR_DTYPE_TRAITS(cpp, dt)                     \
  template <>                                        \
  struct DataTypeTraits<cpp> {                       \
    static constexpr DataType kValue = DataType::dt; \
  }
MR_DTYPE_TRAITS(float, kFloat);
MR_DTYPE_TRAITS(double, kDouble);
MR_DTYPE_TRAITS(int32_t, kInt32);
MR_DTYPE_TRAITS(uint8_t, kUint8);
MR_DTYPE_TRAITS(int16_t, kInt16);
MR_DTYPE_TRAITS(int8_t, kInt8);
MR_DTYPE_TRAITS(std::string, kString);
MR_DTYPE_TRAITS(std::complex<float>, kComplex64);
MR_DTYPE_TRAITS(int64_t, kInt64);
MR_DTYPE_TRAITS(bool, kBool);
MR_DTYPE_TRAITS(BFloat16, kBfloat16);
MR_DTYPE_TRAITS(uint16_t, kUint16);
MR_DTYPE_TRAITS(std::complex<double>, kComplex128);
MR_DTYPE_TRAITS(Half, kHalf);
MR_DTYPE_TRAITS(ResourceHandle, kResource);
MR_DTYPE_TRAITS(uint32_t, kUint32);
MR_DTYPE_TRAITS(uint64_t, kUint64);
#undef MR_DTYPE_TRAITS

template <typename T>
constexpr DataType DataTypeOf() {
  return DataTypeTraits<T>::kValue;
}

}  // namespace millrace

#endif  // MILLRACE_DTYPE_H_
