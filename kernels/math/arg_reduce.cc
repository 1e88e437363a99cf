// SPDX-License-Identifier: Apache-2.0
// The position of the largest or smallest element along an axis; the first of equals. A NaN is
// neither, wherever it stands; among NaNs and the worst of all values the first element is named.
#include <limits>
#include <type_traits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "kernels/math/reduction_plan.h"

namespace millrace {
namespace {

using ArgFn = int64_t (*)(const void* in, const AxisLines& view, int64_t flat);

template <typename T, bool kMax>
int64_t FindExtreme(const void* in_ptr, const AxisLines& v, int64_t flat) {
  using C = ComputeType<T>;
  const T* in =
      static_cast<const T*>(in_ptr) + (flat / v.inner) * v.size * v.inner + flat % v.inner;
  int64_t best = 0;
  C value = static_cast<C>(in[0]);
  if constexpr (std::is_floating_point_v<C>) {
    constexpr C kInfinity = std::numeric_limits<C>::infinity();
    if (value != value) value = kMax ? -kInfinity : kInfinity;
  }
  for (int64_t k = 1; k < v.size; ++k) {
    const C x = static_cast<C>(in[k * v.inner]);
    if (kMax ? x > value : x < value) {
      value = x;
      best = k;
    }
  }
  return best;
}

class ArgKernel : public Kernel {
 public:
  ArgKernel(KernelConstruction& c, ArgFn fn)
      : Kernel(c), fn_(fn), out_type_(BaseType(c.output_types()[0])) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const AxisLines view, PlanArg(in.shape(), ctx.input(1)));
    Shape shape = in.shape();
    shape.RemoveDim(view.axis);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const void* src = in.raw_data();
    bool known = false;
    DispatchType(TypeList<int64_t, int32_t, int16_t, uint16_t>(), out_type_, [&]<typename O>() {
      known = true;
      O* dst = out->data<O>();
      ctx.ParallelFor(shape.num_elements(), static_cast<double>(view.size),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          dst[i] = static_cast<O>(fn_(src, view, i));
                        }
                      });
    });
    if (!known) return errors::Unimplemented("output type ", DataTypeName(out_type_));
    return OkStatus();
  }

 private:
  const ArgFn fn_;
  const DataType out_type_;
};

using ArgTypes = JoinTypes<RealTypes, TypeList<bool>>;

template <bool kMax>
std::unique_ptr<Kernel> MakeArg(KernelConstruction& c) {
  ArgFn fn = nullptr;
  DispatchType(ArgTypes(), BaseType(c.input_types()[0]),
               [&]<typename T>() { fn = &FindExtreme<T, kMax>; });
  if (fn == nullptr) c.SetError(NoLoopFor(c));
  return std::make_unique<ArgKernel>(c, fn);
}

}  // namespace

void RegisterArgReduceKernels(KernelRegistry& r) {
  r.Register(KernelDef("ArgMax").Types("T", DataTypesOf(ArgTypes())), &MakeArg<true>);
  r.Register(KernelDef("ArgMin").Types("T", DataTypesOf(ArgTypes())), &MakeArg<false>);
}

}  // namespace millrace
