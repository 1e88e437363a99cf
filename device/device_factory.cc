// SPDX-License-Identifier: Apache-2.0
#include "device/device_factory.h"

#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr int kMaxDevices = 1024;

}  // namespace

StatusOr<std::unique_ptr<TaskDevices>> TaskDevices::Open(const DeviceFactories& factories,
                                                         const std::string& task,
                                                         const std::map<std::string, int>& counts) {
  auto opened = std::make_unique<TaskDevices>();
  const auto add = [&](std::string_view type, int count, DeviceFactory::Machines* machines) {
    for (int i = 0; i < count; ++i) {
      opened->specs_.push_back({StrCat(task, "/device:", type, ":", i), RandomId(), i, machines});
    }
  };
  const auto cpus = counts.find("CPU");
  const int num_cpus = cpus == counts.end() ? 1 : cpus->second;
  if (num_cpus < 1 || num_cpus > kMaxDevices) {
    return errors::InvalidArgument("device_count[\"CPU\"] must be from 1 to ", kMaxDevices,
                                   ", not ", num_cpus);
  }
  add("CPU", num_cpus, nullptr);
  for (const DeviceFactory* factory : factories) {
    const auto wanted = counts.find(std::string(factory->type()));
    if (wanted == counts.end() || wanted->second == 0) continue;
    if (wanted->second < 0 || wanted->second > kMaxDevices) {
      return errors::InvalidArgument("device_count[\"", factory->type(), "\"] must be from 0 to ",
                                     kMaxDevices, ", not ", wanted->second);
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<DeviceFactory::Machines> machines,
                        factory->Open(task, wanted->second));
    add(factory->type(), wanted->second, machines.get());
    opened->machines_.push_back(std::move(machines));
  }
  return opened;
}

StatusOr<std::vector<TaskDevices::Made>> TaskDevices::MakeDevices(ThreadPool* intra_op_pool) const {
  std::vector<Made> made;
  for (const Spec& spec : specs_) {
    Made& one = made.emplace_back();
    one.resources = std::make_unique<ResourceManager>();
    if (spec.machines == nullptr) {
      one.device = NewCpuDevice(spec.name, spec.incarnation, intra_op_pool, one.resources.get());
      continue;
    }
    MR_ASSIGN_OR_RETURN(
        one.device, spec.machines->NewDevice(spec.index, spec.name, spec.incarnation, intra_op_pool,
                                             one.resources.get()));
  }
  return made;
}

}  // namespace millrace
