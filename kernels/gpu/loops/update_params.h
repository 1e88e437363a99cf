// SPDX-License-Identifier: Apache-2.0
// What loops that draw random numbers or take steps of optimizers are asked for: see loops.h.
#ifndef KERNELS_GPU_LOOPS_UPDATE_PARAMS_H_
#define KERNELS_GPU_LOOPS_UPDATE_PARAMS_H_

#include <cstdint>

#include "kernels/gpu/loops/numbers.h"
#include "kernels/training/update_rules.h"

namespace millrace::gpu {

enum class RandomKind { kUniform, kNormal, kTruncatedNormal, kUniformInt };

// TensorFlow's bits, from a Philox generator at `counter` under `key`.
struct RandomParams {
  RandomKind kind{};
  DataType type = DataType::kInvalid;
  uint32_t counter[4] = {}, key[2] = {};
  const uint64_t* skipped = nullptr;  // blocks that are passed over besides, in device memory
  void* out = nullptr;
  int64_t n = 0;
  int64_t low = 0;     // of integers
  uint64_t range = 1;  // of integers
};

enum class UpdateRule {
  kGradientDescent,
  kMomentum,
  kKerasMomentum,
  kAdagrad,
  kAdagradV2,
  kAdadelta,
  kRmsProp,
  kCenteredRmsProp,
  kAdam,
  kAdaMax,
  kAmsgrad,
  kFtrl,
  kFtrlV2,
  kProximalGradientDescent,
  kProximalAdagrad,
  kAdagradDA,
};

// One step of an optimizer, in place; scalars lie in the launcher's memory.
struct UpdateParams {
  static constexpr int kMostSlots = 3, kMostScalars = 6;
  UpdateRule rule{};
  DataType type = DataType::kInvalid;
  void* var = nullptr;
  void* slots[kMostSlots] = {};
  const void* scalars[kMostScalars] = {};
  const int64_t* step = nullptr;  // for the scalar global_step
  const void* gradient = nullptr;
  int64_t n = 0;
  rules::UpdateFlags flags;
  // SparseUpdate: of rows of `inner` elements, those that indices name, in their order for each
  // row; indices that are out of range are left out. n is the number of gradients' elements.
  DataType index_type = DataType::kInvalid;
  const void* indices = nullptr;
  int64_t count = 0, inner = 1, rows = 0;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;  // as for scatters
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_UPDATE_PARAMS_H_
