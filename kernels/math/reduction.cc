// SPDX-License-Identifier: Apache-2.0
// Sums, products, extrema and logical reductions over any set of axes.
//
// The input's axes are joined into an alternation of kept and reduced ones. One loop walks
// the input in memory order; rows of a reduced last axis go through a kernel with several
// accumulators, rows of a kept last axis are combined with the output row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "kernels/math/reduction_plan.h"
#include "kernels/math/row_reduction.h"

namespace millrace {
namespace {

using Axes = decltype(ReductionPlan::axes);

// --- What is reduced ------------------------------------------------------------------------
// Acc is what partial results are held in.
template <typename T>
using AccType = ComputeType<T>;

struct SumOp {
  template <typename A>
  static A Identity() {
    return A(0);
  }
  template <typename A>
  static A Combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
struct ProdOp {
  template <typename A>
  static A Identity() {
    return A(1);
  }
  template <typename A>
  static A Combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
// Extrema let a NaN through.
struct MaxOp {
  template <typename A>
  static A Identity() {
    if constexpr (std::is_floating_point_v<A>) return -std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::lowest();
  }
  template <typename A>
  static A Combine(A a, A b) {
    const bool keeps = static_cast<int>(a >= b) | static_cast<int>(a != a);  // without a branch
    return keeps ? a : b;
  }
};
struct MinOp {
  template <typename A>
  static A Identity() {
    if constexpr (std::is_floating_point_v<A>) return std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::max();
  }
  template <typename A>
  static A Combine(A a, A b) {
    const bool keeps = static_cast<int>(a <= b) | static_cast<int>(a != a);
    return keeps ? a : b;
  }
};
struct AllOp {
  template <typename A>
  static A Identity() {
    return true;
  }
  static bool Combine(bool a, bool b) { return a && b; }
};
struct AnyOp {
  template <typename A>
  static A Identity() {
    return false;
  }
  static bool Combine(bool a, bool b) { return a || b; }
};

// One row to one value, with independent accumulators: the compiler keeps them in vectors, and
// float sums lose less than in one chain. The order is fixed, so results repeat.
template <typename Op, typename T>
MR_ALWAYS_INLINE AccType<T> ReduceRow(const T* in, int64_t n) {
  using A = AccType<T>;
  if constexpr (kIsSmallFloat<T>) {
    float block[small_floats::kBlock];
    A all = Op::template Identity<A>();
    for (int64_t i = 0; i < n; i += small_floats::kBlock) {
      const int64_t count = std::min(small_floats::kBlock, n - i);
      small_floats::Widen(in + i, block, count);
      all = Op::Combine(all, ReduceRow<Op, float>(block, count));
    }
    return all;
  } else {
    constexpr int kLanes = 16;
    A lane[kLanes];
    std::fill_n(lane, kLanes, Op::template Identity<A>());
    int64_t i = 0;
    if (n >= kLanes) {
      for (; i + kLanes <= n; i += kLanes) {
        for (int k = 0; k < kLanes; ++k) {
          lane[k] = Op::Combine(lane[k], static_cast<A>(in[i + k]));
        }
      }
      for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int k = 0; k < width; ++k) lane[k] = Op::Combine(lane[k], lane[k + width]);
      }
    }
    for (; i < n; ++i) lane[0] = Op::Combine(lane[0], static_cast<A>(in[i]));
    return lane[0];
  }
}

template <typename Op, typename T>
MR_ALWAYS_INLINE void CombineRow(const T* in, AccType<T>* acc, int64_t n) {
  if constexpr (kIsSmallFloat<T>) {
    float block[small_floats::kBlock];
    for (int64_t i = 0; i < n; i += small_floats::kBlock) {
      const int64_t count = std::min(small_floats::kBlock, n - i);
      small_floats::Widen(in + i, block, count);
      CombineRow<Op, float>(block, acc + i, count);
    }
  } else {
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      acc[i] = Op::Combine(acc[i], static_cast<AccType<T>>(in[i]));
    }
  }
}

// Rows of at most this many elements are combined several at a time.
constexpr int64_t kShortRow = 256;

// Combines `rows` rows of n, which lie one after the other, into acc. Several short rows are taken
// as one long one, and what comes of it is folded at the end.
template <typename Op, typename T>
MR_ALWAYS_INLINE void CombineRows(const T* in, AccType<T>* acc, int64_t rows, int64_t n) {
  using A = AccType<T>;
  int64_t row = 0;
  if (n < kShortRow && rows >= 2 * (kShortRow / n)) {
    const int64_t at_once = kShortRow / n, width = at_once * n;
    A wide[kShortRow];
    std::fill_n(wide, width, Op::template Identity<A>());
    for (; row + at_once <= rows; row += at_once) CombineRow<Op>(in + row * n, wide, width);
    for (int64_t k = 0; k < at_once; ++k) CombineRow<Op, A>(wide + k * n, acc, n);
  }
  for (; row < rows; ++row) CombineRow<Op>(in + row * n, acc, n);
}

// Reduces the part of the input whose index on axis `cut` lies in [begin, end) into `acc`
// (all outputs, already holding identities or earlier partial results).
template <typename Op, typename T>
struct RangeReduction {
  static MR_ALWAYS_INLINE void Run(const T* in, AccType<T>* acc, const Axes& axes, int cut,
                                   int64_t begin, int64_t end) {
    const int rank = static_cast<int>(axes.size());
    absl::InlinedVector<int64_t, 4> in_stride(rank), out_stride(rank), size(rank), index(rank, 0);
    int64_t in_step = 1, out_step = 1;
    for (int k = rank - 1; k >= 0; --k) {
      in_stride[k] = in_step;
      in_step *= axes[k].size;
      out_stride[k] = axes[k].reduced ? 0 : out_step;
      if (!axes[k].reduced) out_step *= axes[k].size;
      size[k] = k == cut ? end - begin : axes[k].size;
    }
    in += begin * in_stride[cut];
    acc += begin * out_stride[cut];
    // What is handled at once: a reduced row, or a kept one together with the reduced axis around
    // it where its rows lie one after the other.
    const int last = rank - 1;
    const bool together = last > 0 && !axes[last].reduced && cut != last;
    const int outer = together ? last - 1 : last;
    const int64_t at_once = together ? size[outer] : 1;
    int64_t units = 1;
    for (int k = 0; k < outer; ++k) units *= size[k];
    for (int64_t unit = 0; unit < units; ++unit) {
      if (axes[last].reduced) {
        *acc = Op::Combine(*acc, ReduceRow<Op>(in, size[last]));
      } else {
        CombineRows<Op>(in, acc, at_once, size[last]);
      }
      for (int k = outer - 1; k >= 0; --k) {
        in += in_stride[k];
        acc += out_stride[k];
        if (++index[k] < size[k]) break;
        in -= in_stride[k] * size[k];
        acc -= out_stride[k] * size[k];
        index[k] = 0;
      }
    }
  }
};

template <typename Op, typename T>
struct RowsLoop {
  static MR_ALWAYS_INLINE void Run(const T* in, AccType<T>* acc, int64_t rows, int64_t n) {
    CombineRows<Op>(in, acc, rows, n);
  }
};

// Loops of 16-bit floats are those of floats, around which blocks are widened.
template <typename Loop, typename T>
auto ReductionLoopFor() {
  if constexpr (kIsSmallFloat<T>) {
    return BestVersion<Loop>();
  } else {
    return LoopFor<Loop, T>();
  }
}

template <typename Op, typename T>
struct RowLoop {
  static MR_ALWAYS_INLINE AccType<T> Run(const T* in, int64_t n) { return ReduceRow<Op>(in, n); }
};

constexpr int64_t kBlock = kReductionBlock;  // inputs per partial result

// Columns of short rows: blocks of rows become partial results, which are combined in their order,
// so that the result does not depend on the number of threads.
template <typename Op, typename T>
Status ReduceColumns(KernelContext& ctx, const T* in, AccType<T>* acc, int64_t rows, int64_t n) {
  using A = AccType<T>;
  const auto reduce_rows = ReductionLoopFor<RowsLoop<Op, T>, T>();
  const int64_t block = std::max<int64_t>(16, 2 * kBlock / n), blocks = (rows + block - 1) / block;
  if (blocks == 1) {
    reduce_rows(in, acc, rows, n);
    return OkStatus();
  }
  MR_ASSIGN_OR_RETURN(Tensor partial, ctx.AllocateTemp(DataTypeOf<A>(), Shape({blocks, n})));
  A* parts = partial.data<A>();
  ctx.ParallelFor(blocks, 0.25 * static_cast<double>(block * n), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      std::fill_n(parts + b * n, n, Op::template Identity<A>());
      reduce_rows(in + b * block * n, parts + b * n, std::min(block, rows - b * block), n);
    }
  });
  for (int64_t b = 0; b < blocks; ++b) CombineRow<Op, A>(parts + b * n, acc, n);
  return OkStatus();
}

