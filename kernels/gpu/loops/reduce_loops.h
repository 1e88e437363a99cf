// SPDX-License-Identifier: Apache-2.0
// Reductions over any axes. A reduction takes its elements in an order that depends on shapes
// alone: results repeat.
#ifndef KERNELS_GPU_LOOPS_REDUCE_LOOPS_H_
#define KERNELS_GPU_LOOPS_REDUCE_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

struct SumCombine {
  template <typename A>
  static MR_HD A Identity() {
    return A(0);
  }
  template <typename A>
  MR_HD A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
struct ProdCombine {
  template <typename A>
  static MR_HD A Identity() {
    return A(1);
  }
  template <typename A>
  MR_HD A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
// Extremes let a NaN through.
struct MaxCombine {
  template <typename A>
  static MR_HD A Identity() {
    if constexpr (std::is_floating_point_v<A>) return -std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::lowest();
  }
  template <typename A>
  MR_HD A operator()(A a, A b) const {
    return (a >= b || a != a) ? a : b;
  }
};
struct MinCombine {
  template <typename A>
  static MR_HD A Identity() {
    if constexpr (std::is_floating_point_v<A>) return std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::max();
  }
  template <typename A>
  MR_HD A operator()(A a, A b) const {
    return (a <= b || a != a) ? a : b;
  }
};
struct AllCombine {
  template <typename A>
  static MR_HD A Identity() {
    return true;
  }
  MR_HD bool operator()(bool a, bool b) const { return a && b; }
};
struct AnyCombine {
  template <typename A>
  static MR_HD A Identity() {
    return false;
  }
  MR_HD bool operator()(bool a, bool b) const { return a || b; }
};

template <typename A>
struct Finisher {
  ReduceFinish finish;
  int64_t count;
  MR_HD A operator()(A x) const {
    if constexpr (std::is_same_v<A, bool>) {
      return x;
    } else {
      switch (finish) {
        case ReduceFinish::kMean:
          if constexpr (std::is_integral_v<A>) {
            return count == 0 ? x : static_cast<A>(x / static_cast<A>(count));
          } else {
            return x / static_cast<A>(count);  // 0 / 0 is NaN, as it should be
          }
        case ReduceFinish::kHalf:
          return x / A(2);
        case ReduceFinish::kRoot:
          return static_cast<A>(std::sqrt(static_cast<double>(x)));
        default:
          return x;
      }
    }
  }
};

// Which of the reduced elements a chunk has.
struct ChunkRange {
  int64_t count, chunks;
  MR_HD int64_t begin(int64_t chunk) const { return count / chunks * chunk + Extra(chunk); }
  MR_HD int64_t Extra(int64_t chunk) const {
    const int64_t rest = count % chunks;
    return chunk < rest ? chunk : rest;
  }
};

template <typename Op, typename T, bool kSquares>
struct ReduceBase {
  using A = ComputeType<T>;
  const T* in;
  T* out;
  A* parts;  // null: the chunk is all there is
  int64_t outputs;
  IndexMap<1> kept, reduced;
  ChunkRange range;
  Finisher<A> finish;

