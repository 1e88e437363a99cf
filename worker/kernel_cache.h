// SPDX-License-Identifier: Apache-2.0
// The kernels of stateful ops: one per worker session, device and node name, whichever graph
// the node comes in, as with TensorFlow.
#ifndef WORKER_KERNEL_CACHE_H_
#define WORKER_KERNEL_CACHE_H_

#include <functional>
#include <memory>
#include <string_view>

#include "base/mutex.h"
#include "base/string_map.h"
#include "kernels/kernel.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe. The kernels live as long as the cache.
class KernelCache {
 public:
  // The kernel of the node, made by `create` (without a lock held) the first time.
  StatusOr<Kernel*> FindOrCreate(std::string_view device, std::string_view node,
                                 const std::function<StatusOr<std::unique_ptr<Kernel>>()>& create);

 private:
  Mutex mu_;
  StringMap<std::unique_ptr<Kernel>> kernels_ ABSL_GUARDED_BY(mu_);  // "<device>;<node>"
};

}  // namespace millrace

#endif  // WORKER_KERNEL_CACHE_H_