template <typename Op, typename T>
Status ReduceInto(KernelContext& ctx, const T* in, AccType<T>* acc, const ReductionPlan& plan) {
  using A = AccType<T>;
  const Axes& axes = plan.axes;
  const int64_t outputs = plan.out.num_elements();
  std::fill_n(acc, outputs, Op::template Identity<A>());
  if (outputs == 0 || plan.reduced_elements == 0) return OkStatus();
  if (axes.empty()) {
    *acc = static_cast<A>(*in);
    return OkStatus();
  }
  const double cost_per_input = 0.25;
  const auto reduce_row = ReductionLoopFor<RowLoop<Op, T>, T>();
  if (axes.size() == 1 && axes[0].reduced) {
    const int64_t n = axes[0].size, blocks = (n + kBlock - 1) / kBlock;
    if (blocks == 1) {
      *acc = reduce_row(in, n);
      return OkStatus();
    }
    // Partial results of fixed blocks: the same sum whatever the number of threads.
    MR_ASSIGN_OR_RETURN(Tensor partial, ctx.AllocateTemp(DataTypeOf<A>(), Shape({blocks})));
    A* parts = partial.data<A>();
    ctx.ParallelFor(blocks, cost_per_input * kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        parts[b] = reduce_row(in + b * kBlock, std::min(kBlock, n - b * kBlock));
      }
    });
    *acc = ReduceRow<Op>(parts, blocks);
    return OkStatus();
  }
  constexpr int64_t kFewColumns = 4096;
  if (axes.size() == 2 && axes[0].reduced && axes[1].size <= kFewColumns) {
    return ReduceColumns<Op, T>(ctx, in, acc, axes[0].size, axes[1].size);
  }
  // Threads share a kept axis, so that none writes another's outputs.
  const int cut = axes[0].reduced ? 1 : 0;
  int64_t inputs = 1;
  for (const ReductionPlan::Axis& axis : axes) inputs *= axis.size;
  const double cost = cost_per_input * static_cast<double>(inputs / axes[cut].size);
  const auto reduce_range = ReductionLoopFor<RangeReduction<Op, T>, T>();
  ctx.ParallelFor(axes[cut].size, cost, [&](int64_t begin, int64_t end) {
    reduce_range(in, acc, axes, cut, begin, end);
  });
  return OkStatus();
}