  MR_HD A Element(int64_t base, int64_t r) const {
    const A x = Widen(in[base + reduced.At(r).offset[0]]);
    if constexpr (kSquares) {
      return x * x;
    } else {
      return x;
    }
  }
  MR_HD void Store(int64_t output, int64_t chunk, A value) const {
    if (parts != nullptr) {
      parts[chunk * outputs + output] = value;
    } else {
      out[output] = Narrow<T>(finish(value));
    }
  }
};

// A team for each chunk of each output.
template <typename Op, typename T, bool kSquares>
struct ReduceByTeam : ReduceBase<Op, T, kSquares> {
  using A = ComputeType<T>;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const int64_t output = row / this->range.chunks, chunk = row - output * this->range.chunks;
    const int64_t base = this->kept.At(output).offset[0];
    const int64_t end = this->range.begin(chunk + 1);
    A total = Op::template Identity<A>();
    for (int64_t r = this->range.begin(chunk) + team.rank(); r < end; r += team.size()) {
      total = Op()(total, this->Element(base, r));
    }
    total = team.Reduce(total, Op::template Identity<A>(), Op());
    if (team.rank() == 0) this->Store(output, chunk, total);
  }
};

// A thread for each chunk of each output, neighbours for neighbouring outputs.
template <typename Op, typename T, bool kSquares>
struct ReduceByThread : ReduceBase<Op, T, kSquares> {
  using A = ComputeType<T>;
  MR_HD void operator()(int64_t i) const {
    const int64_t chunk = i / this->outputs, output = i - chunk * this->outputs;
    const int64_t base = this->kept.At(output).offset[0];
    const int64_t end = this->range.begin(chunk + 1);
    A total = Op::template Identity<A>();
    for (int64_t r = this->range.begin(chunk); r < end; ++r) {
      total = Op()(total, this->Element(base, r));
    }
    this->Store(output, chunk, total);
  }
};

template <typename Op, typename T>
struct CombineParts {
  using A = ComputeType<T>;
  const A* parts;
  T* out;
  int64_t outputs, chunks;
  Finisher<A> finish;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t output) const {
    A total = Op::template Identity<A>();
    for (int64_t chunk = team.rank(); chunk < chunks; chunk += team.size()) {
      total = Op()(total, parts[chunk * outputs + output]);
    }
    total = team.Reduce(total, Op::template Identity<A>(), Op());
    if (team.rank() == 0) out[output] = Narrow<T>(finish(total));
  }
};

template <typename Launcher, typename Op, typename T, bool kSquares = false>
Outcome ReduceOf(Queue queue, const ReduceParams& p) {
  using A = ComputeType<T>;
  const int64_t outputs = p.kept.count(), count = p.reduced.count();
  A* const parts = p.chunks > 1 ? static_cast<A*>(p.scratch) : nullptr;
  const Finisher<A> finish{p.finish, count};
  const ReduceBase<Op, T, kSquares> base{static_cast<const T*>(p.in),
                                         static_cast<T*>(p.out),
                                         parts,
                                         outputs,
                                         p.kept,
                                         p.reduced,
                                         {count, p.chunks},
                                         finish};
  const Launcher launcher(queue);
  const Outcome outcome =
      p.by_column ? launcher.ForEach(outputs * p.chunks, ReduceByThread<Op, T, kSquares>{base})
                  : launcher.ForTeams(outputs * p.chunks, count / p.chunks,
                                      ReduceByTeam<Op, T, kSquares>{base});
  if (outcome != nullptr || parts == nullptr) return outcome;
  return launcher.ForTeams(
      outputs, p.chunks,
      CombineParts<Op, T>{parts, static_cast<T*>(p.out), outputs, p.chunks, finish});
}

template <typename Launcher>
Outcome RunReduce(Queue queue, const ReduceParams& p) {
  switch (p.op) {
    case ReduceOp::kSum:
      return Dispatch(FloatsAndInt64(), p.type,
                      [&]<typename T>() { return ReduceOf<Launcher, SumCombine, T>(queue, p); });
    case ReduceOp::kProd:
      return Dispatch(FloatsAndInt64(), p.type,
                      [&]<typename T>() { return ReduceOf<Launcher, ProdCombine, T>(queue, p); });
    case ReduceOp::kMax:
      return Dispatch(FloatsAndInt64(), p.type,
                      [&]<typename T>() { return ReduceOf<Launcher, MaxCombine, T>(queue, p); });
    case ReduceOp::kMin:
      return Dispatch(FloatsAndInt64(), p.type,
                      [&]<typename T>() { return ReduceOf<Launcher, MinCombine, T>(queue, p); });
    case ReduceOp::kAll:
      return ReduceOf<Launcher, AllCombine, bool>(queue, p);
    case ReduceOp::kAny:
      return ReduceOf<Launcher, AnyCombine, bool>(queue, p);
    case ReduceOp::kSquares:
      return Dispatch(Floats(), p.type, [&]<typename T>() {
        return ReduceOf<Launcher, SumCombine, T, true>(queue, p);
      });
  }
  return kNoLoop;
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_REDUCE_LOOPS_H_
