// SPDX-License-Identifier: Apache-2.0
// What loops that move elements, or choose or add them by indices, are asked for: see loops.h.
#ifndef KERNELS_GPU_LOOPS_MOVE_PARAMS_H_
#define KERNELS_GPU_LOOPS_MOVE_PARAMS_H_

#include <cstdint>

#include "kernels/gpu/loops/index_map.h"
#include "kernels/gpu/loops/numbers.h"

namespace millrace::gpu {

// out[i] = cond[...] ? a[...] : b[...], elements of `size` bytes.
struct SelectParams {
  int size = 0;
  const bool* cond = nullptr;
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  IndexMap<3> map;
};

// to[...] = from[...], elements of `size` bytes.
struct CopyParams {
  int size = 0;
  const void* from = nullptr;
  void* to = nullptr;
  IndexMap<2> map;  // from, to
};

// to[i + j * to_column] = from[i * from_row + j] for i < rows, j < columns, of each batch.
struct TransposeParams {
  int size = 0;
  const void* from = nullptr;
  void* to = nullptr;
  int64_t rows = 0, columns = 0, from_row = 0, to_column = 0;
  IndexMap<2> batches;  // from, to
};

// All elements become `value`, or, where it is not null, what lies at `from`.
struct FillParams {
  int size = 0;
  void* to = nullptr;
  int64_t n = 0;
  uint64_t value[2] = {};
  const void* from = nullptr;
};

// out is [batches, outer, per_batch, inner], in is [batches, outer, limit, inner], indices are
// [batches, per_batch]. Rows out of range become zeros.
struct GatherParams {
  int size = 0;
  DataType index_type = DataType::kInvalid;
  const void *in = nullptr, *indices = nullptr;
  void* out = nullptr;
  int64_t batches = 1, outer = 1, per_batch = 0, limit = 0, inner = 1;
};

// out[i, :] = in[indices[i, 0], ..., indices[i, depth - 1], :], zeros where there is no such row.
struct GatherNdParams {
  int size = 0;
  DataType index_type = DataType::kInvalid;
  const void *in = nullptr, *indices = nullptr;
  void* out = nullptr;
  int64_t count = 0, inner = 1;
  int depth = 0;
  int64_t dims[kMaxAxes] = {};
};

enum class ScatterOp { kSet, kAdd, kSub, kMul, kDiv, kMin, kMax, kOr };

// out[row(i), :] = op(out[row(i), :], updates[i, :]) for i in [0, count), in this order for each
// row, whatever the threads: updates are sorted by row first. row(i) is made of `depth` indices
// into `dims`; where one is out of range, update i is left out.
struct ScatterParams {
  ScatterOp op{};
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void *indices = nullptr, *updates = nullptr;
  int update_step = 1;  // 0: one element for all
  void* out = nullptr;
  int64_t count = 0, inner = 1;
  int depth = 1;
  int64_t dims[kMaxAxes] = {};
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
};

// out = off, and on where the index says so; [outer, depth, inner].
struct OneHotParams {
  int size = 0;
  DataType index_type = DataType::kInvalid;
  const void *indices = nullptr, *on = nullptr, *off = nullptr;
  void* out = nullptr;
  int64_t outer = 0, depth = 0, inner = 0;
};

// Keeps a band of matrices of rows x columns; negative counts keep all of a triangle.
struct BandParams {
  int size = 0;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t matrices = 0, rows = 0, columns = 0, lower = -1, upper = -1;
};

// Pads by reflection: out[i] = in[i - before], past an edge counted back from it. `skip` is 1
// where the element at the edge is not repeated. The gradient adds up what was copied: then `in`
// is of the padded size, and `out` is not.
struct MirrorParams {
  DataType type = DataType::kInvalid;  // of the gradient
  int size = 0;                        // of elements that are copied
  const void* in = nullptr;
  void* out = nullptr;
  int rank = 0;
  int64_t dims[kMaxAxes] = {};  // without the padding
  int64_t before[kMaxAxes] = {};
  int64_t padded[kMaxAxes] = {};  // dims with it
  int64_t n = 0;                  // outputs
  int skip = 0;
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_MOVE_PARAMS_H_
