// SPDX-License-Identifier: Apache-2.0
// How devices of a type come to be. A new kind of accelerator is one factory, and one line in
// runtime/registries.cc.
#ifndef DEVICE_DEVICE_FACTORY_H_
#define DEVICE_DEVICE_FACTORY_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe. Lives as long as the process.
class DeviceFactory {
 public:
  // The machines behind the devices of one task. Thread-safe.
  class Machines {
   public:
    virtual ~Machines() = default;
    // A device `name` on machine `index`; with the same index once for every isolated session.
    virtual StatusOr<std::unique_ptr<Device>> NewDevice(int index, std::string name,
                                                        uint64_t incarnation,
                                                        ThreadPool* intra_op_pool,
                                                        ResourceManager* resources) = 0;
  };

  virtual ~DeviceFactory() = default;
  virtual std::string_view type() const = 0;  // "FAKE"
  // `count` machines for the task "/job:J/replica:R/task:T". The error says what is missing.
  virtual StatusOr<std::unique_ptr<Machines>> Open(const std::string& task, int count) const = 0;
};

using DeviceFactories = std::vector<const DeviceFactory*>;

// The devices of one task, CPUs first: machines are opened once, devices made as often as there
// are sessions with state of their own. Thread-safe.
class TaskDevices {
 public:
  // How many there are by type, as ConfigProto.device_count; "CPU" is 1 if it is not there.
  // InvalidArgument for a number out of [0, 1024] (from 1 for "CPU"). A type that no factory
  // makes is left out: clients ask for GPUs of machines that have none.
  static StatusOr<std::unique_ptr<TaskDevices>> Open(const DeviceFactories& factories,
                                                     const std::string& task,
                                                     const std::map<std::string, int>& counts);

  struct Made {
    std::unique_ptr<ResourceManager> resources;
    std::unique_ptr<Device> device;
  };
  // The same names and incarnations every time; resources of their own.
  StatusOr<std::vector<Made>> MakeDevices(ThreadPool* intra_op_pool) const;

 private:
  struct Spec {
    std::string name;
    uint64_t incarnation = 0;
    int index = 0;
    DeviceFactory::Machines* machines = nullptr;  // null: a CPU
  };
  std::vector<std::unique_ptr<DeviceFactory::Machines>> machines_;
  std::vector<Spec> specs_;
};

}  // namespace millrace

#endif  // DEVICE_DEVICE_FACTORY_H_
