// SPDX-License-Identifier: Apache-2.0
#include "worker/kernel_cache.h"

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {

StatusOr<Kernel*> KernelCache::FindOrCreate(
    std::string_view device, std::string_view node,
    const std::function<StatusOr<std::unique_ptr<Kernel>>()>& create) {
  std::string key = StrCat(device, ";", node);
  {
    MutexLock lock(&mu_);
    const auto it = kernels_.find(key);
    if (it != kernels_.end()) return it->second.get();
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, create());
  MutexLock lock(&mu_);
  // Another graph may have been faster; then ours goes.
  return kernels_.try_emplace(std::move(key), std::move(kernel)).first->second.get();
}

}  // namespace millrace
