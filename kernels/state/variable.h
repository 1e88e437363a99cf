// SPDX-License-Identifier: Apache-2.0
// Variables, and the rules by which kernels share and change them.
//
// A read takes a share of the buffer under the variable's lock and lets go of the lock; a
// write holds the lock from start to end and never touches a buffer that somebody else
// shares (it copies first, see MakeExclusive). So a reader sees one state of the variable,
// never a half-done update, and a tensor that was read or sent stays as it was.
#ifndef KERNELS_STATE_VARIABLE_H_
#define KERNELS_STATE_VARIABLE_H_

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "device/resource_manager.h"
#include "kernels/kernel_context.h"
#include "kernels/state/update_ledger.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// The state both kinds of variables have. `value` is guarded by `mu`, which readers that
// were handed a reference (EdgeValue::kRef) lock by themselves.
class VariableState : public Resource {
 public:
  Mutex mu;
  Tensor value;  // not initialised until the first assignment

  std::string DebugString() const override;
};

// Behind the ops Variable and VariableV2, whose outputs are references.
class RefVariable : public VariableState {
 public:
  // Without a ledger it is not counted: of one step.
  RefVariable() = default;
  RefVariable(RefPtr<UpdateLedger> ledger, std::string_view name) : ledger_(std::move(ledger)) {
    ledger_->NameReference(&mu, name);
  }
  ~RefVariable() override {
    if (ledger_) ledger_->ForgetReference(&mu);
  }

 private:
  const RefPtr<UpdateLedger> ledger_;
};
// Behind VarHandleOp. It exists once something has been assigned to it.
class ResourceVariable : public VariableState {};

// The scalar handle in input i; InvalidArgument if there is none.
StatusOr<const ResourceHandle*> InputHandle(KernelContext& ctx, int i);

// The variable that a handle names. FailedPrecondition "Could not find variable NAME. ..." if
// there is none (it was not assigned yet, or was destroyed).
StatusOr<RefPtr<ResourceVariable>> FindVariable(KernelContext& ctx, const ResourceHandle& handle);

// Copies elements; dtypes and numbers of elements must agree, buffers must not overlap.
void CopyElements(const Tensor& from, Tensor* to);

// Makes sure that nobody shares the buffer of *value, by copying it if need be. Hold the
// variable's lock. ResourceExhausted if there is no memory for the copy.
Status MakeExclusive(Allocator* allocator, Tensor* value);

// *value becomes `source`, the tensor in an input slot: takes over its buffer if no one else
// shares it, else copies (into the present buffer where it fits). Hold the variable's lock.
Status AssignValue(Allocator* allocator, const Tensor& source, Tensor* value);

// Up to four variables that one kernel changes: inputs that are references or resource
// handles. Locks them all, each once and in an order all kernels agree on, and unlocks them
// when it goes.
class LockedVariables {
 public:
  LockedVariables() = default;
  ~LockedVariables();
  LockedVariables(const LockedVariables&) = delete;
  LockedVariables& operator=(const LockedVariables&) = delete;

  // Inputs [0, count) of the kernel. FailedPrecondition if one is not initialised or does not
  // exist, InvalidArgument if its type is not `dtype`.
  Status Lock(KernelContext& ctx, int count, DataType dtype);

  // The current value. To write it, call MakeExclusive first.
  Tensor* value(int i) const { return values_[i]; }
  Status MakeExclusive(KernelContext& ctx);

 private:
  static constexpr int kMax = 4;
  int count_ = 0, locked_ = 0;
  std::array<RefPtr<ResourceVariable>, kMax> held_;
  std::array<Tensor*, kMax> values_{};
  std::array<Mutex*, kMax> mutexes_{};
};

// value += operand, or -=; both have the same shape and a type of NumberTypes. For a value that
// was made exclusive.
void AddTo(KernelContext& ctx, const Tensor& operand, bool subtract, Tensor* value);

// For kernels with a reference form (which outputs its first input) and a resource form.
inline void ForwardFirstRef(KernelContext& ctx) {
  if (ctx.num_outputs() > 0 && ctx.input_is_ref(0)) ctx.ForwardRef(0, 0);
}

}  // namespace millrace

#endif  // KERNELS_STATE_VARIABLE_H_
