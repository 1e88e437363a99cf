// SPDX-License-Identifier: Apache-2.0
// What GPUs run for traced steps, as NVIDIA's CUPTI tells it.
//
// While a step is recorded anywhere in the process, CUPTI records the kernels, copies and fills of
// all GPUs, and this thread's number of the operation that is being issued stands beside each
// (an external correlation id, pushed and popped around it). The records come in buffers, late, on
// threads of CUPTI's, in any order. When a step has ended, a thread of this object's asks CUPTI for
// its buffers; what belongs to the step's operations is then taken out of them. Steps that are
// recorded at the same time share CUPTI and the buffers, and each takes its own; the others' is
// dropped. With the last recording CUPTI is switched off again; it stays loaded.
#ifndef DEVICE_CUDA_TRACE_CUDA_ACTIVITY_H_
#define DEVICE_CUDA_TRACE_CUDA_ACTIVITY_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "device/activity.h"
#include "device/cuda/trace/cupti_calls.h"
#include "device/stream.h"
#include "millrace/status.h"

namespace millrace {

struct CudaActivityOptions {
  // Asked at the first recording.
  std::function<StatusOr<const CuptiCalls*>()> load = &LoadedCupti;
  std::size_t buffer_bytes = std::size_t{1} << 20;  // some 3,000 kernels; a multiple of 8
  int max_buffers = 64;                             // beyond them records are dropped, and counted
  // How long buffers may come after CUPTI has said that it handed out all.
  std::chrono::milliseconds settle{50};
  std::function<int64_t()> wall_nanos = &WallNanos;
};

// One for a process, as CUPTI knows one receiver of buffers. Thread-safe.
class CudaActivities {
 public:
  explicit CudaActivities(CudaActivityOptions options);
  // After all recordings.
  ~CudaActivities();
  CudaActivities(const CudaActivities&) = delete;
  CudaActivities& operator=(const CudaActivities&) = delete;

  // Of what is issued for `device` on the account of `work`. Unavailable, FailedPrecondition or
  // NotFound say what is missing, or that CUPTI refuses, and what to do.
  StatusOr<std::unique_ptr<ActivityRecording>> Record(const Accelerator* device,
                                                      RefPtr<DeviceWork> work);
  // Whether anything is recorded: all that operations ask when nothing is.
  bool any() const { return any_.load(std::memory_order_acquire); }

  // For CudaActivityScope. True if the work is recorded; then Pop follows on this thread.
  bool Push(const Accelerator* device, const DeviceWork* work, std::string_view node,
            StreamKind stream);
  void Pop();

 private:
  struct Impl;
  std::atomic<bool> any_{false};
  const std::unique_ptr<Impl> impl_;
};

// That of the process, over the CUPTI of this machine.
CudaActivities* LoadedCudaActivities();

// While it is in scope, this thread issues an operation of the node into the stream.
class CudaActivityScope {
 public:
  // `activities` and `work` may be null.
  CudaActivityScope(CudaActivities* activities, const Accelerator* device, const DeviceWork* work,
                    std::string_view node, StreamKind stream) {
    if (activities == nullptr || !activities->any() || work == nullptr) [[likely]]
      return;
    if (activities->Push(device, work, node, stream)) pushed_ = activities;
  }
  ~CudaActivityScope() {
    if (pushed_ != nullptr) pushed_->Pop();
  }
  CudaActivityScope(const CudaActivityScope&) = delete;
  CudaActivityScope& operator=(const CudaActivityScope&) = delete;

 private:
  CudaActivities* pushed_ = nullptr;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_TRACE_CUDA_ACTIVITY_H_
