// SPDX-License-Identifier: Apache-2.0
// Strategies of one process: default, one_device, mirrored and central_storage.
#include <algorithm>
#include <set>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "strategy/devices.h"

namespace millrace {
namespace {

class InProcess : public Strategy {
 public:
  using Strategy::Layout;
  explicit InProcess(Layout layout) : Strategy(std::move(layout)) {}
};

}  // namespace

StatusOr<std::vector<std::string>> DevicesOf(const StrategyOptions& o, std::string_view prefix) {
  if (o.replicas < 0) {
    return errors::InvalidArgument("StrategyOptions.replicas must not be negative, and is ",
                                   o.replicas);
  }
  std::vector<std::string> devices;
  if (o.devices.empty()) {
    for (int i = 0; i < std::max(1, o.replicas); ++i) {
      devices.push_back(StrCat(prefix, "/device:CPU:", i));
    }
    return devices;
  }
  if (o.replicas != 0 && o.replicas != static_cast<int>(o.devices.size())) {
    return errors::InvalidArgument("StrategyOptions.replicas is ", o.replicas, ", and there are ",
                                   o.devices.size(), " devices: leave one of the two out");
  }
  std::set<std::string> seen;
  for (const std::string& device : o.devices) {
    if (!seen.insert(device).second) {
      return errors::InvalidArgument("StrategyOptions.devices names ", device,
                                     " twice: each replica needs a device of its own");
    }
    devices.push_back(device.starts_with("/job:") ? device : StrCat(prefix, device));
  }
  return devices;
}

StatusOr<std::vector<std::string>> WithPieces(const StrategyOptions& o, int all,
                                              std::vector<std::string> devices) {
  if (!o.deterministic) return devices;
  if (o.micro_batches < 1 || o.micro_batches % all != 0) {
    return errors::InvalidArgument("StrategyOptions.micro_batches is ", o.micro_batches,
                                   ", of which ", all,
                                   " replicas cannot have as many each: choose a multiple");
  }
  std::vector<std::string> repeated;
  for (const std::string& device : devices) {
    repeated.insert(repeated.end(), static_cast<std::size_t>(o.micro_batches / all), device);
  }
  return repeated;
}

int CpuDevicesOf(const std::vector<std::string>& devices) {
  int count = 1;
  for (const std::string& device : devices) {
    const std::size_t at = device.find("CPU:");
    if (at == std::string::npos) continue;
    count = std::max(count, std::atoi(device.c_str() + at + 4) + 1);
  }
  return count;
}

std::shared_ptr<Strategy> DefaultStrategy() {
  return std::make_shared<InProcess>(InProcess::Layout{.name = "default", .devices = {""}});
}

StatusOr<std::shared_ptr<Strategy>> OneDeviceStrategy(const StrategyOptions& options) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> devices, DevicesOf(options, ""));
  if (devices.size() != 1) {
    return errors::InvalidArgument("one_device has one replica, and is asked for ", devices.size(),
                                   ": choose mirrored, or give one device");
  }
  return std::shared_ptr<Strategy>(
      std::make_shared<InProcess>(InProcess::Layout{.name = "one_device",
                                                    .devices = devices,
                                                    .root_device = devices[0],
                                                    .target = options.target,
                                                    .cpu_devices = CpuDevicesOf(devices)}));
}

StatusOr<std::shared_ptr<Strategy>> MirroredStrategy(const StrategyOptions& options) {
  MR_ASSIGN_OR_RETURN(std::vector<std::string> own, DevicesOf(options, ""));
  const int all = static_cast<int>(own.size());
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                      WithPieces(options, all, std::move(own)));
  auto made = std::make_shared<InProcess>(
      InProcess::Layout{.name = "mirrored",
                        .devices = devices,
                        .replicas_in_sync = static_cast<int>(devices.size()),
                        .root_device = devices[0],
                        .target = options.target,
                        .cpu_devices = CpuDevicesOf(devices),
                        .mirrors_variables = true,
                        .is_deterministic = options.deterministic});
  MR_LOG(kInfo, "using ", made->Description());
  return std::shared_ptr<Strategy>(made);
}

StatusOr<std::shared_ptr<Strategy>> CentralStorageStrategy(const StrategyOptions& options) {
  MR_ASSIGN_OR_RETURN(std::vector<std::string> devices, DevicesOf(options, ""));
  std::string parameters = devices.size() == 1 ? devices[0] : options.parameter_device;
  std::vector<std::string> all = devices;
  all.push_back(parameters);
  const int cpus = CpuDevicesOf(all);
  return std::shared_ptr<Strategy>(std::make_shared<InProcess>(
      InProcess::Layout{.name = "central_storage",
                        .devices = std::move(devices),
                        .replicas_in_sync = static_cast<int>(all.size()) - 1,
                        .root_device = std::move(parameters),
                        .target = options.target,
                        .cpu_devices = cpus}));
}

}  // namespace millrace
