// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr char kType[] = "GPU";
constexpr std::chrono::minutes kSyncLimit(10);
constexpr std::chrono::seconds kWaitForPredecessor(5);

// One device: a GPU, or a part of its memory.
struct Place {
  int ordinal = 0;
  int part = 0;
  int64_t memory_limit = 0;  // bytes; 0: the fraction, or what is free
};

StatusOr<std::vector<int>> VisibleOrdinals(const std::string& list, int count) {
  std::vector<int> ordinals;
  if (list.empty()) {
    for (int i = 0; i < count; ++i) ordinals.push_back(i);
    return ordinals;
  }
  for (const std::string_view text : StrSplit(list, ',')) {
    int64_t ordinal = -1;
    if (!ParseInt64(text, &ordinal) || ordinal < 0 || ordinal >= count) {
      return errors::InvalidArgument("gpu_options.visible_device_list is \"", list, "\", but \"",
                                     text, "\" is not the number of a GPU: there are ", count);
    }
    if (std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end()) {
      return errors::InvalidArgument("gpu_options.visible_device_list names GPU ", ordinal,
                                     " twice: \"", list, "\"");
    }
    ordinals.push_back(static_cast<int>(ordinal));
  }
  return ordinals;
}

StatusOr<std::vector<Place>> PlacesOf(CudaDriver* driver, const AcceleratorOptions& options) {
  MR_ASSIGN_OR_RETURN(const int count, driver->NumDevices());
  MR_ASSIGN_OR_RETURN(const std::vector<int> ordinals,
                      VisibleOrdinals(options.visible_devices, count));
  const auto& divided = options.virtual_devices;
  if (divided.size() > ordinals.size()) {
    return errors::InvalidArgument("gpu_options divides ", divided.size(), " GPUs, but ",
                                   ordinals.size(), " are visible");
  }
  std::vector<Place> places;
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (i >= divided.size() || divided[i].empty()) {
      places.push_back({ordinals[i], 0, 0});
      continue;
    }
    for (std::size_t part = 0; part < divided[i].size(); ++part) {
      places.push_back({ordinals[i], static_cast<int>(part), divided[i][part]});
    }
  }
  return places;
}

class GpuDevice final : public AcceleratorDevice {
 public:
  GpuDevice(DeviceAttributes attributes, ThreadPool* pool, ResourceManager* resources,
            std::shared_ptr<CudaMachineImpl> machine)
      : AcceleratorDevice(std::move(attributes), pool, resources), machine_(std::move(machine)) {}
  Allocator* allocator() const override { return machine_->allocator(); }
  Accelerator* accelerator() const override { return machine_.get(); }
  Status Sync() override { return machine_->Synchronize(kSyncLimit); }

 private:
  const std::shared_ptr<CudaMachineImpl> machine_;
};

class TaskMachines final : public DeviceFactory::Machines {
 public:
  explicit TaskMachines(std::vector<std::shared_ptr<CudaMachineImpl>> machines)
      : machines_(std::move(machines)) {}

  StatusOr<std::unique_ptr<Device>> NewDevice(int index, std::string name, uint64_t incarnation,
                                              ThreadPool* intra_op_pool,
                                              ResourceManager* resources) override {
    const auto& machine = machines_[index];
    DeviceAttributes attributes;
    attributes.name = std::move(name);
    attributes.device_type = kType;
    attributes.memory_limit = machine->allocator()->stats().bytes_limit;
    attributes.incarnation = incarnation;
    attributes.physical_description = Describe(machine->properties());
    return std::make_unique<GpuDevice>(std::move(attributes), intra_op_pool, resources, machine);
  }

 private:
  const std::vector<std::shared_ptr<CudaMachineImpl>> machines_;
};

// The machines of the process, by ordinal and part.
struct Shared {
  CudaDriver* driver = nullptr;
  CudaHandles handles;
  CudaActivities* activities = nullptr;
  Mutex mu;
  std::map<std::pair<int, int>, std::weak_ptr<CudaMachineImpl>> machines ABSL_GUARDED_BY(mu);
};

