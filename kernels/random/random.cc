// SPDX-License-Identifier: Apache-2.0
// Random tensors with TensorFlow's bits: Philox 4x32-10, keyed by the op's two seeds.
//
// An op owns one generator. Each call takes the samples it may need at most (256 blocks of
// four words per output) and skips the generator past them, so that what one call draws does
// not depend on how many threads compute it, nor on other ops.
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/shared_philox.h"
#include "kernels/kernel_context.h"
#include "kernels/random/random_distributions.h"
#include "kernels/random/random_order.h"
#include "kernels/random/random_plan.h"

namespace millrace {
namespace {

enum class Kind { kUniform, kNormal, kTruncatedNormal };

template <Kind kKind, typename T>
class RandomKernel : public Kernel {
 public:
  explicit RandomKernel(KernelConstruction& c) : Kernel(c), generator_(c) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t n = shape.num_elements();
    T* dst = out->data<T>();
    const Philox philox = generator_.Reserve(n * kReservedPerOutput);
    if constexpr (kKind == Kind::kUniform) {
      FillRandom<T>(ctx, UniformDistribution(), philox, dst, n);
    } else if constexpr (kKind == Kind::kNormal) {
      FillRandom<T>(ctx, NormalDistribution(), philox, dst, n);
    } else {
      FillTruncatedNormal<T>(ctx, philox, dst, n);
    }
    return OkStatus();
  }

 private:
  SharedPhilox generator_;
};

template <typename T>
class RandomUniformIntKernel : public Kernel {
 public:
  explicit RandomUniformIntKernel(KernelConstruction& c) : Kernel(c), generator_(c) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_RETURN_IF_ERROR(CheckBoundShapes(ctx.input(1).shape(), ctx.input(2).shape()));
    const int64_t n = shape.num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (n == 0) return OkStatus();
    const T low = ctx.input(1).scalar<T>(), high = ctx.input(2).scalar<T>();
    MR_RETURN_IF_ERROR(CheckIntRange(low, high));
    using U = std::make_unsigned_t<T>;
    const UniformIntDistribution<T> distribution{
        low, static_cast<U>(static_cast<U>(high) - static_cast<U>(low))};
    FillRandom<T>(ctx, distribution, generator_.Reserve(n * kReservedPerOutput), out->data<T>(), n);
    return OkStatus();
  }

 private:
  SharedPhilox generator_;
};

// Rows of the first axis in random order.
class RandomShuffleKernel : public Kernel {
 public:
  explicit RandomShuffleKernel(KernelConstruction& c) : Kernel(c), generator_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    // Rows that hold nothing look the same in any order.
    if (in.rank() == 0 || in.num_elements() <= 1 || in.dim(0) <= 1) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    const int64_t n = in.dim(0);
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> order, DrawOrder(&generator_, n));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    const int64_t row = in.num_elements() / n;
    const bool movable = DispatchMovable(in.dtype(), [&]<typename T>() {
      const T* src = static_cast<const T*>(in.raw_data());
      T* dst = static_cast<T*>(out->raw_data());
      for (int64_t i = 0; i < n; ++i) std::copy_n(src + order[i] * row, row, dst + i * row);
    });
    if (!movable) return errors::Unimplemented("RandomShuffle of ", DataTypeName(in.dtype()));
    return OkStatus();
  }

 private:
  SharedPhilox generator_;
};

template <Kind kKind, typename... Ts>
void RegisterFloats(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).HostMemory("shape").Type<Ts>("dtype"),
              &MakeKernel<RandomKernel<kKind, Ts>>),
   ...);
}

}  // namespace

void RegisterRandomKernels(KernelRegistry& r) {
  RegisterFloats<Kind::kUniform>(r, "RandomUniform", FloatTypes());
  RegisterFloats<Kind::kNormal>(r, "RandomStandardNormal", FloatTypes());
  RegisterFloats<Kind::kTruncatedNormal>(r, "TruncatedNormal", FloatTypes());
  r.Register(KernelDef("RandomUniformInt").HostMemory("shape").Type<int32_t>("Tout"),
             &MakeKernel<RandomUniformIntKernel<int32_t>>);
  r.Register(KernelDef("RandomUniformInt").HostMemory("shape").Type<int64_t>("Tout"),
             &MakeKernel<RandomUniformIntKernel<int64_t>>);
  RegisterCpu<RandomShuffleKernel>(r, "RandomShuffle");
}

}  // namespace millrace
