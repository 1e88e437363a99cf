// SPDX-License-Identifier: Apache-2.0
// The driver of this machine, libcuda.so.1.
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "base/status_macros.h"
#include "device/cuda/driver/cuda_driver.h"
#include "device/cuda/driver/driver_calls.h"
#include "device/cuda/driver/shared_library.h"

namespace millrace {
namespace {

// Of the driver's enumerations, what is used here.
constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 2;
constexpr int kNoDevice = 100;
constexpr int kNotReady = 600;
constexpr int kPeerAccessAlreadyEnabled = 704;
constexpr int kAttributeMultiprocessors = 16;
constexpr int kAttributeL2Cache = 38;
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kAttributeSharedMemoryOptin = 97;
constexpr int kOptionErrorLog = 5;
constexpr int kOptionErrorLogSize = 6;
constexpr unsigned kPortable = 1;     // pinned memory of every context
constexpr unsigned kNonBlocking = 1;  // a stream that does not wait for the default one
constexpr unsigned kNoTiming = 2;
constexpr int kCaptureRelaxed = 2;    // other calls of the thread are no part of it
constexpr int kOldestDriver = 13000;  // CUDA 13.0, that of the run time that is linked

DriverAddress Address(const void* pointer) { return reinterpret_cast<DriverAddress>(pointer); }

class LoadedDriver final : public CudaDriver {
 public:
  explicit LoadedDriver(const DriverCalls& calls) : calls_(calls) {}

  Status Start() {
    MR_RETURN_IF_ERROR(Check(calls_.cuInit(0), "cuInit"));
    int version = 0;
    MR_RETURN_IF_ERROR(Check(calls_.cuDriverGetVersion(&version), "cuDriverGetVersion"));
    if (version < kOldestDriver) {
      return errors::FailedPrecondition(
          "the NVIDIA driver is for CUDA ", version / 1000, ".", version % 1000 / 10,
          " and this program needs CUDA 13.0: install a driver of version 580 or newer");
    }
    return OkStatus();
  }

  StatusOr<int> NumDevices() override {
    int count = 0;
    const int result = calls_.cuDeviceGetCount(&count);
    if (result == kNoDevice) return 0;
    MR_RETURN_IF_ERROR(Check(result, "cuDeviceGetCount"));
    return count;
  }

  StatusOr<CudaProperties> Properties(int ordinal) override {
    MR_ASSIGN_OR_RETURN(const int device, Device(ordinal));
    CudaProperties found;
    found.ordinal = ordinal;
    char text[256] = "";
    MR_RETURN_IF_ERROR(
        Check(calls_.cuDeviceGetName(text, sizeof(text), device), "cuDeviceGetName"));
    found.name = text;
    MR_RETURN_IF_ERROR(
        Check(calls_.cuDeviceGetPCIBusId(text, sizeof(text), device), "cuDeviceGetPCIBusId"));
    found.pci_bus_id = text;
    std::size_t memory = 0;
    MR_RETURN_IF_ERROR(Check(calls_.cuDeviceTotalMem_v2(&memory, device), "cuDeviceTotalMem"));
    found.memory = static_cast<int64_t>(memory);
    int major = 0;
    int minor = 0;
    int l2_cache = 0;
    const struct {
      int attribute;
      int* value;
    } attributes[] = {{kAttributeMajor, &major},
                      {kAttributeMinor, &minor},
                      {kAttributeMultiprocessors, &found.num_multiprocessors},
                      {kAttributeL2Cache, &l2_cache},
                      {kAttributeSharedMemoryOptin, &found.shared_memory_per_block}};
    for (const auto& [attribute, value] : attributes) {
      MR_RETURN_IF_ERROR(
          Check(calls_.cuDeviceGetAttribute(value, attribute, device), "cuDeviceGetAttribute"));
    }
    found.compute_capability = major * 10 + minor;
    found.l2_cache = l2_cache;
    return found;
  }

