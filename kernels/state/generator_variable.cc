// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/generator_variable.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/random/random_plan.h"

namespace millrace {

Status CheckGeneratorAlgorithm(int64_t algorithm) {
  constexpr int64_t kThreeFry = 2;
  if (algorithm == kThreeFry) {
    return errors::Unimplemented("Non-XLA devices don't support the ThreeFry algorithm.");
  }
  if (algorithm == kPhiloxAlgorithm || algorithm == kAutoAlgorithm) return OkStatus();
  return errors::InvalidArgument("Unsupported algorithm id: ", algorithm, "; 1 (Philox) is one");
}

Status LockGeneratorState(KernelContext& ctx, int64_t tags, LockedVariables* variables) {
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
  if (shape.dim(0) >= tags + kGeneratorStateSize) return OkStatus();
  return errors::InvalidArgument("For the Philox algorithm, the size of state must be at least ",
                                 tags + kGeneratorStateSize, "; got ", shape.dim(0));
}

void AdvanceGenerator(uint64_t by, int64_t* state) {
  const auto low = static_cast<uint64_t>(state[0]);
  state[0] = static_cast<int64_t>(low + by);
  if (low + by < low) state[1] = static_cast<int64_t>(static_cast<uint64_t>(state[1]) + 1);
}

StatusOr<Philox> TakeFromGenerator(KernelContext& ctx, const int64_t* algorithm, uint64_t samples) {
  const int tags = algorithm == nullptr ? 1 : 0;
  if (algorithm != nullptr) MR_RETURN_IF_ERROR(CheckGeneratorAlgorithm(*algorithm));
  LockedVariables variables;
  MR_RETURN_IF_ERROR(LockGeneratorState(ctx, tags, &variables));
  if (algorithm == nullptr) {
    MR_RETURN_IF_ERROR(CheckGeneratorAlgorithm(variables.value(0)->data<int64_t>()[0]));
  }
  MR_RETURN_IF_ERROR(variables.MakeExclusive(ctx));
  int64_t* const state = variables.value(0)->data<int64_t>() + tags;
  const Philox philox = PhiloxAt(static_cast<uint64_t>(state[2]), static_cast<uint64_t>(state[0]),
                                 static_cast<uint64_t>(state[1]));
  AdvanceGenerator(samples * kCountsPerSample, state);
  return philox;
}

}  // namespace millrace
