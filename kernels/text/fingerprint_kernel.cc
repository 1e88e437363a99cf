// SPDX-License-Identifier: Apache-2.0
// Fingerprints of the rows of a tensor, which are the same on every machine.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/text/fingerprint.h"

namespace millrace {
namespace {

constexpr int64_t kWidth = 8;  // bytes, the lowest one first

std::string_view BytesOf(const void* from, int64_t size) {
  return {static_cast<const char*>(from), static_cast<std::size_t>(size)};
}

class FingerprintKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& data = ctx.input(0);
    const Tensor& method = ctx.input(1);
    if (method.rank() != 0) {
      return errors::InvalidArgument("`method` should be a scalar string: ",
                                     method.shape().DebugString());
    }
    if (method.scalar<std::string>() != "farmhash64") {
      return errors::InvalidArgument("Unsupported fingerprint method: ",
                                     method.scalar<std::string>());
    }
    if (data.rank() < 1) {
      return errors::InvalidArgument("`data` should have at least one dimension: ",
                                     data.shape().DebugString());
    }
    if (data.dtype() != kString && !IsMemcpyable(data.dtype())) {
      return errors::InvalidArgument("Type not supported: ", DataTypeName(data.dtype()));
    }
    const int64_t rows = data.dim(0);
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape({rows, kWidth})));
    if (rows == 0) return OkStatus();
    const int64_t width = data.num_elements() / rows;
    for (int64_t i = 0; i < rows; ++i) {
      uint64_t value = data.dtype() == kString ? OfTexts(data, i * width, width)
                                               : OfBytes(data, i * width, width);
      for (int64_t b = 0; b < kWidth; ++b, value >>= 8) {
        out->data<uint8_t>()[i * kWidth + b] = static_cast<uint8_t>(value);
      }
    }
    return OkStatus();
  }

 private:
  static uint64_t OfBytes(const Tensor& data, int64_t begin, int64_t count) {
    if (count == 0) return Fingerprint64("");
    const auto size = static_cast<int64_t>(DataTypeSize(data.dtype()));
    return Fingerprint64(
        BytesOf(static_cast<const char*>(data.raw_data()) + begin * size, count * size));
  }
  // That of a vector's element itself; else of those of the row's elements.
  static uint64_t OfTexts(const Tensor& data, int64_t begin, int64_t count) {
    const std::string* const texts = data.num_elements() == 0 ? nullptr : data.data<std::string>();
    if (data.rank() == 1) return Fingerprint64(texts[begin]);
    std::vector<uint64_t> each;
    for (int64_t i = 0; i < count; ++i) each.push_back(Fingerprint64(texts[begin + i]));
    return Fingerprint64(BytesOf(each.data(), count * kWidth));
  }
};

}  // namespace

void RegisterFingerprintKernels(KernelRegistry& r) {
  RegisterCpu<FingerprintKernel>(r, "Fingerprint");
}

}  // namespace millrace
