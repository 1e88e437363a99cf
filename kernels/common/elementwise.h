// SPDX-License-Identifier: Apache-2.0
// The kernels under all elementwise ops: they find the shapes, the output's memory and the
// threads; a loop chosen once, by op and element type, does the work.
#ifndef KERNELS_COMMON_ELEMENTWISE_H_
#define KERNELS_COMMON_ELEMENTWISE_H_

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise_loops.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"

namespace millrace {

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

// --- Kernels from functors (kernels/common/elementwise_loops.h) ---------------------------------

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
    loop = UnaryLoopFor<Op, T>();
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
    loop = BinaryLoopFor<Op, T>();
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
