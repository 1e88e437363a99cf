// SPDX-License-Identifier: Apache-2.0
#include "tests/device_conformance/simulated_gpus.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "device/cuda/machine/cuda_device.h"
#include "device/cuda/simulated/simulated_cupti.h"
#include "device/cuda/trace/cuda_activity.h"
#include "gtest/gtest.h"
#include "jit/accelerator_fused_kernel.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/accelerator/computing_ops.h"
#include "kernels/fake/cpu_body.h"
#include "runtime/gpu.h"

namespace millrace::testing {
namespace {

// For the kernels that "kernels" run; what they keep is nobody's.
Device* Twin(Accelerator* machine) {
  struct Twins {
    struct One {
      std::unique_ptr<ResourceManager> resources;
      std::unique_ptr<Device> device;
    };
    Mutex mu;
    std::map<Accelerator*, One> by_machine ABSL_GUARDED_BY(mu);
  };
  static auto* const twins = new Twins;
  static auto* const pool = new ThreadPool("twin", 0);
  MutexLock lock(&twins->mu);
  Twins::One& one = twins->by_machine[machine];
  if (one.device == nullptr) {
    one.resources = std::make_unique<ResourceManager>();
    one.device =
        NewCpuDevice("/job:twin/replica:0/task:0/device:CPU:0", 1, pool, one.resources.get());
  }
  return one.device.get();
}

// Enqueues one "kernel", which computes when the simulated device comes to it.
class LaunchedBody final : public StreamBody {
 public:
  explicit LaunchedBody(std::shared_ptr<StreamBody> inner) : inner_(std::move(inner)) {}
  RecordedState recorded_state() const override { return inner_->recorded_state(); }
  Status Run(const StreamCall& call) const override { return Launch(call, &StreamBody::Run); }
  int64_t num_counts() const override { return inner_->num_counts(); }
  Status Count(const StreamCall& call) const override { return Launch(call, &StreamBody::Count); }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    return inner_->CountedShapes(call);
  }

 private:
  Status Launch(const StreamCall& call, Status (StreamBody::*work)(const StreamCall&) const) const {
    auto* const machine = static_cast<CudaMachine*>(call.machine);
    // The call lives until the operation has run.
    return TheSimulatedDriver()->LaunchFunction(machine->compute_stream(),
                                                [inner = inner_, &call, work] {
                                                  const Status status = (*inner.*work)(call);
                                                  if (!status.ok()) ADD_FAILURE() << status;
                                                });
  }

  const std::shared_ptr<StreamBody> inner_;
};

std::unique_ptr<Kernel> MakeLaunchedKernel(KernelConstruction& c) {
  std::shared_ptr<StreamBody> body = MakeCpuBody(c, &Twin);
  if (body == nullptr || !c.status().ok()) return nullptr;
  return MakeStreamKernel(c, std::make_shared<LaunchedBody>(std::move(body)));
}

// A fused loop: one "kernel", which is the host's code for a few threads, one after the other.
class LaunchedLoop final : public jit::GridLoop {
 public:
  LaunchedLoop(CudaMachine* machine, const jit::GridImage& image)
      : machine_(machine),
        function_(image.function),
        num_inputs_(image.num_inputs),
        num_outputs_(image.num_outputs) {}

  Status Launch(const void* const* in, void* const* out,
                const jit::GridSizes& sizes) const override {
    // As a driver does, it keeps what the arguments are now.
    const auto launch = [function = function_, sizes,
                         from = std::vector<const void*>(in, in + num_inputs_),
                         to = std::vector<void*>(out, out + num_outputs_)] {
      constexpr int64_t kThreads = 5;
      for (int64_t thread = 0; thread < kThreads; ++thread) {
        function(from.data(), to.data(), sizes.n, sizes.period, sizes.row, thread, kThreads);
      }
    };
    return TheSimulatedDriver()->LaunchFunction(machine_->compute_stream(), launch);
  }

 private:
  CudaMachine* const machine_;
  const MrJitGridFunction function_;
  const int num_inputs_, num_outputs_;
};

class LaunchedLoops final : public jit::GridBackend {
 public:
  StatusOr<std::string> ArchOf(const Accelerator*) const override { return std::string(); }
  StatusOr<std::unique_ptr<jit::GridLoop>> Load(Accelerator* machine,
                                                const jit::GridImage& image) const override {
    return std::make_unique<LaunchedLoop>(static_cast<CudaMachine*>(machine), image);
  }
};

const OpRegistry* fused_ops = nullptr;  // set before there are kernels

std::unique_ptr<Kernel> MakeLaunchedFused(KernelConstruction& c) {
  static const auto* const loops = new LaunchedLoops;
  return MakeAcceleratorFusedKernel(c, *fused_ops, *loops);
}

// Records what the simulated driver is given, as if it ran at once.
CudaActivities* TheActivities() {
  static CudaActivities* const activities = [] {
    static auto* const cupti = new SimulatedCupti;
    cupti->FollowHostClock();
    cupti->SetHabits({.backwards = true});
    TheSimulatedDriver()->SetOnIssue([](const SimulatedDriver::Issued& issued) {
      const auto stream = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(issued.stream) >> 4);
      const auto now = static_cast<uint64_t>(WallNanos());
      if (issued.to == nullptr) return cupti->Launch("kernel", stream, now, now);
      if (issued.from == nullptr) return cupti->Fill(issued.bytes, stream, now, now);
      const bool to_device = AcceleratorOf(issued.to) != nullptr;
      const bool from_device = AcceleratorOf(issued.from) != nullptr;
      const int kind = to_device && from_device ? cupti::kDeviceToDevice
                       : to_device              ? cupti::kHostToDevice
                                                : cupti::kDeviceToHost;
      cupti->Copy(static_cast<uint8_t>(kind), issued.bytes, stream, now, now);
    });
    CudaActivityOptions options;
    options.load = []() -> StatusOr<const CuptiCalls*> { return cupti->calls(); };
    return new CudaActivities(options);
  }();
  return activities;
}

CudaDevices* TheDevices() {
  static auto* const devices = new CudaDevices(TheSimulatedDriver(), {}, TheActivities());
  return devices;
}

void RegisterKernels(const OpRegistry& ops, KernelRegistry& registry) {
  const CpuKernels cpu = FindCpuKernels(registry);
  RegisterAcceleratorKernels(ops, cpu, "GPU", registry);
  for (const ComputingOp& row : ComputingOps()) {
    Adopt(ops, cpu, std::string(row.op),
          {"GPU", &MakeLaunchedKernel, row.host_args, DeviceTypes(), ""}, registry);
  }
  fused_ops = &ops;
  registry.Register(KernelDef("_Fused").Device("GPU"), &MakeLaunchedFused);
}

}  // namespace

SimulatedDriver* TheSimulatedDriver() {
  static SimulatedDriver* const driver =
      SimulatedDriver::New({.num_devices = 2, .memory = int64_t{1} << 30, .seed = 5}).release();
  return driver;
}

const GpuSupport& SimulatedGpuSupport() {
  static const GpuSupport support = {
      [](const AcceleratorOptions& options) { return TheDevices()->Count(options); },
      [](const AcceleratorOptions& options) { return TheDevices()->Factory(options); },
      &RegisterKernels};
  return support;
}

void UseSimulatedGpus() { SetGpuSupportForTest(&SimulatedGpuSupport()); }

}  // namespace millrace::testing
