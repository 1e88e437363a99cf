// SPDX-License-Identifier: Apache-2.0
// Rows that belong together: sums of segments and their gradients, rows sorted by a number.
#ifndef KERNELS_GPU_LOOPS_SEGMENT_LOOPS_H_
#define KERNELS_GPU_LOOPS_SEGMENT_LOOPS_H_

#include "kernels/gpu/loops/index_loops.h"
#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// int32 or int64, told apart when it runs: loops that wait for memory need no copies for each.
struct Indices {
  const int32_t* narrow = nullptr;
  const int64_t* wide = nullptr;

  Indices(DataType type, const void* at)
      : narrow(type == DataType::kInt32 ? static_cast<const int32_t*>(at) : nullptr),
        wide(type == DataType::kInt32 ? nullptr : static_cast<const int64_t*>(at)) {}
  MR_HD int64_t operator[](int64_t i) const { return narrow != nullptr ? narrow[i] : wide[i]; }
};

template <typename C>
MR_HD C SegmentDivisor(Weigh weigh, int64_t rows) {
  const auto n = static_cast<double>(rows);
  return static_cast<C>(weigh == Weigh::kSqrtN ? std::sqrt(n) : n);
}

// One thread for each segment and element, which is that of the segment's first row.
template <typename T>
struct SegmentEach {
  using C = ComputeType<T>;
  const T* in;
  T* out;
  Indices ids, sources;
  int64_t count, inner, segments, rows;
  ScatterOp op;
  Weigh weigh;
  bool chosen;  // by sources

  MR_HD C Load(int64_t at, int64_t k) const {
    const int64_t row = chosen ? sources[at] : at;
    return row >= 0 && row < rows ? C(Widen(in[row * inner + k])) : C(0);
  }
  MR_HD C Combine(C a, C b) const {
    switch (op) {
      case ScatterOp::kMul:
        return Combined<ScatterOp::kMul, T>(a, b);
      case ScatterOp::kMin:
        return Combined<ScatterOp::kMin, T>(a, b);
      case ScatterOp::kMax:
        return Combined<ScatterOp::kMax, T>(a, b);
      default:
        return Combined<ScatterOp::kAdd, T>(a, b);
    }
  }
  MR_HD void operator()(int64_t i) const {
    const int64_t first = i / inner, k = i - first * inner, id = ids[first];
    if (id < 0 || id >= segments || (first > 0 && ids[first - 1] == id)) return;
    C value = Load(first, k);
    int64_t at = first + 1;
    for (; at < count && ids[at] == id; ++at) value = Combine(value, Load(at, k));
    if (weigh != Weigh::kNone) value = value / SegmentDivisor<C>(weigh, at - first);
    out[id * inner + k] = Narrow<T>(value);
  }
};

template <typename Launcher>
Outcome RunSegment(Queue queue, const SegmentParams& p) {
  using Numbers = Types<float, double, Half, BFloat16, int64_t, int32_t>;
  return Dispatch(Numbers(), p.type, [&]<typename T>() {
    return Launcher(queue).ForEach(
        p.count * p.inner,
        SegmentEach<T>{static_cast<const T*>(p.in), static_cast<T*>(p.out),
                       Indices(p.id_type, p.ids), Indices(p.source_type, p.sources), p.count,
                       p.inner, p.segments, p.rows, p.op, p.weigh, p.sources != nullptr});
  });
}

// --- Sorted rows -----------------------------------------------------------------------------

