// SPDX-License-Identifier: Apache-2.0
// What a CUDA device needs of NVIDIA's driver. The driver's interface is stable, so it is declared
// here once more and no toolkit is needed to build, or to test against a simulated one.
#ifndef DEVICE_CUDA_DRIVER_CUDA_DRIVER_H_
#define DEVICE_CUDA_DRIVER_CUDA_DRIVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver/cuda_machine.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe; as long-lived as the process. Calls that touch a device's streams, events or
// memory act on the context that is current in the calling thread. Errors name the call and the
// driver's error: ResourceExhausted for want of memory, Internal for everything else, after which
// the context may be lost for good.
class CudaDriver {
 public:
  virtual ~CudaDriver() = default;

  // Devices and contexts.
  virtual StatusOr<int> NumDevices() = 0;
  virtual StatusOr<CudaProperties> Properties(int ordinal) = 0;
  virtual StatusOr<void*> RetainContext(int ordinal) = 0;  // CUcontext, the primary one
  virtual void ReleaseContext(int ordinal) = 0;
  virtual Status SetCurrent(void* context) = 0;
  // Lets the current context reach the memory of `peer`; FailedPrecondition if the devices cannot,
  // in which case copies go through host memory.
  virtual Status EnablePeer(int ordinal, int peer_ordinal, void* peer) = 0;

  // Memory.
  struct MemoryInfo {
    int64_t free = 0;
    int64_t total = 0;
  };
  virtual StatusOr<MemoryInfo> Memory() = 0;
  virtual StatusOr<void*> Allocate(std::size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual StatusOr<void*> AllocatePinned(std::size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // Streams (CUstream) and events (CUevent), without timing.
  virtual StatusOr<void*> NewStream(bool high_priority) = 0;
  virtual void DeleteStream(void* stream) = 0;
  virtual Status Synchronize(void* stream) = 0;
  virtual StatusOr<void*> NewEvent() = 0;
  virtual void DeleteEvent(void* event) = 0;
  virtual Status Record(void* event, void* stream) = 0;
  // Whether it has happened; the error of the context if that is lost.
  virtual StatusOr<bool> Query(void* event) = 0;
  virtual Status Wait(void* stream, void* event) = 0;
  // Between any two places; the driver knows where they are.
  virtual Status Copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  virtual Status Fill(void* to, unsigned char value, std::size_t bytes, void* stream) = 0;

  // Graphs (CUgraph, CUgraphExec): what this thread issues to the stream from BeginCapture to
  // EndCapture is recorded and does not run.
  virtual Status BeginCapture(void* stream) = 0;
  virtual StatusOr<void*> EndCapture(void* stream) = 0;
  virtual StatusOr<void*> Instantiate(void* graph) = 0;
  virtual Status Launch(void* executable, void* stream) = 0;
  virtual void DeleteGraph(void* graph) = 0;
  virtual void DeleteExecutable(void* executable) = 0;

  // Code: `image` is PTX that ends with a zero, or a cubin. InvalidArgument with the driver's log
  // if it cannot be compiled. A module is of the current context.
  virtual StatusOr<void*> LoadModule(const void* image) = 0;
  virtual void UnloadModule(void* module) = 0;
  virtual StatusOr<void*> FindFunction(void* module, const std::string& name) = 0;
  virtual Status LaunchKernel(void* function, std::array<unsigned, 3> grid,
                              std::array<unsigned, 3> block, unsigned shared_bytes, void* stream,
                              void** arguments) = 0;
};

// libcuda.so.1. NotFound if there is no driver, FailedPrecondition if it is too old, with what to
// do in both. Loaded at the first call.
StatusOr<CudaDriver*> LoadedCudaDriver();

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_CUDA_DRIVER_H_
