// SPDX-License-Identifier: Apache-2.0
// Rows of a value replaced, or added to: of a copy unless nobody else has the value.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

enum class Change { kUpdate, kAdd, kSub };

// Inputs: x, the numbers of rows, and these rows.
template <Change kChange>
class InPlaceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const Tensor& v = ctx.input(2);
    MR_RETURN_IF_ERROR(Check(shape, ctx.input(1).shape(), v.shape()));
    MR_ASSIGN_OR_RETURN(Dims rows, IntVector(ctx.input(1), "i"));
    const DataType dtype = v.dtype();
    const void* const source = ctx.input(0).raw_data();
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    const int64_t count = shape.dim(0);
    if (count == 0) return OkStatus();
    // Numbers go round, from both ends.
    for (int64_t& row : rows) row = (row % count + count) % count;
    const int64_t width = shape.num_elements() / count;
    const auto change = [&]<typename T>() {
      T* const to = static_cast<T*>(out->raw_data());
      if (to != source) std::copy_n(static_cast<const T*>(source), shape.num_elements(), to);
      const T* from = static_cast<const T*>(v.raw_data());
      for (const int64_t row : rows) {
        for (int64_t j = 0; j < width; ++j) Combine(&to[row * width + j], *from++);
      }
    };
    bool known;
    if constexpr (kChange == Change::kUpdate) {
      known = DispatchMovable(dtype, change);
    } else {
      known = DispatchType(NumberTypes(), dtype, change);
    }
    if (known) return OkStatus();
    return errors::InvalidArgument("Unsupported data type: ", DataTypeName(dtype));
  }

 private:
  template <typename T>
  static void Combine(T* to, const T& from) {
    if constexpr (kChange == Change::kUpdate) {
      *to = from;
    } else if constexpr (std::is_integral_v<T>) {  // without overflow
      const auto a = static_cast<uint64_t>(*to), b = static_cast<uint64_t>(from);
      *to = static_cast<T>(kChange == Change::kAdd ? a + b : a - b);
    } else {
      using C = ComputeType<T>;
      const C a = static_cast<C>(*to), b = static_cast<C>(from);
      *to = static_cast<T>(kChange == Change::kAdd ? a + b : a - b);
    }
  }

  static Status Check(const Shape& x, const Shape& i, const Shape& v) {
    if (i.rank() != 1) return errors::InvalidArgument("i must be a vector. ", i.DebugString());
    if (x.rank() != v.rank()) {
      return errors::InvalidArgument("x and v shape doesn't match (ranks differ): ",
                                     x.DebugString(), " vs. ", v.DebugString());
    }
    if (x.rank() == 0) return errors::InvalidArgument("x must have rows, but is a scalar");
    for (int d = 1; d < x.rank(); ++d) {
      if (x.dim(d) == v.dim(d)) continue;
      return errors::InvalidArgument("x and v shape doesn't match at index ", d, " : ",
                                     x.DebugString(), " vs. ", v.DebugString());
    }
    if (i.dim(0) == v.dim(0)) return OkStatus();
    return errors::InvalidArgument("i and x shape doesn't match at index 0: ", i.DebugString(),
                                   " vs. ", v.DebugString());
  }
};

class DeepCopyKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, x.shape()));
    CopyRange(x, 0, out, 0, x.num_elements());
    return OkStatus();
  }
};

}  // namespace

void RegisterInPlaceKernels(KernelRegistry& r) {
  RegisterCpu<InPlaceKernel<Change::kUpdate>>(r, "InplaceUpdate");
  RegisterCpu<InPlaceKernel<Change::kAdd>>(r, "InplaceAdd");
  RegisterCpu<InPlaceKernel<Change::kSub>>(r, "InplaceSub");
  RegisterCpu<DeepCopyKernel>(r, "DeepCopy");
}

}  // namespace millrace
