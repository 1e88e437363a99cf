// SPDX-License-Identifier: Apache-2.0
// A place where kernels run: its name, its memory, its threads, what lives on it.
#ifndef DEVICE_DEVICE_H_
#define DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "device/device_name.h"
#include "device/resource_manager.h"
#include "millrace/status.h"
#include "tensor/allocator.h"

namespace millrace {

// What others may know of a device; the same facts as the wire's DeviceAttributes.
struct DeviceAttributes {
  std::string name;          // full
  std::string device_type;   // "CPU"
  int64_t memory_limit = 0;  // bytes
  uint64_t incarnation = 0;  // random, never 0, new with every start of the process
  std::string physical_description;
};

// Thread-safe. Lives as long as the device manager that owns it.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return attributes_.name; }
  const DeviceName& parsed_name() const { return parsed_name_; }
  const std::string& type() const { return attributes_.device_type; }
  uint64_t incarnation() const { return attributes_.incarnation; }
  const DeviceAttributes& attributes() const { return attributes_; }

  // Memory of tensors on this device.
  virtual Allocator* allocator() const = 0;
  // Threads that one kernel may spread over; a pool of 0 threads means the caller only.
  ThreadPool* intra_op_pool() const { return intra_op_pool_; }
  ResourceManager* resource_manager() const { return resources_; }
  virtual MemorySpace memory_space() const { return MemorySpace::kHost; }
  // Waits until what was enqueued on the device has run.
  virtual Status Sync() { return OkStatus(); }

 protected:
  // `attributes.name` must be a full device name.
  Device(DeviceAttributes attributes, ThreadPool* intra_op_pool, ResourceManager* resources);

 private:
  const DeviceAttributes attributes_;
  const DeviceName parsed_name_;
  ThreadPool* const intra_op_pool_;
  ResourceManager* const resources_;
};

// A CPU device `name`. Threads and resources must outlive it; resources are shared with
// nobody unless the caller does so (isolated sessions have their own over the same threads).
std::unique_ptr<Device> NewCpuDevice(std::string name, uint64_t incarnation,
                                     ThreadPool* intra_op_pool, ResourceManager* resources);

}  // namespace millrace

#endif  // DEVICE_DEVICE_H_
