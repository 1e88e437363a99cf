// SPDX-License-Identifier: Apache-2.0
// What loops along axes and rows are asked for: see loops.h.
#ifndef KERNELS_GPU_LOOPS_ROW_PARAMS_H_
#define KERNELS_GPU_LOOPS_ROW_PARAMS_H_

#include <cstdint>

#include "kernels/gpu/loops/index_map.h"
#include "kernels/gpu/loops/numbers.h"

namespace millrace::gpu {

enum class ReduceOp { kSum, kProd, kMax, kMin, kAll, kAny, kSquares };
enum class ReduceFinish { kNone, kMean, kHalf, kRoot };

// out[o] = finish(op over r of in[kept(o) + reduced(r)]).
struct ReduceParams {
  ReduceOp op{};
  ReduceFinish finish{};
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  IndexMap<1> kept, reduced;
  // Each output's elements are shared between this many partial results, which scratch holds as
  // [chunks, outputs] in the compute type.
  int64_t chunks = 1;
  void* scratch = nullptr;
  // Neighbouring threads take neighbouring outputs instead of neighbouring elements.
  bool by_column = false;
};

// The first of the largest (smallest) of `size` elements `inner` apart.
struct ArgParams {
  bool largest = true;
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 0, size = 0, inner = 0;
};

// Along `size` elements `inner` apart.
struct ScanParams {
  bool product = false, exclusive = false, reverse = false;
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 0, size = 0, inner = 0;
  // Each line is scanned in this many pieces, for which scratch holds [outer * inner, chunks] of
  // the compute type.
  int64_t chunks = 1;
  void* scratch = nullptr;
};

struct SoftmaxParams {
  bool log = false;
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 0, n = 0;
};

// loss[i] and backprop[i, :] of logits and labels [rows, n]; a step of 0 repeats. With
// label_type, labels are one class per row; a class that is none makes NaN.
struct CrossEntropyParams {
  DataType type = DataType::kInvalid, label_type = DataType::kInvalid;
  const void *logits = nullptr, *labels = nullptr;
  int64_t x_row = 0, x_column = 1, y_row = 0, y_column = 1;
  void *loss = nullptr, *backprop = nullptr;
  int64_t rows = 0, n = 0;
};

struct InTopKParams {
  DataType index_type = DataType::kInvalid;
  const float* predictions = nullptr;
  const void* targets = nullptr;
  bool* out = nullptr;
  int64_t rows = 0, classes = 0, k = 0;
};

// The k largest of each row, the largest first, of equal ones the first; NaN is the largest.
struct TopKParams {
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void* in = nullptr;
  void *values = nullptr, *indices = nullptr;
  int64_t rows = 0, n = 0, k = 0;
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_ROW_PARAMS_H_
