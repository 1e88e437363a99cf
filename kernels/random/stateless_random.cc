// SPDX-License-Identifier: Apache-2.0
// Random tensors that are a function of their operands: a seed, or a Philox key and counter.
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/random/random_distributions.h"
#include "kernels/random/random_order.h"
#include "kernels/random/random_plan.h"

namespace millrace {
namespace {

// Inputs of the first form: shape, seed, ...; of the second: shape, key, counter, alg, ..., where
// the shape may be a value instead.
StatusOr<Philox> GeneratorFromInputs(const KernelContext& ctx, bool has_key) {
  if (!has_key) {
    MR_ASSIGN_OR_RETURN(const KeyCounter at, KeyFromSeed(ctx.input(1)));
    return at.Generator();
  }
  MR_ASSIGN_OR_RETURN(const KeyCounter at,
                      ReadKeyCounter(ctx.input(1), ctx.input(2), ctx.input(3)));
  return at.Generator();
}

enum class Kind { kUniform, kNormal, kTruncatedNormal, kFullInt, kUniformInt };

template <Kind kKind, bool kHasKey, typename T>
class StatelessRandomKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(const Philox philox, GeneratorFromInputs(ctx, kHasKey));
    const int64_t n = shape.num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (n == 0) return OkStatus();
    T* dst = out->data<T>();
    if constexpr (kKind == Kind::kUniform) {
      FillRandom<T>(ctx, UniformDistribution(), philox, dst, n);
    } else if constexpr (kKind == Kind::kNormal) {
      FillRandom<T>(ctx, NormalDistribution(), philox, dst, n);
    } else if constexpr (kKind == Kind::kTruncatedNormal) {
      FillTruncatedNormal<T>(ctx, philox, dst, n);
    } else if constexpr (kKind == Kind::kFullInt) {
      FillRandom<T>(ctx, FullIntDistribution(), philox, dst, n);
    } else {
      const Tensor &low_input = ctx.input(kHasKey ? 4 : 2),
                   &high_input = ctx.input(kHasKey ? 5 : 3);
      if (low_input.rank() != 0 || high_input.rank() != 0) {
        return errors::InvalidArgument("minval and maxval must be scalars");
      }
      const T low = low_input.scalar<T>(), high = high_input.scalar<T>();
      MR_RETURN_IF_ERROR(CheckIntRange(low, high));
      using U = std::make_unsigned_t<T>;
      const UniformIntDistribution<T> distribution{
          low, static_cast<U>(static_cast<U>(high) - static_cast<U>(low))};
      FillRandom<T>(ctx, distribution, philox, dst, n);
    }
    return OkStatus();
  }
};

class GetKeyCounterKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const KeyCounter at, KeyFromSeed(ctx.input(0)));
    ctx.SetOutput(0, Tensor::FromValues<uint64_t>({at.key}));
    ctx.SetOutput(1, Tensor::FromValues<uint64_t>({0, at.counter_high}));
    if (num_outputs() == 3) ctx.SetOutput(2, Tensor::Scalar<int32_t>(kPhiloxAlgorithm));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }
};

class GetAlgKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(kPhiloxAlgorithm));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }
};

// The rows of a value in another order.
class StatelessShuffleKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Philox philox, GeneratorFromInputs(ctx, /*has_key=*/true));
    const Tensor& value = ctx.input(0);
    if (value.rank() == 0 || value.num_elements() == 0 || value.dim(0) == 1) {
      ctx.SetOutput(0, value);
      return OkStatus();
    }
    const int64_t rows = value.dim(0), width = value.num_elements() / rows;
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> order, OrderFrom(philox, rows));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, value.shape()));
    for (int64_t i = 0; i < rows; ++i) {
      CopyRange(value, order[static_cast<std::size_t>(i)] * width, out, i * width, width);
    }
    return OkStatus();
  }
};

template <Kind kKind, bool kHasKey, typename... Ts>
void RegisterStateless(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("dtype"),
              &MakeKernel<StatelessRandomKernel<kKind, kHasKey, Ts>>),
   ...);
}

using WideInts = TypeList<int32_t, int64_t, uint32_t, uint64_t>;

}  // namespace

void RegisterStatelessRandomKernels(KernelRegistry& r) {
  RegisterStateless<Kind::kUniform, false>(r, "StatelessRandomUniform", FloatTypes());
  RegisterStateless<Kind::kNormal, false>(r, "StatelessRandomNormal", FloatTypes());
  RegisterStateless<Kind::kTruncatedNormal, false>(r, "StatelessTruncatedNormal", FloatTypes());
  RegisterStateless<Kind::kUniformInt, false>(r, "StatelessRandomUniformInt", IndexTypes());
  RegisterStateless<Kind::kUniform, true>(r, "StatelessRandomUniformV2", FloatTypes());
  RegisterStateless<Kind::kNormal, true>(r, "StatelessRandomNormalV2", FloatTypes());
  RegisterStateless<Kind::kTruncatedNormal, true>(r, "StatelessTruncatedNormalV2", FloatTypes());
  RegisterStateless<Kind::kUniformInt, true>(r, "StatelessRandomUniformIntV2", WideInts());
  RegisterStateless<Kind::kFullInt, true>(r, "StatelessRandomUniformFullIntV2", WideInts());
  RegisterStateless<Kind::kFullInt, false>(r, "StatelessRandomUniformFullInt", WideInts());
  RegisterCpu<GetKeyCounterKernel>(r, "StatelessRandomGetKeyCounter");
  RegisterCpu<GetKeyCounterKernel>(r, "StatelessRandomGetKeyCounterAlg");
  RegisterCpu<StatelessShuffleKernel>(r, "StatelessShuffle");
  RegisterCpu<GetAlgKernel>(r, "StatelessRandomGetAlg");
}

}  // namespace millrace
