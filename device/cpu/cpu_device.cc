// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

namespace millrace {
namespace {

class CpuDevice : public Device {
 public:
  CpuDevice(DeviceAttributes attributes, ThreadPool* pool, ResourceManager* resources)
      : Device(std::move(attributes), pool, resources) {}
  Allocator* allocator() const override { return HostAllocator(); }
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice(std::string name, uint64_t incarnation,
                                     ThreadPool* intra_op_pool, ResourceManager* resources) {
  DeviceAttributes attributes;
  attributes.name = std::move(name);
  attributes.device_type = "CPU";
  attributes.memory_limit = int64_t{256} << 20;  // what TensorFlow reports for a CPU
  attributes.incarnation = incarnation;
  return std::make_unique<CpuDevice>(std::move(attributes), intra_op_pool, resources);
}

}  // namespace millrace
