// SPDX-License-Identifier: Apache-2.0
// Generators of random numbers whose place in the sequence is a variable: three int64, the counter
// in two halves and the key.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/state/variable.h"

namespace millrace {
namespace {

constexpr int64_t kPhilox = 1, kThreeFry = 2, kAuto = 3;
constexpr int64_t kStateSize = 3;
// What a number of samples moves the counter by: as much as any distribution may take for each.
constexpr uint64_t kCountsPerSample = 256;

// RngReadAndSkip, which gives the state as it was, and RngSkip.
class SkipKernel : public Kernel {
 public:
  explicit SkipKernel(KernelConstruction& c) : Kernel(c), reads_(c.output_types().size() == 1) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t algorithm, ScalarInput(ctx, 1));
    MR_ASSIGN_OR_RETURN(const int64_t delta, ScalarInput(ctx, 2));
    if (algorithm == kThreeFry) {
      return errors::Unimplemented("Non-XLA devices don't support the ThreeFry algorithm.");
    }
    if (algorithm != kPhilox && algorithm != kAuto) {
      return errors::InvalidArgument("Unsupported algorithm id: ", algorithm,
                                     "; 1 (Philox) is one");
    }
    LockedVariables variables;
    MR_RETURN_IF_ERROR(LockState(ctx, &variables));
    MR_ASSIGN_OR_RETURN(Tensor before, ctx.AllocateTemp(kInt64, Shape({kStateSize})));
    auto* const was = before.data<int64_t>();
    const auto* const now = variables.value(0)->data<int64_t>();
    std::copy_n(now, kStateSize, was);
    MR_RETURN_IF_ERROR(variables.MakeExclusive(ctx));
    Advance(static_cast<uint64_t>(delta) * kCountsPerSample, variables.value(0)->data<int64_t>());
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

  static Status LockState(KernelContext& ctx, LockedVariables* variables) {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* const handle, InputHandle(ctx, 0));
    {
      MR_ASSIGN_OR_RETURN(const RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
      MutexLock lock(&variable->mu);
      if (variable->value.IsInitialized() && variable->value.dtype() != kInt64) {
        return errors::InvalidArgument("dtype of RNG state variable must be int64, not ",
                                       DataTypeName(variable->value.dtype()));
      }
    }
    MR_RETURN_IF_ERROR(variables->Lock(ctx, 1, kInt64));
    const Shape& shape = variables->value(0)->shape();
    if (shape.rank() != 1) {
      return errors::InvalidArgument("RNG state must have one and only one dimension, not ",
                                     shape.rank());
    }
    if (shape.dim(0) >= kStateSize) return OkStatus();
    return errors::InvalidArgument("For the Philox algorithm, the size of state must be at least ",
                                   kStateSize, "; got ", shape.dim(0));
  }

  // The two halves are one number of 128 bits.
  static void Advance(uint64_t by, int64_t* state) {
    const auto low = static_cast<uint64_t>(state[0]);
    state[0] = static_cast<int64_t>(low + by);
    if (low + by < low) state[1] = static_cast<int64_t>(static_cast<uint64_t>(state[1]) + 1);
  }

  const bool reads_;
};

}  // namespace

void RegisterGeneratorStateKernels(KernelRegistry& r) {
  RegisterCpu<SkipKernel>(r, "RngReadAndSkip");
  RegisterCpu<SkipKernel>(r, "RngSkip");
}

}  // namespace millrace