enum class Finish { kNone, kMean };

template <typename Op, Finish kFinish, typename T>
Status Reduce(KernelContext& ctx, const Tensor& in, const ReductionPlan& plan, Tensor* out) {
  using A = AccType<T>;
  const int64_t n = plan.out.num_elements();
  Tensor temp;
  A* acc;
  if constexpr (std::is_same_v<A, T>) {
    acc = out->data<T>();
  } else {
    MR_ASSIGN_OR_RETURN(temp, ctx.AllocateTemp(DataTypeOf<A>(), plan.out));
    acc = temp.data<A>();
  }
  MR_RETURN_IF_ERROR((ReduceInto<Op, T>(ctx, in.data<T>(), acc, plan)));
  if constexpr (kFinish == Finish::kMean) {
    if constexpr (std::is_integral_v<A>) {
      if (plan.reduced_elements != 0) {
        for (int64_t i = 0; i < n; ++i) {
          if constexpr (std::is_signed_v<A>) {
            acc[i] = static_cast<A>(static_cast<int64_t>(acc[i]) / plan.reduced_elements);
          } else {
            acc[i] = static_cast<A>(static_cast<uint64_t>(acc[i]) /
                                    static_cast<uint64_t>(plan.reduced_elements));
          }
        }
      }
    } else {
      const A count = static_cast<A>(static_cast<decltype(std::abs(A()))>(plan.reduced_elements));
      // The mean of no numbers is NaN, as it should be, but of no complex ones 0, as in TensorFlow.
      if (!kIsComplex<A> || plan.reduced_elements != 0) {
        for (int64_t i = 0; i < n; ++i) acc[i] = acc[i] / count;
      }
    }
  }
  if constexpr (!std::is_same_v<A, T>) {
    T* dst = out->data<T>();
    for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<T>(acc[i]);
  }
  return OkStatus();
}

