// SPDX-License-Identifier: Apache-2.0
// The tasks and devices that a session may use.
#ifndef MASTER_CLUSTER_DEVICES_H_
#define MASTER_CLUSTER_DEVICES_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_map.h"
#include "device/device_name.h"
#include "millrace/status.h"
#include "placer/placer.h"
#include "proto/device_attributes.pb.h"
#include "session/master_env.h"

namespace millrace {

// Constant after it was found. Copies are cheap enough to be made once per session.
struct ClusterDevices {
  struct Task {
    std::string name;
    WorkerInterface* worker = nullptr;
    std::vector<pb::DeviceAttributes> devices;
  };
  std::vector<Task> tasks;  // in the order of the cluster; this one included
  std::string client_task, client_device;
  StringMap<uint64_t> incarnations;  // by full device name

  uint64_t Incarnation(std::string_view device) const {
    const auto it = incarnations.find(device);
    return it == incarnations.end() ? 0 : it->second;
  }
  // What the placer wants to know; kernels are looked up in `env`.
  PlacerInput ForPlacer(const WorkerEnv& env, bool soft_placement) const;
};

// InvalidArgument for a filter that is not a device name.
StatusOr<std::vector<DeviceName>> ParseDeviceFilters(const std::vector<std::string>& filters);

// True if there is no filter, or `name` and one of them agree in what both say.
bool MatchesAnyFilter(const std::vector<DeviceName>& filters, const DeviceName& name);

// Asks every task that matches a filter (none: every task), and this one, for its devices.
// A task that cannot be reached is asked again until the deadline: DeadlineExceeded naming
// those that did not answer. FailedPrecondition if another task answers at a task's address.
// `done` gets the devices that match.
void FindClusterDevices(const WorkerEnv& env, const CallOptions& options,
                        std::vector<DeviceName> filters,
                        std::function<void(StatusOr<ClusterDevices>)> done);

}  // namespace millrace

#endif  // MASTER_CLUSTER_DEVICES_H_
