// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/reference_variable.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"
#include "kernels/state/variable.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

// Whose tensor a reference is, for operations that outlive the step, and with it the kernel that
// made the reference. Knows variables for as long as such kernels do. Thread-safe.
class ReferenceOwners {
 public:
  static ReferenceOwners& Get() {
    static auto* const owners = new ReferenceOwners;
    return *owners;
  }
  void Add(const RefPtr<RefVariable>& variable) {
    MutexLock lock(&mu_);
    Entry& entry = entries_[&variable->value];
    entry.variable = variable;
    ++entry.kernels;
  }
  void Remove(const RefPtr<RefVariable>& variable) {
    MutexLock lock(&mu_);
    const auto found = entries_.find(&variable->value);
    if (found != entries_.end() && --found->second.kernels == 0) entries_.erase(found);
  }
  // Null if it is no variable of an accelerator's.
  RefPtr<RefVariable> Find(const Tensor* value) {
    MutexLock lock(&mu_);
    const auto found = entries_.find(value);
    return found == entries_.end() ? RefPtr<RefVariable>() : found->second.variable;
  }

 private:
  struct Entry {
    RefPtr<RefVariable> variable;
    int kernels = 0;
  };
  Mutex mu_;
  absl::flat_hash_map<const Tensor*, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

// The CPU's kernel, which looks at no element, and a note of what it refers to.
class ReferenceVariableKernel final : public Kernel {
 public:
  ReferenceVariableKernel(const KernelConstruction& c, std::unique_ptr<Kernel> inner)
      : Kernel(c),
        inner_(std::move(inner)),
        container_(c.attrs().GetOr<std::string>("container", "")),
        resource_(c.attrs().GetOr<std::string>("shared_name", "")) {
    if (resource_.empty()) resource_ = name();
  }
  ~ReferenceVariableKernel() override {
    MutexLock lock(&mu_);
    for (const RefPtr<RefVariable>& variable : noted_) ReferenceOwners::Get().Remove(variable);
  }
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(inner_->Compute(ctx));
    auto found = ctx.resources()->Lookup<RefVariable>(container_, resource_);
    if (!found.ok()) return OkStatus();  // somebody has just taken it out of its container
    MutexLock lock(&mu_);
    if (!noted_.empty() && noted_.back() == *found) return OkStatus();
    ReferenceOwners::Get().Add(*found);
    noted_.push_back(*std::move(found));
    return OkStatus();
  }

 private:
  const std::unique_ptr<Kernel> inner_;
  const std::string container_;
  std::string resource_;
  Mutex mu_;
  std::vector<RefPtr<RefVariable>> noted_ ABSL_GUARDED_BY(mu_);
};

// As an assignment by handle (assign_variable.cc): the variable takes a share of a value that the
// stream may not have computed yet, and is as if nothing had been assigned if it never will.
class ReferenceAssignKernel final : public Kernel {
 public:
  ReferenceAssignKernel(const KernelConstruction& c, std::unique_ptr<Kernel> inner)
      : Kernel(c), inner_(std::move(inner)) {}

  Status Compute(KernelContext& ctx) override {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return errors::Internal("an assignment on a device outside of a step");
    if (!ctx.input_is_ref(0)) return NeedsReference(name());
    RefPtr<RefVariable> variable = ReferenceOwners::Get().Find(ctx.input_ref(0));
    if (!variable) {
      return errors::FailedPrecondition("input 0 of ", name(),
                                        " refers to no variable of this device");
    }
    MR_RETURN_IF_ERROR(inner_->Compute(ctx));
    const void* data = nullptr;
    {
      MutexLock lock(&variable->mu);
      data = variable->value.raw_data();
    }
    Stream::Operation check;
    check.work = RefPtr<DeviceWork>::Share(work);
    check.node = name();
    check.even_after_error = true;
    check.run = [variable = std::move(variable), work, data] {
      if (!work->failed()) return OkStatus();
      MutexLock lock(&variable->mu);
      Tensor& value = variable->value;
      if (value.raw_data() == data) value = Tensor(value.dtype(), value.shape(), nullptr, nullptr);
      return OkStatus();
    };
    AcceleratorOf(ctx.device())->stream(StreamKind::kCompute)->Enqueue(std::move(check));
    return OkStatus();
  }

 private:
  const std::unique_ptr<Kernel> inner_;
};

template <typename K>
std::unique_ptr<Kernel> MakeOver(KernelConstruction& c) {
  std::unique_ptr<Kernel> inner = MakeHostRunKernel(c);
  if (inner == nullptr) return nullptr;
  return std::make_unique<K>(c, std::move(inner));
}

}  // namespace

std::unique_ptr<Kernel> MakeAcceleratorVariable(KernelConstruction& c) {
  return MakeOver<ReferenceVariableKernel>(c);
}

std::unique_ptr<Kernel> MakeAcceleratorReferenceAssign(KernelConstruction& c) {
  return MakeOver<ReferenceAssignKernel>(c);
}

}  // namespace millrace
