// SPDX-License-Identifier: Apache-2.0
// The largest of a row, and whether a target is among them.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/isa.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/top_k_plan.h"

namespace millrace {
namespace {

// Of equal values the first comes first. A NaN is larger than all else, as on GPUs.
class TopKKernel : public Kernel {
 public:
  explicit TopKKernel(KernelConstruction& c)
      : Kernel(c), index_type_(BaseType(c.output_types()[1])) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const TopKPlan plan, PlanTopK(input.shape(), ctx.input(1), index_type_));
    const int64_t rows = plan.rows, columns = plan.columns, k = plan.k;
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(0, plan.out));
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(1, plan.out));
    if (plan.out.num_elements() == 0) return OkStatus();
    DispatchType(RealTypes(), input.dtype(), [&]<typename T>() {
      ctx.ParallelFor(rows, 5.0 * static_cast<double>(columns), [&](int64_t begin, int64_t end) {
        std::vector<int64_t> order(static_cast<std::size_t>(columns));
        for (int64_t r = begin; r < end; ++r) {
          const T* row = input.data<T>() + r * columns;
          std::iota(order.begin(), order.end(), int64_t{0});
          std::partial_sort(order.begin(), order.begin() + k, order.end(),
                            [row](int64_t a, int64_t b) {
                              if (IsLarger(row[a], row[b])) return true;
                              return !IsLarger(row[b], row[a]) && a < b;
                            });
          for (int64_t i = 0; i < k; ++i) {
            values->data<T>()[r * k + i] = row[order[i]];
            SetIndex(indices, r * k + i, order[i]);
          }
        }
      });
    });
    return OkStatus();
  }

 private:
  template <typename T>
  static bool IsLarger(const T& a, const T& b) {
    const auto x = static_cast<ComputeType<T>>(a), y = static_cast<ComputeType<T>>(b);
    if constexpr (kIsFloating<T>) {
      if (x != x || y != y) return x != x && y == y;
    }
    return y < x;
  }
  static void SetIndex(Tensor* indices, int64_t i, int64_t value) {
    DispatchType(TypeList<int16_t, int32_t, int64_t>(), indices->dtype(),
                 [&]<typename T>() { indices->data<T>()[i] = static_cast<T>(value); });
  }

  const DataType index_type_;
};

// How many of a row are larger than `target`; -1 if one of them is not finite.
struct RankLoop {
  static MR_ALWAYS_INLINE int64_t Run(const float* row, float target, int64_t n) {
    constexpr int64_t kBlock = int64_t{1} << 20;  // counts of 32 bits vectorise better
    constexpr float kLargest = std::numeric_limits<float>::max();
    int64_t larger = 0;
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t end = std::min(n, i + kBlock);
      int32_t above = 0, finite = 0;
      for (int64_t j = i; j < end; ++j) {
        const float x = row[j], size = x < 0.0f ? -x : x;
        above += x > target ? 1 : 0;
        finite += size <= kLargest ? 1 : 0;
      }
      if (finite != end - i) return -1;
      larger += above;
    }
    return larger;
  }
};

// True where fewer than k predictions are larger than the target's; ties all count as in.
class InTopKKernel : public Kernel {
 public:
  // InTopKV2 has k as an input.
  explicit InTopKKernel(KernelConstruction& c)
      : Kernel(c), k_(c.input_types().size() == 2 ? c.attr<int64_t>("k") : 0) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& predictions = ctx.input(0);
    const Tensor& targets = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckInTopK(predictions.shape(), targets.shape()));
    int64_t k = k_;
    if (ctx.num_inputs() == 3) {
      MR_ASSIGN_OR_RETURN(k, IntScalar(ctx.input(2), "k"));
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, targets.shape()));
    const int64_t classes = predictions.dim(1);
    const float* values = predictions.data<float>();
    bool* in = out->data<bool>();
    const auto rank = BestVersion<RankLoop>();
    ctx.ParallelFor(
        targets.dim(0), 0.3 * static_cast<double>(classes), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const int64_t target =
                targets.dtype() == kInt32 ? targets.data<int32_t>()[r] : targets.data<int64_t>()[r];
            const bool named = target >= 0 && target < classes;
            const float* row = values + r * classes;
            const int64_t larger = named ? rank(row, row[target], classes) : -1;
            in[r] = larger >= 0 && larger < k;
          }
        });
    return OkStatus();
  }

 private:
  const int64_t k_;
};

}  // namespace

void RegisterTopKKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("TopKV2").Types("T", DataTypesOf(RealTypes())),
                    MakeKernel<TopKKernel>);
  registry.Register(KernelDef("InTopK"), MakeKernel<InTopKKernel>);
  registry.Register(KernelDef("InTopKV2"), MakeKernel<InTopKKernel>);
}

}  // namespace millrace
