// SPDX-License-Identifier: Apache-2.0
// Picking rows by index: Gather, GatherV2 (any axis, batch dimensions), GatherNd.
#include <algorithm>
#include <atomic>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/bad_indices.h"
#include "kernels/array/gather_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/slice_indices.h"
#include "kernels/common/strided_copy.h"
#include "kernels/common/variant.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// As DispatchMovable, for elements of variants too.
template <typename F>
bool DispatchGathered(DataType dtype, F&& f) {
  if (dtype == kVariant) return f.template operator()<RefPtr<RefCounted>>(), true;
  return DispatchMovable(dtype, f);
}

class GatherKernel : public Kernel {
 public:
  explicit GatherKernel(KernelConstruction& c)
      : Kernel(c), batch_dims_(c.attrs().GetOr<int64_t>("batch_dims", 0)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &params = ctx.input(0), &indices = ctx.input(1);
    int64_t axis = 0;
    if (ctx.num_inputs() == 3) {
      MR_ASSIGN_OR_RETURN(axis, IntScalar(ctx.input(2), "axis"));
    }
    MR_ASSIGN_OR_RETURN(const GatherPlan plan,
                        PlanGather(params.shape(), indices.shape(), axis, batch_dims_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    if (out->num_elements() == 0) return OkStatus();  // rows of no width need no place
    std::atomic<int64_t> bad{-1};
    bool known = false;
    DispatchGathered(params.dtype(), [&]<typename T>() {
      known = DispatchType(IndexTypes(), indices.dtype(), [&]<typename I>() {
        CopyRows(ctx, static_cast<const T*>(params.raw_data()), indices.data<I>(),
                 static_cast<T*>(out->raw_data()), plan, &bad);
      });
    });
    if (!known) return errors::Unimplemented("Gather of ", DataTypeName(params.dtype()));
    if (const int64_t at = bad.load(); at >= 0) {
      const int64_t value =
          indices.dtype() == kInt32 ? indices.data<int32_t>()[at] : indices.data<int64_t>()[at];
      return BadIndex(indices.shape(), at, value, plan.limit);
    }
    return OkStatus();
  }

 private:
  template <typename T, typename I>
  static void CopyRows(const KernelContext& ctx, const T* params, const I* indices, T* out,
                       const GatherPlan& r, std::atomic<int64_t>* bad) {
    const int64_t total = r.batches * r.outer * r.per_batch;
    const double cost = 5 + 0.1 * static_cast<double>(r.inner * sizeof(T));
    ctx.ParallelFor(total, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t block = i / r.per_batch;  // over batches and outer
        const int64_t at = block / r.outer * r.per_batch + i % r.per_batch;
        // Read once, so that a writer elsewhere cannot change it after the check.
        const auto row = static_cast<int64_t>(indices[at]);
        if (row < 0 || row >= r.limit) {
          bad->store(at, std::memory_order_relaxed);
          return;
        }
        std::copy_n(params + (block * r.limit + row) * r.inner, r.inner, out + i * r.inner);
      }
    });
  }

  const int64_t batch_dims_;
};

class GatherNdKernel : public Kernel {
 public:
  explicit GatherNdKernel(KernelConstruction& c) : Kernel(c), ignore_bad_(IgnoresBadIndices(c)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &params = ctx.input(0), &indices = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const GatherNdPlan plan, PlanGatherNd(params.shape(), indices.shape()));
    const int64_t depth = plan.depth, count = plan.count, inner = plan.inner;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    std::atomic<int64_t> bad{-1};
    bool known_index = false;
    const bool known = DispatchGathered(params.dtype(), [&]<typename T>() {
      const T* src = static_cast<const T*>(params.raw_data());
      T* dst = static_cast<T*>(out->raw_data());
      known_index = DispatchType(FullIndexTypes(), indices.dtype(), [&]<typename I>() {
        const I* index = indices.data<I>();
        ctx.ParallelFor(count, 10 + 0.1 * static_cast<double>(inner * sizeof(T)),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            int64_t flat = 0;
                            for (int k = 0; k < depth; ++k) {
                              const auto x = static_cast<int64_t>(index[i * depth + k]);
                              if (x < 0 || x >= params.dim(k)) {
                                flat = -1;
                                break;
                              }
                              flat = flat * params.dim(k) + x;
                            }
                            if (flat >= 0) {
                              std::copy_n(src + flat * inner, inner, dst + i * inner);
                            } else if (ignore_bad_) {
                              std::fill_n(dst + i * inner, inner, T());
                            } else {
                              bad.store(i, std::memory_order_relaxed);
                              return;
                            }
                          }
                        });
      });
    });
    if (!known) return errors::Unimplemented("GatherNd of ", DataTypeName(params.dtype()));
    if (!known_index) {
      return errors::Unimplemented("GatherNd by indices of type ", DataTypeName(indices.dtype()));
    }
    const int64_t at = bad.load();
    return at < 0 ? OkStatus() : BadSlice(indices, at, "param shape", params.shape());
  }

 private:
  using FullIndexTypes = TypeList<int16_t, int32_t, int64_t>;

  const bool ignore_bad_;
};

}  // namespace

void RegisterGatherKernels(KernelRegistry& r) {
  RegisterCpu<GatherKernel>(r, "Gather");
  RegisterCpu<GatherKernel>(r, "GatherV2");
  RegisterCpu<GatherNdKernel>(r, "GatherNd");
}

}  // namespace millrace
