// SPDX-License-Identifier: Apache-2.0
// Collectives between accelerators: over links between the devices where there are any, else
// through the memory of their hosts.
#ifndef KERNELS_ACCELERATOR_COLLECTIVES_H_
#define KERNELS_ACCELERATOR_COLLECTIVES_H_

#include <functional>
#include <memory>
#include <string>

#include "collective/collective_executor.h"
#include "device/stream.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/kernel.h"

namespace millrace {

// One member's part of a collective. Input and output are in the device's memory.
struct LinkedRun {
  RefPtr<CollectiveExecutor> executor;
  std::shared_ptr<const ResolvedCollective> resolved;
  std::string key;
  std::string hint;  // the node's communication_hint
  RefPtr<DeviceWork> work;
  Tensor input, output;
};

// A device's end of the links of its kind. Thread-safe.
class DeviceLink {
 public:
  struct Outcome {
    Status status;
    // With an OK status, whether the output was computed; if not, why, and nothing was done: all
    // members get the same answer.
    bool done = false;
    std::string why_not;
  };
  virtual ~DeviceLink() = default;
  // `ended` is called once, on any thread.
  virtual void RunAsync(LinkedRun run, std::function<void(const Outcome&)> ended) = 0;
};

// The end of a machine, shared by its kernels; null: there are no links.
using OpenLink = std::shared_ptr<DeviceLink> (*)(Accelerator* machine);

std::unique_ptr<Kernel> NewAcceleratorCollective(KernelConstruction& c, OpenLink open);
template <OpenLink open>
std::unique_ptr<Kernel> MakeAcceleratorCollective(KernelConstruction& c) {
  return NewAcceleratorCollective(c, open);
}

// All collectives, for a type of devices: with `make`, before RegisterAcceleratorKernels, which
// registers those without links.
void RegisterAcceleratorCollectives(const OpRegistry& ops, const CpuKernels& cpu,
                                    const std::string& device_type, KernelFactory make,
                                    KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_COLLECTIVES_H_
