// SPDX-License-Identifier: Apache-2.0
// What the kernels of collectives have in common, whatever the device: what a node asks for, and
// how it finds the other members.
#ifndef KERNELS_COLLECTIVE_COLLECTIVE_KERNEL_H_
#define KERNELS_COLLECTIVE_COLLECTIVE_KERNEL_H_

#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "collective/collective_executor.h"
#include "kernels/kernel.h"

namespace millrace {

// The V2 ops take the keys as inputs, in host memory, and look their members up in every step; the
// others do it once.
class CollectiveKernel : public Kernel {
 public:
  explicit CollectiveKernel(KernelConstruction& c);

  bool IsAsync() const final { return true; }
  Status Compute(KernelContext& ctx) final;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) final;

 protected:
  enum class Role { kReduce, kGather, kSend, kReceive };
  Role role() const { return role_; }
  // What the node contributes; an empty tensor for a member that only receives.
  Tensor Part(const KernelContext& ctx) const;
  // Memory of the device for the result, perhaps that of the part.
  StatusOr<Tensor*> TakeOutput(KernelContext& ctx, const Shape& shape) const;

  // Sets the output and calls `done` once. `key` is that of this execution.
  virtual void Exchange(KernelContext& ctx, CollectiveExecutor& executor,
                        std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                        std::function<void(const Status&)> done) = 0;

 private:
  void ReadKeys(KernelConstruction& c);
  void ReadReduction(KernelConstruction& c);
  Status TakeKeys(KernelContext& ctx, CollectiveParams* params) const;
  Status FindShape(KernelContext& ctx, CollectiveParams* params) const;
  std::shared_ptr<const ResolvedCollective> FindResolved(const CollectiveExecutor& executor,
                                                         const CollectiveParams& params) const;
  void Run(KernelContext& ctx, CollectiveExecutor& executor,
           std::shared_ptr<const ResolvedCollective> resolved, DoneCallback done);

  const bool keys_are_inputs_;
  const Role role_;
  CollectiveParams constant_;  // constant once made
  mutable Mutex mu_;
  std::shared_ptr<const ResolvedCollective> resolved_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_COLLECTIVE_COLLECTIVE_KERNEL_H_
