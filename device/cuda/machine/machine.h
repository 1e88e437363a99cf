// SPDX-License-Identifier: Apache-2.0
// The machine behind a device "GPU": streams, events, callbacks, memory, errors.
#ifndef DEVICE_CUDA_MACHINE_MACHINE_H_
#define DEVICE_CUDA_MACHINE_MACHINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/driver/cuda_driver.h"
#include "device/cuda/driver/cuda_machine.h"
#include "device/cuda/driver/region_allocator.h"

namespace millrace {

class CudaActivities;  // device/cuda/trace/cuda_activity.h

// Handles of NVIDIA's libraries, as opaque pointers: the machine is built without their headers.
struct CudaHandles {
  enum Kind { kCublasLt, kCublas, kCudnn };
  static constexpr int kNumKinds = 3;
  // In the current context, bound to the stream. The error says what is missing.
  StatusOr<void*> (*make)(Kind kind, void* stream) = nullptr;
  void (*destroy)(Kind kind, void* handle) = nullptr;
};

struct CudaMachineOptions {
  std::string name;  // of the device
  CudaDriver* driver = nullptr;
  CudaHandles handles;
  CudaActivities* activities = nullptr;  // null: traces hold nothing of what the device runs
  int ordinal = 0;
  int64_t memory_limit = 0;    // bytes; 0: see memory_fraction
  double memory_fraction = 0;  // of all; 0: what is free, less a reserve for libraries
  bool allow_growth = false;
  int64_t pinned_limit = int64_t{16} << 30;  // bytes of host memory for copies
  CudaMathOptions math;
  // Waits for every operation, so that an error is that of the node that made it.
  bool blocking = false;
  // Takes and gives back memory tensor by tensor, for compute-sanitizer.
  bool exact_memory = false;
  // How long the end of the machine waits for what runs on it.
  std::chrono::milliseconds stop_limit{60'000};
};

// How it works.
//
// An operation is issued by the thread that enqueues it, and then stands in a list of its stream.
// One thread of the machine, the watcher, follows the lists: it records an event behind the last
// operation of a stream (one at a time, so that a busy stream has few events), asks the driver
// whether it has happened, and then ends all operations before it, in their order. Asking is
// chosen over cudaLaunchHostFunc, which leaves a gap in the stream for every call and is silent
// about a context that is lost; it is also how errors are found. While nothing is under way the
// watcher sleeps, and while something is it asks at the pace of wait_pace.h. Callbacks have events
// of their own and run on host threads of the machine.
//
// An error that the driver reports for a context is final. It is given to all operations that had
// not been seen to end, and names them; everything that is enqueued later fails with it.
class CudaMachineImpl : public CudaMachine {
 public:
  // The last share, when it goes, waits for what runs, and gives everything back.
  static StatusOr<std::shared_ptr<CudaMachineImpl>> Start(CudaMachineOptions options);

  virtual Status Synchronize(std::chrono::milliseconds limit) = 0;
  // The error that ended it; OK while it works.
  virtual Status failure() const = 0;
  virtual void* context() const = 0;  // CUcontext
  virtual const std::shared_ptr<RegionAllocator>& memory() const = 0;
  virtual const std::shared_ptr<RegionAllocator>& pinned() const = 0;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_MACHINE_H_
