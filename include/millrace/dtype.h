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
  kInvalid = 0,      // of a tensor that has none yet
  kFloat = 1,        // 32 bits
  kDouble = 2,       // 64 bits
  kInt32 = 3,        // signed
  kUint8 = 4,        // a byte
  kInt16 = 5,        // signed
  kInt8 = 6,         // signed
  kString = 7,       // bytes of any length
  kComplex64 = 8,    // two floats
  kInt64 = 9,        // signed
  kBool = 10,        // one byte, 0 or 1
  kQint8 = 11,       // quantized: a kernel gives the range with it
  kQuint8 = 12,      // the same, unsigned
  kQint32 = 13,      // quantized, as sums are
  kBfloat16 = 14,    // the upper half of a float
  kQint16 = 15,      // quantized
  kQuint16 = 16,     // quantized, unsigned
  kUint16 = 17,      // unsigned
  kComplex128 = 18,  // two doubles
  kHalf = 19,        // IEEE 754 binary16
  kResource = 20,    // a handle: names what lives on a device between steps
  kVariant = 21,     // an object of a C++ type that kernels know
  kUint32 = 22,      // unsigned
  kUint64 = 23,      // unsigned
  // Eight bits (see Float8Format): stored, moved and cast, not calculated with.
  kFloat8E5m2 = 24,         // five exponent bits, with infinities
  kFloat8E4m3fn = 25,       // four, without infinities
  kFloat8E4m3fnuz = 26,     // four, one zero, one NaN
  kFloat8E4m3b11fnuz = 27,  // the same with bias 11
  kFloat8E5m2fnuz = 28,     // five, one zero, one NaN
};

// Those that programs use most, without the name of the enumeration.
using DataType::kBfloat16;
using DataType::kBool;
using DataType::kComplex128;
using DataType::kComplex64;
using DataType::kDouble;
using DataType::kFloat;
using DataType::kHalf;
using DataType::kInt16;
using DataType::kInt32;
using DataType::kInt64;
using DataType::kInt8;
using DataType::kResource;
using DataType::kString;
using DataType::kUint16;
using DataType::kUint32;
using DataType::kUint64;
using DataType::kUint8;
using DataType::kVariant;

// What a reference type's number has more than that of its base type.
inline constexpr int kRefOffset = 100;

// Whether it is the type of a reference to a variable, as TensorFlow 1's have.
constexpr bool IsRefType(DataType dtype) { return static_cast<int>(dtype) > kRefOffset; }
// The reference type of a type; a reference type as it is.
constexpr DataType MakeRefType(DataType dtype) {
  return IsRefType(dtype) ? dtype : static_cast<DataType>(static_cast<int>(dtype) + kRefOffset);
}
// The type that a reference refers to; any other type as it is.
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
bool IsComplex(DataType dtype);   // complex64, complex128
bool IsFloat8(DataType dtype);    // the five types of one byte

// What DataTypeOf asks: kValue, for the C++ types that elements have.
template <typename T>
struct DataTypeTraits;
#define MR_DTYPE_TRAITS_(cpp, dt)                    \
  template <>                                        \
  struct DataTypeTraits<cpp> {                       \
    static constexpr DataType kValue = DataType::dt; \
  }
MR_DTYPE_TRAITS_(float, kFloat);
MR_DTYPE_TRAITS_(double, kDouble);
MR_DTYPE_TRAITS_(int32_t, kInt32);
MR_DTYPE_TRAITS_(uint8_t, kUint8);
MR_DTYPE_TRAITS_(int16_t, kInt16);
MR_DTYPE_TRAITS_(int8_t, kInt8);
MR_DTYPE_TRAITS_(std::string, kString);
MR_DTYPE_TRAITS_(std::complex<float>, kComplex64);
MR_DTYPE_TRAITS_(int64_t, kInt64);
MR_DTYPE_TRAITS_(bool, kBool);
MR_DTYPE_TRAITS_(BFloat16, kBfloat16);
MR_DTYPE_TRAITS_(uint16_t, kUint16);
MR_DTYPE_TRAITS_(std::complex<double>, kComplex128);
MR_DTYPE_TRAITS_(Half, kHalf);
MR_DTYPE_TRAITS_(ResourceHandle, kResource);
MR_DTYPE_TRAITS_(uint32_t, kUint32);
MR_DTYPE_TRAITS_(uint64_t, kUint64);
MR_DTYPE_TRAITS_(Float8E5m2, kFloat8E5m2);
MR_DTYPE_TRAITS_(Float8E4m3fn, kFloat8E4m3fn);
MR_DTYPE_TRAITS_(Float8E4m3fnuz, kFloat8E4m3fnuz);
MR_DTYPE_TRAITS_(Float8E4m3b11fnuz, kFloat8E4m3b11fnuz);
MR_DTYPE_TRAITS_(Float8E5m2fnuz, kFloat8E5m2fnuz);
#undef MR_DTYPE_TRAITS_

// The type whose elements are T: DataTypeOf<float>() is kFloat.
template <typename T>
constexpr DataType DataTypeOf() {
  return DataTypeTraits<T>::kValue;
}

}  // namespace millrace

#endif  // MILLRACE_DTYPE_H_