// The first of n sorted numbers that is not below `bound`.
MR_HD inline int64_t LowerBound(const int64_t* sorted, int64_t n, int64_t bound) {
  int64_t begin = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    if (sorted[begin + half] < bound) {
      begin += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return begin;
}

struct CountEach {
  const int64_t* sorted;
  int64_t count;
  int64_t* counts;
  MR_HD void operator()(int64_t i) const {
    counts[i] = LowerBound(sorted, count, i + 1) - LowerBound(sorted, count, i);
  }
};

// 1 where a row comes first.
struct FirstOfRowEach {
  const int64_t* sorted;
  int64_t rows;
  int64_t* first;
  MR_HD void operator()(int64_t i) const {
    first[i] = sorted[i] != rows && (i == 0 || sorted[i - 1] != sorted[i]) ? 1 : 0;
  }
};

struct LastOf {
  const int64_t* from;
  int64_t n;
  int64_t* to;
  MR_HD void operator()(int64_t) const { *to = n > 0 ? from[n - 1] : 0; }
};

// places[i] = the sum of the first i + 1 flags, *total = that of all.
template <typename Launcher>
Outcome NumberFlags(Queue queue, const int64_t* flags, int64_t n, int64_t chunks, void* scratch,
                    int64_t* places, int64_t* total) {
  if (n > 0) {
    ScanParams scan;
    scan.type = DataType::kInt64;
    scan.in = flags;
    scan.out = places;
    scan.outer = scan.inner = 1;
    scan.size = n;
    scan.chunks = chunks;
    scan.scratch = scratch;
    if (const Outcome outcome = RunScan<Launcher>(queue, scan); outcome != nullptr) return outcome;
  }
  return Launcher(queue).ForEach(1, LastOf{places, n, total});
}

template <typename Launcher>
Outcome RunSortRows(Queue queue, const SortRowsParams& p) {
  const Launcher launcher(queue);
  const int64_t dims[kMaxAxes] = {p.rows};
  SortedUpdates sorted{};
  Outcome outcome = SortUpdates(launcher, p.index_type, p.indices, p.count, 1, dims, p.rows,
                                p.scratch, p.scratch_bytes, &sorted);
  if (outcome == nullptr && p.counts != nullptr) {
    outcome = launcher.ForEach(p.rows, CountEach{sorted.rows, p.count, p.counts});
  }
  if (outcome != nullptr || p.places == nullptr) return outcome;
  int64_t* const flags = SortedRows(p.scratch, p.count).keys;
  outcome = launcher.ForEach(p.count, FirstOfRowEach{sorted.rows, p.rows, flags});
  if (outcome != nullptr) return outcome;
  return NumberFlags<Launcher>(queue, flags, p.count, p.chunks, p.scan_scratch, p.places,
                               p.distinct);
}

// --- Gradients -------------------------------------------------------------------------------

struct SegmentSizeEach {
  Indices ids;
  int64_t count, segments;
  int32_t* sizes;
  MR_HD void operator()(int64_t i) const {
    const int64_t id = ids[i];
    if (id < 0 || id >= segments || (i > 0 && ids[i - 1] == id)) return;
    int64_t end = i + 1;
    while (end < count && ids[end] == id) ++end;
    sizes[id] = static_cast<int32_t>(end - i);
  }
};

// One thread for each row and element that has a gradient.
template <typename T>
struct SegmentGradEach {
  using C = ComputeType<T>;
  const T* gradient;
  T* out;
  Indices ids;
  const int64_t* sorted;
  const int32_t* order;
  const int64_t* places;
  const int32_t* sizes;
  int64_t count, inner, rows, segments;
  Weigh weigh;

  MR_HD void operator()(int64_t i) const {
    const int64_t first = i / inner, k = i - first * inner, row = sorted[first];
    if (row == rows || (first > 0 && sorted[first - 1] == row)) return;
    C sum = 0;
    for (int64_t at = first; at < count && sorted[at] == row; ++at) {
      const int64_t id = ids[order[at]];
      if (id < 0 || id >= segments) continue;
      const C scale = weigh == Weigh::kNone ? C(1) : C(1) / SegmentDivisor<C>(weigh, sizes[id]);
      sum = sum + C(Widen(gradient[id * inner + k])) * scale;
    }
    out[(places == nullptr ? row : places[first] - 1) * inner + k] = Narrow<T>(sum);
  }
};

struct TouchedEach {
  const int64_t* sorted;
  const int64_t* places;
  int64_t rows;
  void* touched;
  bool narrow;
  MR_HD void operator()(int64_t i) const {
    const int64_t row = sorted[i];
    if (row == rows || (i > 0 && sorted[i - 1] == row)) return;
    if (narrow) {
      static_cast<int32_t*>(touched)[places[i] - 1] = static_cast<int32_t>(row);
    } else {
      static_cast<int64_t*>(touched)[places[i] - 1] = row;
    }
  }
};

template <typename Launcher>
Outcome RunSegmentGrad(Queue queue, const SegmentGradParams& p) {
  const Launcher launcher(queue);
  const SortedRows sorted(p.scratch, p.count);
  const Indices ids(p.id_type, p.ids);
  Outcome outcome = nullptr;
  if (p.weigh != Weigh::kNone) {
    outcome = launcher.ForEach(p.count, SegmentSizeEach{ids, p.count, p.segments, p.sizes});
  }
  if (outcome == nullptr && p.places != nullptr) {
    outcome = launcher.ForEach(p.count, TouchedEach{sorted.rows, p.places, p.rows, p.touched,
                                                    p.index_type == DataType::kInt32});
  }
  if (outcome != nullptr) return outcome;
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    return launcher.ForEach(
        p.count * p.inner,
        SegmentGradEach<T>{static_cast<const T*>(p.gradient), static_cast<T*>(p.out), ids,
                           sorted.rows, sorted.order, p.places, p.sizes, p.count, p.inner, p.rows,
                           p.segments, p.weigh});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_SEGMENT_LOOPS_H_
