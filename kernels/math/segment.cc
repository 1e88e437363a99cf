// SPDX-License-Identifier: Apache-2.0
// Reductions of rows that share an id: sorted ids (Segment*) and any ids (UnsortedSegment*).
#include <algorithm>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "kernels/math/segment_plan.h"

namespace millrace {
namespace {

enum class SegmentOp { kSum, kMean, kProd, kMin, kMax };

template <SegmentOp kOp, typename T>
T Combine(T a, T b) {
  using C = ComputeType<T>;
  const C x = static_cast<C>(a), y = static_cast<C>(b);
  if constexpr (kOp == SegmentOp::kMax) {
    return x >= y ? a : b;
  } else if constexpr (kOp == SegmentOp::kMin) {
    return x <= y ? a : b;
  } else if constexpr (kOp == SegmentOp::kProd && std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else if constexpr (kOp == SegmentOp::kProd) {
    return static_cast<T>(x * y);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return static_cast<T>(x + y);
  }
}

// What a segment without rows holds in the unsorted forms.
template <SegmentOp kOp, typename T>
T EmptyValue() {
  using C = ComputeType<T>;
  if constexpr (kOp == SegmentOp::kMax && std::is_same_v<T, Half>) {
    return Half(-65504.0f);
  } else if constexpr (kOp == SegmentOp::kMax && std::is_same_v<T, BFloat16>) {
    return BFloat16::FromBits(0xff7f);
  } else if constexpr (kOp == SegmentOp::kMax) {
    return std::numeric_limits<T>::lowest();
  } else if constexpr (kOp == SegmentOp::kMin && std::is_same_v<T, Half>) {
    return Half(65504.0f);
  } else if constexpr (kOp == SegmentOp::kMin && std::is_same_v<T, BFloat16>) {
    return BFloat16::FromBits(0x7f7f);
  } else if constexpr (kOp == SegmentOp::kMin) {
    return std::numeric_limits<T>::max();
  } else if constexpr (kOp == SegmentOp::kProd) {
    return static_cast<T>(C(1));
  } else {
    return static_cast<T>(C(0));
  }
}

template <typename C>
C Count(int64_t rows) {
  if constexpr (kIsComplex<C>) {
    return C(static_cast<typename C::value_type>(rows));
  } else {
    return static_cast<C>(rows);
  }
}

template <SegmentOp kOp, typename T>
void CombineRows(const T* in, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = Combine<kOp>(out[i], in[i]);
}

template <SegmentOp kOp, typename T>
class UnsortedSegmentKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &ids = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Shape shape,
                        PlanUnsortedSegments(data.shape(), ids.shape(), ctx.input(2)));
    const int64_t segments = shape.dim(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    std::fill_n(out->data<T>(), shape.num_elements(), EmptyValue<kOp, T>());
    const int64_t rows = ids.num_elements();
    if (data.num_elements() == 0) return OkStatus();  // TensorFlow looks at no id then
    const int64_t run = data.num_elements() / rows;
    Status status;
    const bool known =
        DispatchType(TypeList<int16_t, int32_t, int64_t>(), ids.dtype(), [&]<typename I>() {
          for (int64_t i = 0; i < rows; ++i) {
            const auto id = static_cast<int64_t>(ids.data<I>()[i]);
            if (id < 0) continue;
            if (id >= segments) {
              status = errors::InvalidArgument("segment_ids[", i, "] = ", id,
                                               " is out of range [0, ", segments, ")");
              return;
            }
            CombineRows<kOp>(data.data<T>() + i * run, out->data<T>() + id * run, run);
          }
        });
    if (!known) return errors::Unimplemented("segment ids of type ", DataTypeName(ids.dtype()));
    return status;
  }
};

// Ids are sorted; gaps between them become rows of zeros, or ones where rows are multiplied.
template <SegmentOp kOp, typename T>
class SegmentKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& data = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckSegments(data.shape(), ctx.input(1).shape()));
    MR_ASSIGN_OR_RETURN(const Dims ids, IntVector(ctx.input(1), "segment_ids", true));
    const auto rows = static_cast<int64_t>(ids.size());
    for (int64_t i = 0; i < rows; ++i) {
      MR_RETURN_IF_ERROR(CheckSegmentId(ids[i], i == 0 ? -1 : ids[i - 1]));
    }
    MR_ASSIGN_OR_RETURN(const Shape shape,
                        SegmentsShape(data.shape(), rows == 0 ? -1 : ids[rows - 1]));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    T* dst = out->data<T>();
    using C = ComputeType<T>;
    std::fill_n(dst, shape.num_elements(), static_cast<T>(C(kOp == SegmentOp::kProd ? 1 : 0)));
    const int64_t run = rows == 0 ? 0 : data.num_elements() / rows;
    for (int64_t i = 0; i < rows;) {
      T* row = dst + ids[i] * run;
      const int64_t first = i;
      std::copy_n(data.data<T>() + i * run, run, row);
      for (++i; i < rows && ids[i] == ids[first]; ++i) {
        CombineRows<kOp>(data.data<T>() + i * run, row, run);
      }
      if constexpr (kOp == SegmentOp::kMean) {
        for (int64_t k = 0; k < run; ++k) {
          row[k] = static_cast<T>(static_cast<C>(row[k]) / Count<C>(i - first));
        }
      }
    }
    return OkStatus();
  }
};

template <template <SegmentOp, typename> class K, SegmentOp kOp, typename... Ts>
void RegisterSegment(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("T"), &MakeKernel<K<kOp, Ts>>), ...);
}

}  // namespace

void RegisterSegmentKernels(KernelRegistry& r) {
  RegisterSegment<UnsortedSegmentKernel, SegmentOp::kSum>(r, "UnsortedSegmentSum", NumberTypes());
  RegisterSegment<UnsortedSegmentKernel, SegmentOp::kProd>(r, "UnsortedSegmentProd", NumberTypes());
  RegisterSegment<UnsortedSegmentKernel, SegmentOp::kMin>(r, "UnsortedSegmentMin", RealTypes());
  RegisterSegment<UnsortedSegmentKernel, SegmentOp::kMax>(r, "UnsortedSegmentMax", RealTypes());
  RegisterSegment<SegmentKernel, SegmentOp::kSum>(r, "SegmentSum", NumberTypes());
  RegisterSegment<SegmentKernel, SegmentOp::kMean>(r, "SegmentMean", NumberTypes());
  RegisterSegment<SegmentKernel, SegmentOp::kProd>(r, "SegmentProd", NumberTypes());
  RegisterSegment<SegmentKernel, SegmentOp::kMin>(r, "SegmentMin", RealTypes());
  RegisterSegment<SegmentKernel, SegmentOp::kMax>(r, "SegmentMax", RealTypes());
}

}  // namespace millrace