  StatusOr<void*> RetainContext(int ordinal) override {
    MR_ASSIGN_OR_RETURN(const int device, Device(ordinal));
    void* context = nullptr;
    MR_RETURN_IF_ERROR(
        Check(calls_.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
    return context;
  }
  void ReleaseContext(int ordinal) override {
    const StatusOr<int> device = Device(ordinal);
    if (device.ok()) calls_.cuDevicePrimaryCtxRelease_v2(*device);
  }
  Status SetCurrent(void* context) override {
    return Check(calls_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  }
  Status EnablePeer(int ordinal, int peer_ordinal, void* peer) override {
    MR_ASSIGN_OR_RETURN(const int device, Device(ordinal));
    MR_ASSIGN_OR_RETURN(const int peer_device, Device(peer_ordinal));
    int can = 0;
    MR_RETURN_IF_ERROR(
        Check(calls_.cuDeviceCanAccessPeer(&can, device, peer_device), "cuDeviceCanAccessPeer"));
    if (can == 0) {
      return errors::FailedPrecondition("GPU ", ordinal, " cannot reach the memory of GPU ",
                                        peer_ordinal);
    }
    const int result = calls_.cuCtxEnablePeerAccess(peer, 0);
    if (result == kPeerAccessAlreadyEnabled) return OkStatus();
    return Check(result, "cuCtxEnablePeerAccess");
  }

  StatusOr<MemoryInfo> Memory() override {
    std::size_t free = 0;
    std::size_t total = 0;
    MR_RETURN_IF_ERROR(Check(calls_.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo"));
    return MemoryInfo{static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }
  StatusOr<void*> Allocate(std::size_t bytes) override {
    DriverAddress address = 0;
    MR_RETURN_IF_ERROR(Check(calls_.cuMemAlloc_v2(&address, bytes), "cuMemAlloc"));
    return reinterpret_cast<void*>(address);
  }
  void Free(void* memory) override { calls_.cuMemFree_v2(Address(memory)); }
  StatusOr<void*> AllocatePinned(std::size_t bytes) override {
    void* memory = nullptr;
    MR_RETURN_IF_ERROR(Check(calls_.cuMemHostAlloc(&memory, bytes, kPortable), "cuMemHostAlloc"));
    return memory;
  }
  void FreePinned(void* memory) override { calls_.cuMemFreeHost(memory); }

  StatusOr<void*> NewStream(bool high_priority) override {
    int least = 0;
    int greatest = 0;
    MR_RETURN_IF_ERROR(Check(calls_.cuCtxGetStreamPriorityRange(&least, &greatest),
                             "cuCtxGetStreamPriorityRange"));
    void* stream = nullptr;
    MR_RETURN_IF_ERROR(Check(
        calls_.cuStreamCreateWithPriority(&stream, kNonBlocking, high_priority ? greatest : least),
        "cuStreamCreateWithPriority"));
    return stream;
  }
  void DeleteStream(void* stream) override { calls_.cuStreamDestroy_v2(stream); }
  Status Synchronize(void* stream) override {
    return Check(calls_.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  StatusOr<void*> NewEvent() override {
    void* event = nullptr;
    MR_RETURN_IF_ERROR(Check(calls_.cuEventCreate(&event, kNoTiming), "cuEventCreate"));
    return event;
  }
  void DeleteEvent(void* event) override { calls_.cuEventDestroy_v2(event); }
  Status Record(void* event, void* stream) override {
    return Check(calls_.cuEventRecord(event, stream), "cuEventRecord");
  }
  StatusOr<bool> Query(void* event) override {
    const int result = calls_.cuEventQuery(event);
    if (result == kSuccess) return true;
    if (result == kNotReady) return false;
    return Check(result, "cuEventQuery");
  }
  Status Wait(void* stream, void* event) override {
    return Check(calls_.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
  }
  Status Copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    return Check(calls_.cuMemcpyAsync(Address(to), Address(from), bytes, stream), "cuMemcpyAsync");
  }
  Status Fill(void* to, unsigned char value, std::size_t bytes, void* stream) override {
    return Check(calls_.cuMemsetD8Async(Address(to), value, bytes, stream), "cuMemsetD8Async");
  }

  Status BeginCapture(void* stream) override {
    return Check(calls_.cuStreamBeginCapture_v2(stream, kCaptureRelaxed), "cuStreamBeginCapture");
  }
  StatusOr<void*> EndCapture(void* stream) override {
    void* graph = nullptr;
    MR_RETURN_IF_ERROR(Check(calls_.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture"));
    return graph;
  }
  StatusOr<void*> Instantiate(void* graph) override {
    void* executable = nullptr;
    MR_RETURN_IF_ERROR(
        Check(calls_.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate"));
    return executable;
  }
  Status Launch(void* executable, void* stream) override {
    return Check(calls_.cuGraphLaunch(executable, stream), "cuGraphLaunch");
  }
  void DeleteGraph(void* graph) override { calls_.cuGraphDestroy(graph); }
  void DeleteExecutable(void* executable) override { calls_.cuGraphExecDestroy(executable); }

  StatusOr<void*> LoadModule(const void* image) override {
    char log[4096] = "";
    int options[] = {kOptionErrorLog, kOptionErrorLogSize};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    void* module = nullptr;
    const Status status =
        Check(calls_.cuModuleLoadDataEx(&module, image, 2, options, values), "cuModuleLoadDataEx");
    if (status.ok()) return module;
    if (errors::IsResourceExhausted(status)) return status;
    return errors::InvalidArgument(Message(status), log[0] == '\0' ? "" : ": ", log);
  }
  void UnloadModule(void* module) override { calls_.cuModuleUnload(module); }
  StatusOr<void*> FindFunction(void* module, const std::string& name) override {
    void* function = nullptr;
    MR_RETURN_IF_ERROR(
        Check(calls_.cuModuleGetFunction(&function, module, name.c_str()), "cuModuleGetFunction"));
    return function;
  }
  Status LaunchKernel(void* function, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                      unsigned shared_bytes, void* stream, void** arguments) override {
    return Check(calls_.cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1],
                                       block[2], shared_bytes, stream, arguments, nullptr),
                 "cuLaunchKernel");
  }

 private:
  Status Check(int result, const char* call) const {
    if (result == kSuccess) return OkStatus();
    const char* name = nullptr;
    const char* text = nullptr;
    calls_.cuGetErrorName(result, &name);
    calls_.cuGetErrorString(result, &text);
    const std::string message =
        StrCat(call, ": ", name == nullptr ? "CUDA error" : name, " (", result, ")",
               text == nullptr ? "" : ", ", text == nullptr ? "" : text);
    if (result == kOutOfMemory) return errors::ResourceExhausted(message);
    return errors::Internal(message);
  }
  StatusOr<int> Device(int ordinal) const {
    int device = 0;
    MR_RETURN_IF_ERROR(Check(calls_.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
    return device;
  }

  const DriverCalls calls_;
};

StatusOr<CudaDriver*> Load() {
  MR_ASSIGN_OR_RETURN(
      const SharedLibrary library,
      SharedLibrary::Open("libcuda.so.1", "install NVIDIA's driver, version 580 or newer"));
  DriverCalls calls;
#define MR_DRIVER_FIND(name, ...)                                           \
  calls.name = reinterpret_cast<decltype(calls.name)>(library.Find(#name)); \
  if (calls.name == nullptr) return library.Lacks(#name);
  MR_DRIVER_CALLS(MR_DRIVER_FIND)
#undef MR_DRIVER_FIND
  auto driver = std::make_unique<LoadedDriver>(calls);
  MR_RETURN_IF_ERROR(driver->Start());
  return driver.release();
}

}  // namespace

StatusOr<CudaDriver*> LoadedCudaDriver() {
  static const auto* const loaded = new StatusOr<CudaDriver*>(Load());
  return *loaded;
}

}  // namespace millrace
