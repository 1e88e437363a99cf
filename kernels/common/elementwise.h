// The kernels under all elementwise ops: they find the shapes, the output's memory and the
// threads; a loop chosen once, by op and element type, does the work.
#ifndef KERNELS_COMMON_ELEMENTWISE_H_
#define KERNELS_COMMON_ELEMENTWISE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/isa.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"

// The next loop has no dependence between its iterations although out may be an input.
#if defined(__clang__)
#define MR_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define MR_IVDEP _Pragma("GCC ivdep")
#endif

namespace millrace {

// out[i] = op(in[i]); `out` may be `in` when elements are of one size.
using UnaryLoopFn = void (*)(const void* in, void* out, int64_t n);

// out[i] = op(a[i * a_stride], b[i * b_stride]); strides are 0 or 1; `out` may be an operand
// of stride 1. False if an operand is not valid for the op; outputs are then undefined.
using BinaryLoopFn = bool (*)(const void* a, int64_t a_stride, const void* b, int64_t b_stride,
                              void* out, int64_t n);

class UnaryKernel : public Kernel {
 public:
  // `cost`: nanoseconds per element.
  UnaryKernel(const KernelConstruction& c, UnaryLoopFn loop, ScalarFn scalar, double cost)
      : Kernel(c), loop_(loop), scalar_(scalar), cost_(cost) {}
  Status Compute(KernelContext& ctx) override;
  ScalarFn scalar_function() const override { return scalar_; }
  UnaryLoopFn loop() const { return loop_; }

 private:
  const UnaryLoopFn loop_;
  const ScalarFn scalar_;
  const double cost_;
};

class BinaryKernel : public Kernel {
 public:
  // `refusal` is the error when the loop returns false. If not `broadcasts`, operands of
  // different shapes are an error.
  BinaryKernel(const KernelConstruction& c, BinaryLoopFn loop, ScalarFn scalar, double cost,
               Status refusal, bool broadcasts)
      : Kernel(c),
        loop_(loop),
        scalar_(scalar),
        cost_(cost),
        refusal_(std::move(refusal)),
        broadcasts_(broadcasts) {}
  Status Compute(KernelContext& ctx) override;
  ScalarFn scalar_function() const override { return scalar_; }
  BinaryLoopFn loop() const { return loop_; }

 private:
  const BinaryLoopFn loop_;
  const ScalarFn scalar_;
  const double cost_;
  const Status refusal_;
  const bool broadcasts_;
};

// --- Loops from functors ------------------------------------------------------------------
// A unary functor has `static constexpr double kCost` and `template <T> static R Do(T)`, a
// binary one `Do(T, T)`; T is the compute type. A binary functor that refuses some second
// operands has `template <T> static bool Valid(T b)` and `Refusal()`, the error; one whose
// steps round to a 16-bit type in between has `template <T> static T DoSmall(T, T)`.

template <typename Op, typename T>
struct UnaryLoop {
  static MR_ALWAYS_INLINE void Run(const void* in_ptr, void* out_ptr, int64_t n) {
    using C = ComputeType<T>;
    using R = decltype(Op::Do(std::declval<C>()));
    using Out = std::conditional_t<std::is_same_v<R, C>, T, R>;
    const T* in = static_cast<const T*>(in_ptr);
    Out* out = static_cast<Out*>(out_ptr);
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(static_cast<C>(in[i])));
  }
};

template <typename Op, typename T>
constexpr bool ChecksOperand() {
  return requires(ComputeType<T> b) { Op::Valid(b); };
}

template <typename Op, typename T>
auto ApplyBinary(const T& a, const T& b) {
  using C = ComputeType<T>;
  if constexpr (kIsSmallFloat<T> && requires { Op::DoSmall(a, b); }) {
    return Op::DoSmall(a, b);
  } else {
    return Op::Do(static_cast<C>(a), static_cast<C>(b));
  }
}

// Types that matter for speed get loops for each instruction set and each way to broadcast.
template <typename T>
inline constexpr bool kIsFastType = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                                    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;

