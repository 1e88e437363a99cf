// SPDX-License-Identifier: Apache-2.0
// Scans along an axis. Where lines are few and long, they are cut into
// chunks that are scanned at once: first their totals, then what comes before each, then the
// elements (Blelloch, "Prefix Sums and Their Applications", 1990). The order of additions depends
// on shapes alone: results repeat.
#ifndef KERNELS_GPU_LOOPS_SCAN_LOOPS_H_
#define KERNELS_GPU_LOOPS_SCAN_LOOPS_H_

#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

struct ScanCombine {
  bool product;
  template <typename C>
  MR_HD C Identity() const {
    return C(product ? 1 : 0);
  }
  template <typename C>
  MR_HD C operator()(C a, C b) const {
    return product ? ProdCombine()(a, b) : SumCombine()(a, b);
  }
};

template <typename T>
struct ScanBase {
  using C = ComputeType<T>;
  const T* in;
  T* out;
  C* totals;  // [lines, chunks], in the end of all chunks before; null: there is one
  int64_t lines, size, inner;
  ChunkRange range;
  ScanCombine op;
  bool exclusive, reverse;

  // Of the k-th in the order of the scan.
  MR_HD int64_t At(int64_t line, int64_t k) const {
    const int64_t base = line / inner * size * inner + line % inner;
    return base + (reverse ? size - 1 - k : k) * inner;
  }
  MR_HD C Before(int64_t line, int64_t chunk) const {
    return totals == nullptr ? op.template Identity<C>() : totals[line * range.chunks + chunk];
  }
  MR_HD void Store(int64_t at, C before, C x) const {
    out[at] = Narrow<T>(exclusive ? before : op(before, x));
  }
};

// Elements lie apart: neighbouring threads take the same chunk of neighbouring lines.
template <typename T>
struct ChunkTotalByThread : ScanBase<T> {
  using C = ComputeType<T>;
  MR_HD void operator()(int64_t i) const {
    const int64_t chunk = i / this->lines, line = i - chunk * this->lines;
    const int64_t end = this->range.begin(chunk + 1);
    C total = this->op.template Identity<C>();
    for (int64_t k = this->range.begin(chunk); k < end; ++k) {
      total = this->op(total, C(Widen(this->in[this->At(line, k)])));
    }
    this->totals[line * this->range.chunks + chunk] = total;
  }
};
template <typename T>
struct ScanByThread : ScanBase<T> {
  using C = ComputeType<T>;
  MR_HD void operator()(int64_t i) const {
    const int64_t chunk = i / this->lines, line = i - chunk * this->lines;
    const int64_t end = this->range.begin(chunk + 1);
    C total = this->Before(line, chunk);
    for (int64_t k = this->range.begin(chunk); k < end; ++k) {
      const int64_t at = this->At(line, k);
      const C x = Widen(this->in[at]);
      this->Store(at, total, x);
      total = this->op(total, x);
    }
  }
};

// Elements lie together: a team for each chunk.
template <typename T>
struct ChunkTotalByTeam : ScanBase<T> {
  using C = ComputeType<T>;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const int64_t line = row / this->range.chunks, chunk = row - line * this->range.chunks;
    const int64_t end = this->range.begin(chunk + 1);
    C total = this->op.template Identity<C>();
    for (int64_t k = this->range.begin(chunk) + team.rank(); k < end; k += team.size()) {
      total = this->op(total, C(Widen(this->in[this->At(line, k)])));
    }
    total = team.Reduce(total, this->op.template Identity<C>(), this->op);
    if (team.rank() == 0) this->totals[row] = total;
  }
};
template <typename T>
struct ScanByTeam : ScanBase<T> {
  using C = ComputeType<T>;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const int64_t line = row / this->range.chunks, chunk = row - line * this->range.chunks;
    const int64_t end = this->range.begin(chunk + 1);
    C total = this->Before(line, chunk);
    for (int64_t k = this->range.begin(chunk); k < end; k += team.size()) {
      const int64_t mine = k + team.rank(), at = this->At(line, mine);
      const C x = mine < end ? C(Widen(this->in[at])) : this->op.template Identity<C>();
      const auto scanned = team.Scan(x, this->op.template Identity<C>(), this->op);
      if (mine < end) this->Store(at, this->op(total, scanned.before), x);
      total = this->op(total, scanned.all);
    }
  }
};

// Of each line, makes of the totals of its chunks what comes before them.
template <typename C>
struct ScanTotals {
  C* totals;
  int64_t chunks;
  ScanCombine op;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t line) const {
    C total = op.template Identity<C>();
    for (int64_t k = 0; k < chunks; k += team.size()) {
      const int64_t mine = k + team.rank();
      C* const at = totals + line * chunks + mine;
      const C x = mine < chunks ? *at : op.template Identity<C>();
      const auto scanned = team.Scan(x, op.template Identity<C>(), op);
      if (mine < chunks) *at = op(total, scanned.before);
      total = op(total, scanned.all);
    }
  }
};

template <typename Launcher>
Outcome RunScan(Queue queue, const ScanParams& p) {
  using Summable = Types<float, double, Half, BFloat16, int64_t, int32_t>;
  return Dispatch(Summable(), p.type, [&]<typename T>() -> Outcome {
    using C = ComputeType<T>;
    const int64_t lines = p.outer * p.inner, rows = lines * p.chunks, width = p.size / p.chunks;
    C* const totals = p.chunks > 1 ? static_cast<C*>(p.scratch) : nullptr;
    const ScanBase<T> base{static_cast<const T*>(p.in),
                           static_cast<T*>(p.out),
                           totals,
                           lines,
                           p.size,
                           p.inner,
                           {p.size, p.chunks},
                           {p.product},
                           p.exclusive,
                           p.reverse};
    const Launcher launcher(queue);
    if (totals != nullptr) {
      Outcome outcome = p.inner == 1 ? launcher.ForTeams(rows, width, ChunkTotalByTeam<T>{base})
                                     : launcher.ForEach(rows, ChunkTotalByThread<T>{base});
      if (outcome == nullptr) {
        outcome = launcher.ForTeams(lines, p.chunks, ScanTotals<C>{totals, p.chunks, base.op});
      }
      if (outcome != nullptr) return outcome;
    }
    return p.inner == 1 ? launcher.ForTeams(rows, width, ScanByTeam<T>{base})
                        : launcher.ForEach(rows, ScanByThread<T>{base});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_SCAN_LOOPS_H_
