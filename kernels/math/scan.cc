// SPDX-License-Identifier: Apache-2.0
// Running sums and products along an axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "kernels/math/reduction_plan.h"

namespace millrace {
namespace {

enum class Scan { kSum, kProduct, kLogSumExp };

// log(exp(a) + exp(b)), which does not overflow where a and b do not.
template <typename C>
C LogAddExp(C a, C b) {
  const C larger = std::max(a, b);
  if (std::isinf(larger)) return larger;
  return larger + std::log(std::exp(a - larger) + std::exp(b - larger));
}

template <Scan kScan, typename T>
class ScanKernel : public Kernel {
 public:
  explicit ScanKernel(KernelConstruction& c)
      : Kernel(c),
        exclusive_(c.attrs().GetOr<bool>("exclusive", false)),
        reverse_(c.attrs().GetOr<bool>("reverse", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const AxisLines lines, PlanScan(in.shape(), ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    // Lines without elements may be more than can ever be walked through.
    if (in.num_elements() == 0) return OkStatus();
    const int64_t outer = lines.outer, size = lines.size, inner = lines.inner;
    const T* src = in.data<T>();
    T* dst = out->data<T>();
    ctx.ParallelFor(outer * inner, static_cast<double>(size), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ScanLine(src, dst, i / inner * size * inner + i % inner, size, inner);
      }
    });
    return OkStatus();
  }

 private:
  void ScanLine(const T* src, T* dst, int64_t at, int64_t size, int64_t step) const {
    using C = ComputeType<T>;
    C total = C(kScan == Scan::kProduct ? 1 : 0);
    if constexpr (kScan == Scan::kLogSumExp) total = -std::numeric_limits<C>::infinity();
    for (int64_t k = 0; k < size; ++k) {
      const int64_t i = at + (reverse_ ? size - 1 - k : k) * step;
      const C x = static_cast<C>(src[i]);
      if (exclusive_) dst[i] = static_cast<T>(total);
      if constexpr (std::is_integral_v<C>) {
        const auto a = static_cast<uint64_t>(total), b = static_cast<uint64_t>(x);
        total = static_cast<C>(kScan == Scan::kProduct ? a * b : a + b);  // wraps around
      } else if constexpr (kScan == Scan::kLogSumExp) {
        total = LogAddExp(total, x);
      } else {
        total = kScan == Scan::kProduct ? total * x : total + x;
      }
      if (!exclusive_) dst[i] = static_cast<T>(total);
    }
  }

  const bool exclusive_, reverse_;
};

template <Scan kScan, typename... Ts>
void RegisterScan(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("T"), &MakeKernel<ScanKernel<kScan, Ts>>), ...);
}

}  // namespace

void RegisterScanKernels(KernelRegistry& r) {
  RegisterScan<Scan::kSum>(r, "Cumsum", NumberTypes());
  RegisterScan<Scan::kProduct>(r, "Cumprod", NumberTypes());
  RegisterScan<Scan::kLogSumExp>(r, "CumulativeLogsumexp", FloatTypes());
}

}  // namespace millrace