template <typename Op, typename T>
struct BinaryLoop {
  static MR_ALWAYS_INLINE bool Run(const void* a_ptr, int64_t a_stride, const void* b_ptr,
                                   int64_t b_stride, void* out_ptr, int64_t n) {
    using C = ComputeType<T>;
    using R = decltype(Op::Do(std::declval<C>(), std::declval<C>()));
    using Out = std::conditional_t<std::is_same_v<R, C>, T, R>;
    const T* a = static_cast<const T*>(a_ptr);
    const T* b = static_cast<const T*>(b_ptr);
    Out* out = static_cast<Out*>(out_ptr);
    if constexpr (ChecksOperand<Op, T>()) {
      const int64_t count = b_stride == 0 ? (n > 0 ? 1 : 0) : n;
      for (int64_t i = 0; i < count; ++i) {
        if (!Op::Valid(static_cast<C>(b[i]))) return false;
      }
    }
    if constexpr (kIsFastType<T>) {
      if (a_stride == 1 && b_stride == 1) {
        MR_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(a[i], b[i]));
        return true;
      }
      if (a_stride == 0 && b_stride == 1) {
        const T x = *a;
        MR_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(x, b[i]));
        return true;
      }
      if (a_stride == 1 && b_stride == 0) {
        const T y = *b;
        MR_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(a[i], y));
        return true;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<Out>(ApplyBinary<Op, T>(a[i * a_stride], b[i * b_stride]));
    }
    return true;
  }
};

template <typename Loop, typename T>
auto LoopFor() {
  if constexpr (kIsFastType<T>) {
    return BestVersion<Loop>();
  } else {
    return &IsaVersions<Loop>::Base;
  }
}

// The loop over one element.
template <typename Op, typename T>
bool UnaryScalar(const void* a, const void*, void* out) {
  UnaryLoop<Op, T>::Run(a, out, 1);
  return true;
}
template <typename Op, typename T>
bool BinaryScalar(const void* a, const void* b, void* out) {
  return BinaryLoop<Op, T>::Run(a, 1, b, 1, out, 1);
}
// Elements that are objects are left to Compute.
template <typename T>
constexpr ScalarFn IfPlain(ScalarFn scalar) {
  return std::is_trivially_copyable_v<T> ? scalar : nullptr;
}

template <typename Op>
Status RefusalOf() {
  if constexpr (requires { Op::Refusal(); }) {
    return Op::Refusal();
  } else {
    return OkStatus();
  }
}

inline Status NoLoopFor(const KernelConstruction& c) {
  return errors::Unimplemented(c.def().name(), " has no loop for this element type");
}

template <typename Op, typename List>
std::unique_ptr<Kernel> MakeUnary(KernelConstruction& c) {
  UnaryLoopFn loop = nullptr;
  ScalarFn scalar = nullptr;
  DispatchType(List(), BaseType(c.input_types()[0]), [&]<typename T>() {
    loop = LoopFor<UnaryLoop<Op, T>, T>();
    scalar = IfPlain<T>(&UnaryScalar<Op, T>);
  });
  if (loop == nullptr) c.SetError(NoLoopFor(c));
  return std::make_unique<UnaryKernel>(c, loop, scalar, Op::kCost);
}

template <typename Op, typename List, bool kBroadcasts = true>
std::unique_ptr<Kernel> MakeBinary(KernelConstruction& c) {
  BinaryLoopFn loop = nullptr;
  ScalarFn scalar = nullptr;
  DispatchType(List(), BaseType(c.input_types()[0]), [&]<typename T>() {
    loop = LoopFor<BinaryLoop<Op, T>, T>();
    scalar = IfPlain<T>(&BinaryScalar<Op, T>);
  });
  if (loop == nullptr) c.SetError(NoLoopFor(c));
  return std::make_unique<BinaryKernel>(c, loop, scalar, Op::kCost, RefusalOf<Op>(), kBroadcasts);
}

// Registers `op` on the CPU for the types of List; `attr` is the name of the type attribute,
// empty if the op has none.
template <typename Op, typename List>
void RegisterUnary(KernelRegistry& registry, std::string op, std::string attr = "T") {
  KernelDef def(std::move(op));
  if (!attr.empty()) def.Types(std::move(attr), DataTypesOf(List()));
  registry.Register(std::move(def), &MakeUnary<Op, List>);
}
template <typename Op, typename List, bool kBroadcasts = true>
void RegisterBinary(KernelRegistry& registry, std::string op, std::string attr = "T") {
  KernelDef def(std::move(op));
  if (!attr.empty()) def.Types(std::move(attr), DataTypesOf(List()));
  registry.Register(std::move(def), &MakeBinary<Op, List, kBroadcasts>);
}

}  // namespace millrace

#endif  // KERNELS_COMMON_ELEMENTWISE_H_