class CudaFactory final : public DeviceFactory {
 public:
  CudaFactory(Shared* shared, AcceleratorOptions options)
      : shared_(shared), options_(std::move(options)) {}

  std::string_view type() const override { return kType; }

  StatusOr<std::unique_ptr<Machines>> Open(const std::string& task, int count) const override {
    MR_ASSIGN_OR_RETURN(const std::vector<Place> places, PlacesOf(shared_->driver, options_));
    if (count > static_cast<int>(places.size())) {
      return errors::FailedPrecondition("there are ", places.size(), " GPUs, not ", count);
    }
    MR_ASSIGN_OR_RETURN(const CudaEnvironment environment,
                        CudaEnvironmentOf([](const char* name) { return std::getenv(name); }));
    MutexLock lock(&shared_->mu);
    std::vector<std::shared_ptr<CudaMachineImpl>> machines;
    for (int i = 0; i < count; ++i) {
      const Place& place = places[i];
      std::weak_ptr<CudaMachineImpl>& known = shared_->machines[{place.ordinal, place.part}];
      std::shared_ptr<CudaMachineImpl> machine = known.lock();
      if (machine != nullptr && machine->failure().ok() && machine->math() != environment.math) {
        MR_RETURN_IF_ERROR(WaitForTheEnd(&machine, &known, place.ordinal));
      }
      if (machine == nullptr || !machine->failure().ok()) {
        const std::string name = StrCat(task, "/device:GPU:", i);
        auto started = Start(name, place, environment);
        // One whose last share has just gone gives its memory back on whatever thread had that.
        const bool has_predecessor = known.owner_before(std::weak_ptr<CudaMachineImpl>()) ||
                                     std::weak_ptr<CudaMachineImpl>().owner_before(known);
        const auto limit = std::chrono::steady_clock::now() + kWaitForPredecessor;
        while (has_predecessor && errors::IsResourceExhausted(started.status()) &&
               std::chrono::steady_clock::now() < limit) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          started = Start(name, place, environment);
        }
        MR_ASSIGN_OR_RETURN(machine, std::move(started));
        known = machine;
      }
      machines.push_back(std::move(machine));
    }
    ReachEachOther(machines);
    return std::make_unique<TaskMachines>(std::move(machines));
  }

 private:
  // One that was started with other switches cannot be shared, but may just be going away.
  static Status WaitForTheEnd(std::shared_ptr<CudaMachineImpl>* machine,
                              std::weak_ptr<CudaMachineImpl>* known, int ordinal) {
    const auto limit = std::chrono::steady_clock::now() + kWaitForPredecessor;
    machine->reset();
    while (!known->expired()) {
      if (std::chrono::steady_clock::now() >= limit) {
        return errors::FailedPrecondition(
            "GPU ", ordinal, " is used by this process with other values of MILLRACE_CUDA_TF32, ",
            "TF_DETERMINISTIC_OPS or TF_CUDNN_WORKSPACE_LIMIT_IN_MB: close those sessions and ",
            "servers first");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return OkStatus();
  }

  StatusOr<std::shared_ptr<CudaMachineImpl>> Start(const std::string& name, const Place& place,
                                                   const CudaEnvironment& environment) const {
    CudaMachineOptions wanted;
    wanted.name = name;
    wanted.driver = shared_->driver;
    wanted.handles = shared_->handles;
    wanted.activities = shared_->activities;
    wanted.ordinal = place.ordinal;
    wanted.memory_limit = place.memory_limit;
    wanted.memory_fraction = options_.memory_fraction;
    wanted.allow_growth = options_.allow_growth;
    wanted.math = environment.math;
    wanted.blocking = environment.blocking;
    wanted.exact_memory = environment.exact_memory;
    MR_ASSIGN_OR_RETURN(std::shared_ptr<CudaMachineImpl> machine, CudaMachineImpl::Start(wanted));
    MR_LOG(kInfo, name, ": ", Describe(machine->properties()), ", ",
           HumanBytes(machine->allocator()->stats().bytes_limit), " for tensors");
    return machine;
  }

  // So that copies between them go the short way where there is one.
  void ReachEachOther(const std::vector<std::shared_ptr<CudaMachineImpl>>& machines) const {
    for (const auto& from : machines) {
      for (const auto& to : machines) {
        const int a = from->properties().ordinal;
        const int b = to->properties().ordinal;
        if (a == b || !from->MakeCurrent().ok()) continue;
        const Status status = shared_->driver->EnablePeer(a, b, to->context());
        if (!status.ok()) MR_LOG(kInfo, Message(status), ": copies go through the host");
      }
    }
  }

  Shared* const shared_;
  const AcceleratorOptions options_;
};

}  // namespace

