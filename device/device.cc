// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "base/log.h"

namespace millrace {
namespace {

DeviceName ParseOwnName(const std::string& name) {
  StatusOr<DeviceName> parsed = DeviceName::Parse(name);
  MR_CHECK(parsed.ok() && parsed->IsFull());
  return *std::move(parsed);
}

}  // namespace

Device::Device(DeviceAttributes attributes, ThreadPool* intra_op_pool, ResourceManager* resources)
    : attributes_(std::move(attributes)),
      parsed_name_(ParseOwnName(attributes_.name)),
      intra_op_pool_(intra_op_pool),
      resources_(resources) {}

}  // namespace millrace
