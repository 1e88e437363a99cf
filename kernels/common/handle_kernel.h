// SPDX-License-Identifier: Apache-2.0
// Ops that output a handle of something kept on the device (queues, accumulators), and how
// other ops find it again. Handles come as resource tensors, or in the older form as
// references to a pair of strings: container and name.
#ifndef KERNELS_COMMON_HANDLE_KERNEL_H_
#define KERNELS_COMMON_HANDLE_KERNEL_H_

#include <string>
#include <string_view>
#include <typeinfo>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/resource_manager.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"

namespace millrace {

// Finds or makes the resource (container, shared_name or the node's name) and outputs its
// handle. R is the type it is registered under.
template <typename R>
class HandleKernel : public Kernel {
 public:
  explicit HandleKernel(KernelConstruction& c)
      : Kernel(c), is_ref_(!c.output_types().empty() && IsRefType(c.output_types()[0])) {
    container_ = c.attrs().template GetOr<std::string>("container", "");
    if (container_.empty()) container_ = kDefaultContainer;
    resource_ = c.attrs().template GetOr<std::string>("shared_name", "");
    if (resource_.empty()) resource_ = name();
    if (is_ref_) {
      handle_ = Tensor::FromValues<std::string>({container_, resource_});
    } else {
      handle_ = Tensor(kResource, Shape());
      ResourceHandle& handle = handle_.data<ResourceHandle>()[0];
      handle.device = c.device()->name();
      handle.container = container_;
      handle.name = resource_;
      handle.hash_code = typeid(R).hash_code();
      handle.type_name = def().name();
    }
  }

  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<R> found, ctx.resources()->template LookupOrCreate<R>(
                                             container_, resource_, [this] { return Make(); }));
    MR_RETURN_IF_ERROR(CheckSame(*found));
    if (is_ref_) {
      ctx.SetOutputRef(0, &mu_, &handle_);
    } else {
      ctx.SetOutput(0, handle_);
    }
    return OkStatus();
  }

 protected:
  // The name the resource goes by in messages.
  const std::string& resource_name() const { return resource_; }
  virtual StatusOr<RefPtr<R>> Make() = 0;
  // An error if a resource of this name exists that was made with other attributes.
  virtual Status CheckSame(const R& existing) const = 0;

 private:
  const bool is_ref_;
  std::string container_, resource_;
  Mutex mu_;  // formally guards handle_, which never changes
  Tensor handle_;
};

// What the handle in input i names. NotFound if it is gone, InvalidArgument if the input is
// not a handle.
template <typename R>
StatusOr<RefPtr<R>> LookupHandle(KernelContext& ctx, int i) {
  const Tensor input = ctx.locked_input(i);
  if (input.dtype() == kString && input.num_elements() == 2) {
    const std::string* text = input.data<std::string>();
    return ctx.resources()->template Lookup<R>(text[0], text[1]);
  }
  if (input.dtype() == kResource && input.num_elements() == 1) {
    const ResourceHandle& handle = input.scalar<ResourceHandle>();
    return ctx.resources()->template Lookup<R>(handle.container, handle.name);
  }
  return errors::InvalidArgument("input ", i, " of ", ctx.node_name(), " must be a handle, got ",
                                 input.DebugString(2));
}

}  // namespace millrace

#endif  // KERNELS_COMMON_HANDLE_KERNEL_H_
