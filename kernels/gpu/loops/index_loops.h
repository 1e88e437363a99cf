// SPDX-License-Identifier: Apache-2.0
// Rows by index: gathered, and scattered in an order that does not depend on threads.
#ifndef KERNELS_GPU_LOOPS_INDEX_LOOPS_H_
#define KERNELS_GPU_LOOPS_INDEX_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

template <typename T, typename I>
struct GatherEach {
  const T* in;
  const I* indices;
  T* out;
  int64_t outer, per_batch, limit, inner;
  MR_HD void operator()(int64_t i) const {
    const int64_t row = i / inner, k = i - row * inner;
    const int64_t block = row / per_batch;  // over batches and outer
    const int64_t at = block / outer * per_batch + (row - block * per_batch);
    const auto from = static_cast<int64_t>(indices[at]);
    out[i] = from >= 0 && from < limit ? in[(block * limit + from) * inner + k] : T{};
  }
};

template <typename Launcher>
Outcome RunGather(Queue queue, const GatherParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    return Dispatch(Types<int32_t, int64_t>(), p.index_type, [&]<typename I>() {
      return Launcher(queue).ForEach(
          p.batches * p.outer * p.per_batch * p.inner,
          GatherEach<T, I>{static_cast<const T*>(p.in), static_cast<const I*>(p.indices),
                           static_cast<T*>(p.out), p.outer, p.per_batch, p.limit, p.inner});
    });
  });
}

// Indices into the leading axes of a tensor as the number of a row; -1 if there is none.
template <typename I>
struct RowFinder {
  const I* indices;
  int depth;
  int64_t dims[kMaxAxes];
  MR_HD int64_t Row(int64_t i) const {
    int64_t row = 0;
    for (int k = 0; k < depth; ++k) {
      const auto x = static_cast<int64_t>(indices[i * depth + k]);
      if (x < 0 || x >= dims[k]) return -1;
      row = row * dims[k] + x;
    }
    return row;
  }
};
template <typename I>
RowFinder<I> MakeRowFinder(const void* indices, int depth, const int64_t (&dims)[kMaxAxes]) {
  RowFinder<I> finder{static_cast<const I*>(indices), depth, {}};
  for (int k = 0; k < depth; ++k) finder.dims[k] = dims[k];
  return finder;
}

template <typename T, typename I>
struct GatherNdEach {
  const T* in;
  T* out;
  int64_t inner;
  RowFinder<I> finder;
  MR_HD void operator()(int64_t i) const {
    const int64_t row = i / inner, k = i - row * inner, from = finder.Row(row);
    out[i] = from >= 0 ? in[from * inner + k] : T{};
  }
};

template <typename Launcher>
Outcome RunGatherNd(Queue queue, const GatherNdParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    return Dispatch(Types<int32_t, int64_t>(), p.index_type, [&]<typename I>() {
      return Launcher(queue).ForEach(
          p.count * p.inner,
          GatherNdEach<T, I>{static_cast<const T*>(p.in), static_cast<T*>(p.out), p.inner,
                             MakeRowFinder<I>(p.indices, p.depth, p.dims)});
    });
  });
}

// --- Scatter ---------------------------------------------------------------------------------
// Updates are sorted by the row they go to, stably; then one thread for each row and element
// takes all of the row's updates one after the other. A row with very many updates is slow, but
// the sums are those of the CPU, whatever the threads do.

template <typename I>
struct KeyEach {
  RowFinder<I> finder;
  int64_t* keys;
  int32_t* order;
  int64_t rows;
  MR_HD void operator()(int64_t i) const {
    const int64_t row = finder.Row(i);
    keys[i] = row < 0 ? rows : row;  // those that go nowhere come last
    order[i] = static_cast<int32_t>(i);
  }
};

template <ScatterOp kOp, typename T>
MR_HD ComputeType<T> Combined(ComputeType<T> a, ComputeType<T> b) {
  using C = ComputeType<T>;
  if constexpr (kOp == ScatterOp::kSet) {
    return b;
  } else if constexpr (kOp == ScatterOp::kMin) {
    return b < a ? b : a;
  } else if constexpr (kOp == ScatterOp::kMax) {
    return a < b ? b : a;
  } else if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T> && kOp == ScatterOp::kDiv) {
    // -1 by itself: the smallest number has no quotient with it.
    if (b == -1) return static_cast<C>(uint64_t{0} - static_cast<uint64_t>(a));
    return b == 0 ? C(0) : a / b;
  } else if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<C>(kOp == ScatterOp::kMul ? x * y
                                                 : (kOp == ScatterOp::kSub ? x - y : x + y));
  } else if constexpr (kOp == ScatterOp::kMul) {
    return a * b;
  } else if constexpr (kOp == ScatterOp::kDiv) {
    return a / b;
  } else if constexpr (kOp == ScatterOp::kSub) {
    return a - b;
  } else {
    return a + b;
  }
}

