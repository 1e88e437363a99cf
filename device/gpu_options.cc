// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_options.h"

#include "base/errors.h"

namespace millrace {

StatusOr<AcceleratorOptions> AcceleratorOptionsFrom(const pb::GPUOptions& options) {
  AcceleratorOptions result;
  result.memory_fraction = options.per_process_gpu_memory_fraction();
  if (!(result.memory_fraction >= 0 && result.memory_fraction <= 1)) {
    return errors::InvalidArgument(
        "gpu_options.per_process_gpu_memory_fraction must be from 0 to 1, not ",
        result.memory_fraction);
  }
  result.allow_growth = options.allow_growth();
  result.visible_devices = options.visible_device_list();
  for (const auto& devices : options.experimental().virtual_devices()) {
    auto& limits = result.virtual_devices.emplace_back();
    for (const float mib : devices.memory_limit_mb()) {
      if (!(mib >= 1)) {
        return errors::InvalidArgument("a virtual GPU needs a memory_limit_mb of 1 or more, not ",
                                       mib);
      }
      limits.push_back(static_cast<int64_t>(static_cast<double>(mib) * (1 << 20)));
    }
  }
  return result;
}

}  // namespace millrace
