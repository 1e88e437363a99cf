// SPDX-License-Identifier: Apache-2.0
// What loops that regroup rows (segments, partitions, distinct elements) are asked for: see
// loops.h.
#ifndef KERNELS_GPU_LOOPS_SEGMENT_PARAMS_H_
#define KERNELS_GPU_LOOPS_SEGMENT_PARAMS_H_

#include <cstdint>

#include "kernels/gpu/loops/move_params.h"
#include "kernels/gpu/loops/numbers.h"

namespace millrace::gpu {

// What a segment of n rows is divided by: nothing, n, its root.
enum class Weigh { kNone, kMean, kSqrtN };

// out[s, :] = op over i with ids[i] == s of in[sources[i], :], or of in[i, :] without sources, in
// the order of i. Ids are sorted. Segments without rows stay as they are; ids that are none, and
// rows that are not there, are left out.
struct SegmentParams {
  ScatterOp op = ScatterOp::kAdd;
  Weigh weigh{};
  DataType type = DataType::kInvalid, id_type = DataType::kInvalid;
  DataType source_type = DataType::kInvalid;
  const void *in = nullptr, *ids = nullptr, *sources = nullptr;
  void* out = nullptr;
  int64_t count = 0, inner = 1, segments = 0, rows = 0;
};

// Rows sorted by a number below `rows` that each has, stably; those with another one come last.
struct SortRowsParams {
  DataType index_type = DataType::kInvalid;
  const void* indices = nullptr;
  int64_t count = 0, rows = 0;
  void* scratch = nullptr;  // what SortedRows finds afterwards, with what sorting needs
  int64_t scratch_bytes = 0;
  int64_t* counts = nullptr;  // [rows]: how many of each number there are, if not null
  // If not null: how many of the sorted numbers up to each differ, and how many do at all. The
  // scan takes `chunks` pieces, whose scratch holds as many int64.
  int64_t* places = nullptr;
  int64_t* distinct = nullptr;
  int64_t chunks = 1;
  void* scan_scratch = nullptr;
};

// The gradient of a sum of segments of chosen rows, whose rows were sorted by `indices` (SortRows):
// out[index, :] += gradient[ids[i], :] / weigh(size of segment ids[i]) for each row i of the
// index, in their order. With places, out has distinct rows only, and `touched` becomes their
// indices.
struct SegmentGradParams {
  Weigh weigh{};
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  DataType id_type = DataType::kInvalid;
  const void *gradient = nullptr, *ids = nullptr;
  void *out = nullptr, *touched = nullptr;
  const int64_t* places = nullptr;
  void* scratch = nullptr;   // that of SortRows
  int32_t* sizes = nullptr;  // [segments], for weighing
  int64_t count = 0, inner = 1, rows = 0, segments = 0;
};

// The distinct elements of a vector, in the order in which they come first. Without `values`:
// counts them, into *distinct, and leaves in scratch what the second call needs.
struct UniqueParams {
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void* in = nullptr;
  int64_t n = 0;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;  // as scatters', with 8 bytes more for each of `chunks`
  int64_t chunks = 1;         // that a scan takes
  int64_t* distinct = nullptr;
  void *values = nullptr, *places = nullptr, *counts = nullptr;  // counts may be null
};

// out[i, :] = from[sources[i, 0] - first][sources[i, 1], :], where there is such a `from`. Other
// rows stay as they are, but for those with a negative source, which become zeros with `first` 0.
struct CollectParams {
  static constexpr int kMost = 32;
  int size = 0;
  const int32_t* sources = nullptr;
  const void* from[kMost] = {};
  int first = 0, given = 0;
  void* out = nullptr;
  int64_t count = 0, inner = 1;
};

inline int64_t RoundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Where in its scratch a sort of `count` rows has what.
struct SortedRows {
  int64_t* keys;         // free once it is sorted
  int64_t* rows;         // sorted; those that go nowhere have a row too large
  int32_t* first_order;  // free once it is sorted
  int32_t* order;        // which rows they are
  void* rest;

  SortedRows(void* scratch, int64_t count) {
    char* const at = static_cast<char*>(scratch);
    const int64_t wide = RoundUp(count * 8), narrow = RoundUp(count * 4);
    keys = reinterpret_cast<int64_t*>(at);
    rows = reinterpret_cast<int64_t*>(at + wide);
    first_order = reinterpret_cast<int32_t*>(at + 2 * wide);
    order = reinterpret_cast<int32_t*>(at + 2 * wide + narrow);
    rest = at + 2 * wide + 2 * narrow;
  }
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_SEGMENT_PARAMS_H_