using ReduceFn = Status (*)(KernelContext& ctx, const Tensor& in, const ReductionPlan& plan,
                            Tensor* out);

class ReductionKernel : public Kernel {
 public:
  ReductionKernel(KernelConstruction& c, ReduceFn fn)
      : Kernel(c), fn_(fn), keep_dims_(c.attrs().GetOr<bool>("keep_dims", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const ReductionPlan plan,
                        PlanReduction(in.shape(), ctx.input(1), keep_dims_));
    if (plan.reduced_elements == 1) {  // nothing to add up: another shape at most
      MR_ASSIGN_OR_RETURN(Tensor same, in.Reshaped(plan.out));
      ctx.SetOutput(0, std::move(same));
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    return fn_(ctx, in, plan, out);
  }

 private:
  const ReduceFn fn_;
  const bool keep_dims_;
};

template <typename Op, typename List, Finish kFinish = Finish::kNone>
std::unique_ptr<Kernel> MakeReduction(KernelConstruction& c) {
  ReduceFn fn = nullptr;
  DispatchType(List(), BaseType(c.input_types()[0]),
               [&]<typename T>() { fn = &Reduce<Op, kFinish, T>; });
  if (fn == nullptr) c.SetError(NoLoopFor(c));
  return std::make_unique<ReductionKernel>(c, fn);
}

template <typename T>
struct SquareLoop {
  using A = AccType<T>;
  static MR_ALWAYS_INLINE void Run(const T* x, A* square, int64_t n) {
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      const A value = static_cast<A>(x[i]);
      if constexpr (kIsComplex<A>) {
        square[i] = value * std::conj(value);
      } else {
        square[i] = static_cast<A>(value * value);
      }
    }
  }
};

// The root of the sum of the squares.
template <typename T>
class EuclideanNormKernel : public Kernel {
 public:
  explicit EuclideanNormKernel(KernelConstruction& c)
      : Kernel(c), keep_dims_(c.attr<bool>("keep_dims")) {}
  Status Compute(KernelContext& ctx) override {
    using A = AccType<T>;
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const ReductionPlan plan,
                        PlanReduction(in.shape(), ctx.input(1), keep_dims_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    MR_ASSIGN_OR_RETURN(Tensor squares, ctx.AllocateTemp(DataTypeOf<A>(), in.shape()));
    A* square = squares.data<A>();
    const T* x = in.data<T>();
    const auto loop = LoopFor<SquareLoop<T>, T>();
    ctx.ParallelFor(in.num_elements(), 0.3, [&](int64_t begin, int64_t end) {
      loop(x + begin, square + begin, end - begin);
    });
    MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(DataTypeOf<A>(), plan.out));
    A* sum = sums.data<A>();
    if (plan.axes.empty() && in.num_elements() > 0) {
      sum[0] = square[0];
    } else {
      MR_RETURN_IF_ERROR((ReduceInto<SumOp, A>(ctx, square, sum, plan)));
    }
    for (int64_t i = 0; i < out->num_elements(); ++i) {
      if constexpr (std::is_integral_v<A>) {
        out->data<T>()[i] = static_cast<T>(std::sqrt(static_cast<double>(sum[i])));
      } else {
        out->data<T>()[i] = static_cast<T>(std::sqrt(sum[i]));
      }
    }
    return OkStatus();
  }

 private:
  const bool keep_dims_;
};

template <typename... Ts>
void RegisterEuclideanNorm(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("EuclideanNorm").Type<Ts>("T"), &MakeKernel<EuclideanNormKernel<Ts>>), ...);
}

template <typename T>
struct SquareSumLoop {
  using A = AccType<T>;
  static MR_ALWAYS_INLINE A Run(const T* in, int64_t n) {
    constexpr int kLanes = 16;
    A lane[kLanes] = {};
    if constexpr (kIsSmallFloat<T>) {
      float block[small_floats::kBlock];
      for (int64_t i = 0; i < n; i += small_floats::kBlock) {
        const int64_t count = std::min(small_floats::kBlock, n - i);
        small_floats::Widen(in + i, block, count);
        lane[0] += SquareSumLoop<float>::Run(block, count);
      }
      return lane[0];
    }
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const A x = static_cast<A>(in[i + k]);
        lane[k] += x * x;
      }
    }
    A sum = 0;
    for (const A x : lane) sum += x;
    for (; i < n; ++i) sum += static_cast<A>(in[i]) * static_cast<A>(in[i]);
    return sum;
  }
};

