// SPDX-License-Identifier: Apache-2.0
// Resources that live as long as one step (stacks, tensor arrays), and the handles by which
// the ops of that step find them.
#ifndef KERNELS_COMMON_STEP_RESOURCE_H_
#define KERNELS_COMMON_STEP_RESOURCE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/resource_manager.h"
#include "kernels/kernel_context.h"

namespace millrace {

// The handle of the resource `name` of this step.
template <typename R>
Tensor StepHandle(KernelContext& ctx, const std::string& name) {
  Tensor handle(kResource, Shape());
  ResourceHandle& h = handle.data<ResourceHandle>()[0];
  h.device = ctx.device()->name();
  h.container = ctx.env().step_container;
  h.name = name;
  h.hash_code = typeid(R).hash_code();
  h.type_name = "step resource";
  return handle;
}

// Keeps `resource` until the step ends, under a name of its own that begins with `prefix`,
// and gives its handle.
template <typename R>
StatusOr<Tensor> AddStepResource(KernelContext& ctx, std::string_view prefix, RefPtr<R> resource) {
  static std::atomic<uint64_t> next{0};
  const std::string name = StrCat(prefix, "_", next.fetch_add(1, std::memory_order_relaxed));
  MR_RETURN_IF_ERROR(
      ctx.resources()->Create<R>(ctx.env().step_container, name, std::move(resource)));
  return StepHandle<R>(ctx, name);
}

// Deletes what input 0, a handle, names, be it an R or another one of them. It may be gone already,
// with its step, or never have been: that is no error.
template <typename... R>
Status DeleteByHandle(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  if (input.dtype() != kResource || input.num_elements() != 1) {
    return errors::InvalidArgument("input 0 of ", ctx.node_name(), " must be a handle, got ",
                                   input.DebugString(2));
  }
  const ResourceHandle& handle = input.data<ResourceHandle>()[0];
  (static_cast<void>(ctx.resources()->Delete<R>(handle.container, handle.name)), ...);
  return OkStatus();
}

}  // namespace millrace

#endif  // KERNELS_COMMON_STEP_RESOURCE_H_
