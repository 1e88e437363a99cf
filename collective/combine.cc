// SPDX-License-Identifier: Apache-2.0
#include "collective/combine.h"

#include <algorithm>
#include <type_traits>

#include "millrace/float16.h"

namespace millrace {
namespace {

// What arithmetic on T computes in: 16-bit floats go through float, integers wrap.
template <typename T>
auto Wide(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(v);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(v);
  } else {
    return v;
  }
}

template <typename T>
bool Less(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a < b;
  } else {
    return Wide(a) < Wide(b);
  }
}

template <typename T>
void Merge(MergeOp op, T* into, const T* from, int64_t count) {
  switch (op) {
    case MergeOp::kAdd:
      for (int64_t i = 0; i < count; ++i) into[i] = static_cast<T>(Wide(into[i]) + Wide(from[i]));
      return;
    case MergeOp::kMul:
      for (int64_t i = 0; i < count; ++i) into[i] = static_cast<T>(Wide(into[i]) * Wide(from[i]));
      return;
    case MergeOp::kMin:
      for (int64_t i = 0; i < count; ++i) into[i] = Less(from[i], into[i]) ? from[i] : into[i];
      return;
    case MergeOp::kMax:
      for (int64_t i = 0; i < count; ++i) into[i] = Less(into[i], from[i]) ? from[i] : into[i];
      return;
  }
}

template <typename T>
void Divide(T* data, int64_t count, int64_t divisor) {
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(data[i] / divisor);
  } else {
    const auto by = Wide(static_cast<T>(static_cast<float>(divisor)));
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(Wide(data[i]) / by);
  }
}

// Elements of a block, which stay in the nearest cache while all parts are added to them.
constexpr int64_t kBlock = 1024;

// What several parts are added up in.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
void MergeBlock(MergeOp op, std::span<const void* const> parts, int64_t divisor, T* out,
                int64_t begin, int64_t count) {
  using Sum = SumOf<T>;
  Sum sum[kBlock], wide[kBlock];
  const auto part = [&](std::size_t k) { return static_cast<const T*>(parts[k]) + begin; };
  const auto widen = [](T v) { return static_cast<Sum>(v); };
  std::transform(part(0), part(0) + count, sum, widen);
  for (std::size_t k = 1; k < parts.size(); ++k) {
    if constexpr (std::is_same_v<T, Sum>) {
      Merge(op, sum, part(k), count);
    } else {
      std::transform(part(k), part(k) + count, wide, widen);
      Merge(op, sum, wide, count);
    }
  }
  if (divisor != 1) Divide(sum, count, divisor);
  std::transform(sum, sum + count, out + begin, [](Sum v) { return static_cast<T>(v); });
}

// Calls f with a null pointer to the C++ type; false for types that are not reduced.
template <typename F>
bool Dispatch(DataType dtype, F&& f) {
  switch (dtype) {
    case kFloat:
      return f(static_cast<float*>(nullptr)), true;
    case kDouble:
      return f(static_cast<double*>(nullptr)), true;
    case kHalf:
      return f(static_cast<Half*>(nullptr)), true;
    case kBfloat16:
      return f(static_cast<BFloat16*>(nullptr)), true;
    case kInt32:
      return f(static_cast<int32_t*>(nullptr)), true;
    case kInt64:
      return f(static_cast<int64_t*>(nullptr)), true;
    default:
      return false;
  }
}

}  // namespace

bool CanReduce(DataType dtype) {
  return Dispatch(dtype, [](auto*) {});
}

void MergeInto(DataType dtype, MergeOp op, void* into, const void* from, int64_t count) {
  Dispatch(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Merge(op, static_cast<T*>(into), static_cast<const T*>(from), count);
  });
}

void DivideBy(DataType dtype, void* data, int64_t count, int64_t divisor) {
  Dispatch(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Divide(static_cast<T*>(data), count, divisor);
  });
}

void MergeAll(DataType dtype, MergeOp op, std::span<const void* const> parts, int64_t divisor,
              void* out, int64_t count) {
  Dispatch(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      MergeBlock(op, parts, divisor, static_cast<T*>(out), begin, std::min(kBlock, count - begin));
    }
  });
}

}  // namespace millrace
