// SPDX-License-Identifier: Apache-2.0
// Random tensors of a generator that is a variable (kernels/state/generator_variable.h), and
// numbers that nothing determines.
#include <type_traits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/random/distributions.h"
#include "kernels/random/random_distributions.h"
#include "kernels/random/random_plan.h"
#include "kernels/state/generator_variable.h"

namespace millrace {
namespace {

enum class Kind { kUniform, kNormal, kTruncatedNormal, kFullInt, kUniformInt };

// What a kernel is told of its algorithm: a scalar.
StatusOr<int64_t> ReadAlgorithm(const Tensor& algorithm) {
  if (algorithm.rank() != 0) {
    return errors::InvalidArgument("input 1 (0-based) must have shape [], not ",
                                   algorithm.shape().DebugString());
  }
  return IntScalar(algorithm, "algorithm");
}

template <Kind kKind, typename T>
class StatefulRandomKernel : public Kernel {
 public:
  // The deprecated form has no input that tells the algorithm: the state begins with it.
  explicit StatefulRandomKernel(KernelConstruction& c)
      : Kernel(c), told_(c.def().name() != "StatefulStandardNormal") {}

  Status Compute(KernelContext& ctx) override {
    int64_t algorithm = kPhiloxAlgorithm;
    if (told_) {
      MR_ASSIGN_OR_RETURN(algorithm, ReadAlgorithm(ctx.input(1)));
      MR_RETURN_IF_ERROR(CheckGeneratorAlgorithm(algorithm));
    }
    if constexpr (kKind == Kind::kUniformInt) {
      MR_RETURN_IF_ERROR(CheckBoundShapes(ctx.input(3).shape(), ctx.input(4).shape()));
      MR_RETURN_IF_ERROR(CheckIntRange(ctx.input(3).scalar<T>(), ctx.input(4).scalar<T>()));
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(told_ ? 2 : 1), "shape"));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    const int64_t n = shape.num_elements();
    MR_ASSIGN_OR_RETURN(const Philox philox, TakeFromGenerator(ctx, told_ ? &algorithm : nullptr,
                                                               static_cast<uint64_t>(n)));
    if (n == 0) return OkStatus();
    Fill(ctx, philox, out->data<T>(), n);
    return OkStatus();
  }

 private:
  static void Fill(const KernelContext& ctx, const Philox& philox, T* out, int64_t n) {
    if constexpr (kKind == Kind::kUniform) {
      FillRandom<T>(ctx, UniformDistribution(), philox, out, n);
    } else if constexpr (kKind == Kind::kNormal) {
      FillRandom<T>(ctx, NormalDistribution(), philox, out, n);
    } else if constexpr (kKind == Kind::kTruncatedNormal) {
      FillTruncatedNormal<T>(ctx, philox, out, n);
    } else if constexpr (kKind == Kind::kFullInt) {
      FillRandom<T>(ctx, FullIntDistribution(), philox, out, n);
    } else {
      using U = std::make_unsigned_t<T>;
      const T low = ctx.input(3).scalar<T>(), high = ctx.input(4).scalar<T>();
      const UniformIntDistribution<T> distribution{
          low, static_cast<U>(static_cast<U>(high) - static_cast<U>(low))};
      FillRandom<T>(ctx, distribution, philox, out, n);
    }
  }

  const bool told_;
};

template <typename T>
class NonDeterministicIntsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    FillRandom<T>(ctx, FullIntDistribution(), Philox(RandomId(), RandomId()), out->data<T>(),
                  shape.num_elements());
    return OkStatus();
  }
};

template <Kind kKind, typename... Ts>
void RegisterStateful(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("dtype"), &MakeKernel<StatefulRandomKernel<kKind, Ts>>), ...);
}

template <typename... Ts>
void RegisterNonDeterministic(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("NonDeterministicInts").Type<Ts>("dtype"),
              &MakeKernel<NonDeterministicIntsKernel<Ts>>),
   ...);
}

using WideInts = TypeList<int32_t, int64_t, uint32_t, uint64_t>;

}  // namespace

void RegisterStatefulRandomKernels(KernelRegistry& r) {
  RegisterStateful<Kind::kUniform>(r, "StatefulUniform", FloatTypes());
  RegisterStateful<Kind::kNormal>(r, "StatefulStandardNormal", FloatTypes());
  RegisterStateful<Kind::kNormal>(r, "StatefulStandardNormalV2", FloatTypes());
  RegisterStateful<Kind::kTruncatedNormal>(r, "StatefulTruncatedNormal", FloatTypes());
  RegisterStateful<Kind::kFullInt>(r, "StatefulUniformFullInt", WideInts());
  RegisterStateful<Kind::kUniformInt>(r, "StatefulUniformInt", IndexTypes());
  RegisterNonDeterministic(r, WideInts());
}

}  // namespace millrace