// Half the sum of the squares of all elements.
template <typename T>
class L2LossKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    using A = ComputeType<T>;
    const T* in = ctx.input(0).data<T>();
    const int64_t n = ctx.input(0).num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    const int64_t blocks = (n + kBlock - 1) / kBlock;
    MR_ASSIGN_OR_RETURN(Tensor partial, ctx.AllocateTemp(DataTypeOf<A>(), Shape({blocks})));
    A* parts = partial.data<A>();
    const auto squares = ReductionLoopFor<SquareSumLoop<T>, T>();
    ctx.ParallelFor(blocks, 0.25 * kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        parts[b] = squares(in + b * kBlock, std::min(kBlock, n - b * kBlock));
      }
    });
    out->data<T>()[0] = static_cast<T>(ReduceRow<SumOp>(parts, blocks) / A(2));
    return OkStatus();
  }
};

template <typename Op, typename List, Finish kFinish = Finish::kNone>
void RegisterReduction(KernelRegistry& r, const char* op) {
  r.Register(KernelDef(op).Types("T", DataTypesOf(List())), &MakeReduction<Op, List, kFinish>);
}

// --- For kernels that have rows at hand ------------------------------------------------------

template <typename Op, typename T>
struct ReduceRowTo {
  static MR_ALWAYS_INLINE void Run(const void* in, int64_t n, void* out) {
    *static_cast<T*>(out) = ReduceRow<Op>(static_cast<const T*>(in), n);
  }
};

// As a walk over many rows does, which combines with what an output begins with.
template <typename Op, typename T>
void CombineWithIdentity(void* values, int64_t rows) {
  T* const v = static_cast<T*>(values);
  for (int64_t i = 0; i < rows; ++i) v[i] = Op::Combine(Op::template Identity<T>(), v[i]);
}

template <typename T>
void DivideBy(void* values, int64_t rows, int64_t n) {
  T* const v = static_cast<T*>(values);
  for (int64_t i = 0; i < rows; ++i) v[i] = v[i] / static_cast<T>(n);
}

template <typename T>
bool FindRowReductionOf(std::string_view op, RowReduction* found) {
  const auto fill = [&]<typename Op>() {
    found->reduce = LoopFor<ReduceRowTo<Op, T>, T>();
    found->finish_rows = &CombineWithIdentity<Op, T>;
    return true;
  };
  if (op == "Mean") found->divide = &DivideBy<T>;
  if (op == "Sum" || op == "Mean") return fill.template operator()<SumOp>();
  if (op == "Max") return fill.template operator()<MaxOp>();
  return op == "Min" && fill.template operator()<MinOp>();
}

}  // namespace

bool FindRowReduction(std::string_view op, DataType type, RowReduction* found) {
  *found = RowReduction();
  if (type == kFloat) return FindRowReductionOf<float>(op, found);
  return type == kDouble && FindRowReductionOf<double>(op, found);
}

void RegisterReductionKernels(KernelRegistry& r) {
  RegisterReduction<SumOp, NumberTypes>(r, "Sum");
  RegisterReduction<SumOp, NumberTypes, Finish::kMean>(r, "Mean");
  RegisterReduction<ProdOp, NumberTypes>(r, "Prod");
  RegisterReduction<MaxOp, RealTypes>(r, "Max");
  RegisterReduction<MinOp, RealTypes>(r, "Min");
  RegisterEuclideanNorm(r, NumberTypes());
  r.Register(KernelDef("All"), &MakeReduction<AllOp, TypeList<bool>>);
  r.Register(KernelDef("Any"), &MakeReduction<AnyOp, TypeList<bool>>);
  r.Register(KernelDef("L2Loss").Type<float>("T"), &MakeKernel<L2LossKernel<float>>);
  r.Register(KernelDef("L2Loss").Type<double>("T"), &MakeKernel<L2LossKernel<double>>);
  r.Register(KernelDef("L2Loss").Type<Half>("T"), &MakeKernel<L2LossKernel<Half>>);
  r.Register(KernelDef("L2Loss").Type<BFloat16>("T"), &MakeKernel<L2LossKernel<BFloat16>>);
}

}  // namespace millrace
