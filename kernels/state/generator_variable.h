// SPDX-License-Identifier: Apache-2.0
// Generators of random numbers whose place in the sequence is a variable: a vector of int64 that
// begins with the counter in two halves and the key.
#ifndef KERNELS_STATE_GENERATOR_VARIABLE_H_
#define KERNELS_STATE_GENERATOR_VARIABLE_H_

#include <cstdint>

#include "base/random.h"
#include "kernels/kernel_context.h"
#include "kernels/state/variable.h"

namespace millrace {

// What a number of samples moves the counter by: as much as any distribution may take for each.
inline constexpr uint64_t kCountsPerSample = 256;

// Numbers of a generator's state.
inline constexpr int64_t kGeneratorStateSize = 3;

// Philox is the only one. Unimplemented for ThreeFry, InvalidArgument for what there is not.
Status CheckGeneratorAlgorithm(int64_t algorithm);

// Locks the state that input 0 is a handle of. InvalidArgument if it is none: after the first
// `tags` numbers there must be room for counter and key.
Status LockGeneratorState(KernelContext& ctx, int64_t tags, LockedVariables* variables);

// Moves the counter in state[0] and state[1], one number of 128 bits, by `by`.
void AdvanceGenerator(uint64_t by, int64_t* state);

// The generator as it stands in the variable behind input 0, which moves on by `samples`.
// `algorithm` is null where the first number of the state tells it.
StatusOr<Philox> TakeFromGenerator(KernelContext& ctx, const int64_t* algorithm, uint64_t samples);

}  // namespace millrace

#endif  // KERNELS_STATE_GENERATOR_VARIABLE_H_
