// SPDX-License-Identifier: Apache-2.0
#include "session/device_set.h"

#include <utility>

#include "base/status_macros.h"

namespace millrace {

StatusOr<std::unique_ptr<DeviceSet>> MakeDeviceSet(const TaskDevices& devices,
                                                   ThreadPool* intra_op_pool) {
  MR_ASSIGN_OR_RETURN(std::vector<TaskDevices::Made> made, devices.MakeDevices(intra_op_pool));
  auto set = std::make_unique<DeviceSet>();
  for (TaskDevices::Made& one : made) {
    set->resources.push_back(std::move(one.resources));
    set->devices.push_back(std::move(one.device));
  }
  return set;
}

}  // namespace millrace
