// SPDX-License-Identifier: Apache-2.0
#include "tensor/cast.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "base/errors.h"

namespace millrace {
namespace {

template <typename T>
double ToDouble(T value) {
  if constexpr (std::is_class_v<T>) {  // a small float
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

// False if an integer cannot hold the value.
template <typename T>
bool FromDouble(double value, T* out) {
  if constexpr (std::is_same_v<T, bool>) {
    *out = value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    // The limits of 64-bit types round up as doubles, hence the strict upper bound.
    constexpr double kUpper =
        2.0 * static_cast<double>(T(1) << (std::numeric_limits<T>::digits - 1));
    if (!(value >= static_cast<double>(std::numeric_limits<T>::min()) && value < kUpper)) {
      return false;
    }
    if (value != std::trunc(value)) return false;
    *out = static_cast<T>(value);
  } else if constexpr (std::is_class_v<T> && sizeof(T) == 1) {
    *out = T(value);  // a float8: rounded once
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    *out = static_cast<float>(value);
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    *out = value;
  } else if constexpr (std::is_same_v<T, double>) {
    *out = value;
  } else {
    *out = T(static_cast<float>(value));
  }
  return true;
}

template <typename Fn>
bool ForReal(DataType dtype, Fn fn) {
  switch (dtype) {
    case DataType::kFloat:
      fn(float());
      return true;
    case DataType::kDouble:
      fn(double());
      return true;
    case DataType::kHalf:
      fn(Half());
      return true;
    case DataType::kBfloat16:
      fn(BFloat16());
      return true;
    case DataType::kInt8:
      fn(int8_t());
      return true;
    case DataType::kInt16:
      fn(int16_t());
      return true;
    case DataType::kInt32:
      fn(int32_t());
      return true;
    case DataType::kInt64:
      fn(int64_t());
      return true;
    case DataType::kUint8:
      fn(uint8_t());
      return true;
    case DataType::kUint16:
      fn(uint16_t());
      return true;
    case DataType::kUint32:
      fn(uint32_t());
      return true;
    case DataType::kUint64:
      fn(uint64_t());
      return true;
    case DataType::kBool:
      fn(bool());
      return true;
    case DataType::kFloat8E5m2:
      fn(Float8E5m2());
      return true;
    case DataType::kFloat8E4m3fn:
      fn(Float8E4m3fn());
      return true;
    case DataType::kFloat8E4m3fnuz:
      fn(Float8E4m3fnuz());
      return true;
    case DataType::kFloat8E4m3b11fnuz:
      fn(Float8E4m3b11fnuz());
      return true;
    case DataType::kFloat8E5m2fnuz:
      fn(Float8E5m2fnuz());
      return true;
    default:
      return false;
  }
}

template <typename Fn>
bool ForNumber(DataType dtype, Fn fn) {
  if (dtype == kComplex64) return fn(std::complex<float>()), true;
  if (dtype == kComplex128) return fn(std::complex<double>()), true;
  return ForReal(dtype, fn);
}

}  // namespace

StatusOr<Tensor> CastTensor(const Tensor& tensor, DataType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Status status;
  Tensor result;
  const bool known = ForReal(tensor.dtype(), [&](auto from) {
    using From = decltype(from);
    const bool target_known = ForNumber(dtype, [&](auto to) {
      using To = decltype(to);
      result = Tensor(dtype, tensor.shape());
      for (int64_t i = 0; i < tensor.num_elements(); ++i) {
        const double value = ToDouble(tensor.data<From>()[i]);
        if (!FromDouble(value, &result.data<To>()[i]) && status.ok()) {
          status = errors::InvalidArgument("the value ", value, " is not representable as ",
                                           DataTypeName(dtype));
        }
      }
    });
    if (!target_known) result = Tensor();
  });
  if (!known || result.dtype() != dtype) {
    return errors::InvalidArgument("a constant of type ", DataTypeName(tensor.dtype()),
                                   " cannot stand where ", DataTypeName(dtype), " is expected");
  }
  if (!status.ok()) return status;
  return result;
}

}  // namespace millrace