template <ScatterOp kOp, typename T>
struct ScatterEach {
  const int64_t* keys;   // sorted
  const int32_t* order;  // the updates in that order
  const T* updates;
  T* out;
  int64_t count, inner, rows;
  int update_step;
  MR_HD void operator()(int64_t i) const {
    const int64_t first = i / inner, k = i - first * inner, row = keys[first];
    if (row == rows || (first > 0 && keys[first - 1] == row)) return;
    auto value = Widen(out[row * inner + k]);
    for (int64_t at = first; at < count && keys[at] == row; ++at) {
      const int64_t from = static_cast<int64_t>(order[at]) * inner + k;
      value = Combined<kOp, T>(value, Widen(updates[from * update_step]));
    }
    out[row * inner + k] = Narrow<T>(value);
  }
};

template <typename Launcher>
int64_t ScatterScratchBytes(int64_t count) {
  return 2 * RoundUp(count * 8) + 2 * RoundUp(count * 4) +
         RoundUp(Launcher::SortScratchBytes(count));
}

// Updates by the rows that they go to.
struct SortedUpdates {
  const int64_t* rows;   // those that go nowhere have a row too large
  const int32_t* order;  // which updates they are
};

// `scratch` as ScatterScratchBytes says.
template <typename Launcher>
Outcome SortUpdates(const Launcher& launcher, DataType index_type, const void* indices,
                    int64_t count, int depth, const int64_t (&dims)[kMaxAxes], int64_t rows,
                    void* scratch, int64_t scratch_bytes, SortedUpdates* updates) {
  if (count >= (int64_t{1} << 31)) return "more than 2^31 updates in one scatter";
  const SortedRows at(scratch, count);
  const Outcome outcome = Dispatch(Types<int32_t, int64_t>(), index_type, [&]<typename I>() {
    return launcher.ForEach(
        count, KeyEach<I>{MakeRowFinder<I>(indices, depth, dims), at.keys, at.first_order, rows});
  });
  if (outcome != nullptr) return outcome;
  *updates = {at.rows, at.order};
  const auto taken = static_cast<char*>(at.rest) - static_cast<char*>(scratch);
  return launcher.SortPairs(count, at.keys, at.rows, at.first_order, at.order, at.rest,
                            scratch_bytes - taken, rows);
}

template <typename Launcher, ScatterOp kOp, typename T>
Outcome ScatterOf(Queue queue, const ScatterParams& p) {
  int64_t rows = 1;
  for (int k = 0; k < p.depth; ++k) rows *= p.dims[k];
  const Launcher launcher(queue);
  SortedUpdates sorted{};
  const Outcome outcome = SortUpdates(launcher, p.index_type, p.indices, p.count, p.depth, p.dims,
                                      rows, p.scratch, p.scratch_bytes, &sorted);
  if (outcome != nullptr) return outcome;
  return launcher.ForEach(
      p.count * p.inner,
      ScatterEach<kOp, T>{sorted.rows, sorted.order, static_cast<const T*>(p.updates),
                          static_cast<T*>(p.out), p.count, p.inner, rows, p.update_step});
}

template <typename Launcher>
Outcome RunScatter(Queue queue, const ScatterParams& p) {
  using Numbers = Types<float, double, Half, BFloat16, int64_t, int32_t>;
  if (p.type == DataType::kBool) return ScatterOf<Launcher, ScatterOp::kOr, bool>(queue, p);
  switch (p.op) {
#define MR_GPU_CASE(op)                                       \
  case ScatterOp::op:                                         \
    return Dispatch(Numbers(), p.type, [&]<typename T>() {    \
      return ScatterOf<Launcher, ScatterOp::op, T>(queue, p); \
    });
    MR_GPU_CASE(kSet)
    MR_GPU_CASE(kAdd)
    MR_GPU_CASE(kSub)
    MR_GPU_CASE(kMul)
    MR_GPU_CASE(kDiv)
    MR_GPU_CASE(kMin)
    MR_GPU_CASE(kMax)
#undef MR_GPU_CASE
    default:
      return kNoLoop;
  }
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_INDEX_LOOPS_H_
