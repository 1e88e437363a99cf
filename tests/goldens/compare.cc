// SPDX-License-Identifier: Apache-2.0
#include "tests/goldens/compare.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <string>

#include "kernels/common/dtype_dispatch.h"

namespace millrace::testing {
namespace {

bool CloseReal(double got, double want, const Tolerance& t) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return want == got;
  return std::abs(got - want) <= t.atol + t.rtol * std::abs(want);
}

template <typename T>
bool SameElement(const T& got, const T& want, const Tolerance& t) {
  if constexpr (kIsComplex<T>) {
    return SameElement(got.real(), want.real(), t) && SameElement(got.imag(), want.imag(), t);
  } else if constexpr (kIsFloating<T>) {
    const auto g = static_cast<double>(static_cast<ComputeType<T>>(got));
    const auto w = static_cast<double>(static_cast<ComputeType<T>>(want));
    if (!t.bits) return CloseReal(g, w, t);
    return (std::isnan(g) && std::isnan(w)) || std::memcmp(&got, &want, sizeof(T)) == 0;
  } else {
    return got == want;
  }
}

}  // namespace

::testing::AssertionResult Matches(const Tensor& got, const Tensor& want, const Tolerance& t) {
  if (got.dtype() != want.dtype() || !(got.shape() == want.shape())) {
    return ::testing::AssertionFailure()
           << "got " << got.DebugString() << ", want " << want.DebugString();
  }
  int64_t differs = -1;
  const bool known = DispatchType(JoinTypes<NumberTypes, TypeList<bool, std::string>>(),
                                  want.dtype(), [&]<typename T>() {
                                    for (int64_t i = 0; i < want.num_elements(); ++i) {
                                      if (SameElement(got.data<T>()[i], want.data<T>()[i], t)) {
                                        continue;
                                      }
                                      differs = i;
                                      return;
                                    }
                                  });
  if (!known && IsMemcpyable(want.dtype())) {  // quantized numbers
    if (std::memcmp(got.raw_data(), want.raw_data(), want.num_bytes()) == 0) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << "got " << got.DebugString(40) << ", want " << want.DebugString(40);
  }
  if (!known) {
    return ::testing::AssertionFailure() << "cannot compare " << DataTypeName(want.dtype());
  }
  if (differs >= 0) {
    return ::testing::AssertionFailure()
           << "element " << differs << " differs: got " << got.DebugString(40) << ", want "
           << want.DebugString(40);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace millrace::testing
