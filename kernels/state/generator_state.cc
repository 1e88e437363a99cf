// SPDX-License-Identifier: Apache-2.0
// Generators of random numbers that are moved on without drawing from them.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/state/generator_variable.h"

namespace millrace {
namespace {

// RngReadAndSkip, which gives the state as it was, and RngSkip.
class SkipKernel : public Kernel {
 public:
  explicit SkipKernel(KernelConstruction& c) : Kernel(c), reads_(c.output_types().size() == 1) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t algorithm, ScalarInput(ctx, 1));
    MR_ASSIGN_OR_RETURN(const int64_t delta, ScalarInput(ctx, 2));
    MR_RETURN_IF_ERROR(CheckGeneratorAlgorithm(algorithm));
    LockedVariables variables;
    MR_RETURN_IF_ERROR(LockGeneratorState(ctx, /*tags=*/0, &variables));
    MR_ASSIGN_OR_RETURN(Tensor before, ctx.AllocateTemp(kInt64, Shape({kGeneratorStateSize})));
    auto* const was = before.data<int64_t>();
    const auto* const now = variables.value(0)->data<int64_t>();
    std::copy_n(now, kGeneratorStateSize, was);
    MR_RETURN_IF_ERROR(variables.MakeExclusive(ctx));
    AdvanceGenerator(static_cast<uint64_t>(delta) * kCountsPerSample,
                     variables.value(0)->data<int64_t>());
    if (reads_) ctx.SetOutput(0, std::move(before));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }

 private:
  static StatusOr<int64_t> ScalarInput(const KernelContext& ctx, int i) {
    const Tensor& input = ctx.input(i);
    if (input.rank() != 0) {
      return errors::InvalidArgument("input ", i, " (0-based) must have shape [], not ",
                                     input.shape().DebugString());
    }
    if (input.dtype() == kUint64) return static_cast<int64_t>(input.scalar<uint64_t>());
    return IntScalar(input, "algorithm or delta");
  }

  const bool reads_;
};

}  // namespace

void RegisterGeneratorStateKernels(KernelRegistry& r) {
  RegisterCpu<SkipKernel>(r, "RngReadAndSkip");
  RegisterCpu<SkipKernel>(r, "RngSkip");
}

}  // namespace millrace