StatusOr<CudaEnvironment> CudaEnvironmentOf(const std::function<const char*(const char*)>& getenv) {
  CudaEnvironment result;
  const struct {
    const char* name;
    bool* value;
  } switches[] = {{"MILLRACE_CUDA_TF32", &result.math.tf32},
                  {"TF_DETERMINISTIC_OPS", &result.math.deterministic},
                  {"MILLRACE_DETERMINISTIC", &result.math.deterministic},
                  {"MILLRACE_CUDA_BLOCKING", &result.blocking},
                  {"MILLRACE_CUDA_EXACT_MEMORY", &result.exact_memory}};
  for (const auto& [name, value] : switches) {
    const char* const text = getenv(name);
    if (text == nullptr || *text == '\0') continue;
    const std::string_view given(text);
    if (given == "1" || given == "true") {
      *value = true;
    } else if (given == "0" || given == "false") {
      *value = false;
    } else {
      return errors::InvalidArgument(name, " is \"", given, "\": it can be 0 or 1");
    }
  }
  constexpr char kWorkspace[] = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB";
  if (const char* const text = getenv(kWorkspace); text != nullptr && *text != '\0') {
    int64_t megabytes = 0;
    if (!ParseInt64(text, &megabytes) || megabytes < 0 || megabytes > (int64_t{1} << 40)) {
      return errors::InvalidArgument(kWorkspace, " is \"", text,
                                     "\": it can be a number of MiB, 0 for none");
    }
    result.math.convolution_workspace = megabytes << 20;
  }
  return result;
}

struct CudaDevices::Impl {
  Shared shared;
  Mutex mu;
  std::map<AcceleratorOptions, std::unique_ptr<CudaFactory>> factories ABSL_GUARDED_BY(mu);
};

CudaDevices::CudaDevices(CudaDriver* driver, const CudaHandles& handles, CudaActivities* activities)
    : impl_(std::make_unique<Impl>()) {
  impl_->shared.driver = driver;
  impl_->shared.handles = handles;
  impl_->shared.activities = activities;
}
CudaDevices::~CudaDevices() = default;

StatusOr<int> CudaDevices::Count(const AcceleratorOptions& options) const {
  MR_ASSIGN_OR_RETURN(const std::vector<Place> places, PlacesOf(impl_->shared.driver, options));
  return static_cast<int>(places.size());
}

const DeviceFactory* CudaDevices::Factory(const AcceleratorOptions& options) {
  MutexLock lock(&impl_->mu);
  std::unique_ptr<CudaFactory>& factory = impl_->factories[options];
  if (factory == nullptr) factory = std::make_unique<CudaFactory>(&impl_->shared, options);
  return factory.get();
}

std::string Describe(const CudaProperties& gpu) {
  return StrCat("device: ", gpu.ordinal, ", name: ", gpu.name, ", pci bus id: ", gpu.pci_bus_id,
                ", compute capability: ", gpu.compute_capability / 10, ".",
                gpu.compute_capability % 10);
}

StatusOr<std::vector<CudaProperties>> FindGpus(CudaDriver* driver) {
  MR_ASSIGN_OR_RETURN(const int count, driver->NumDevices());
  std::vector<CudaProperties> found;
  for (int i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(CudaProperties gpu, driver->Properties(i));
    found.push_back(std::move(gpu));
  }
  return found;
}

}  // namespace millrace
