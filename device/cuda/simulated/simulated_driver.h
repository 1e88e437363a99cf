// SPDX-License-Identifier: Apache-2.0
// A driver whose devices are threads of this process, for tests of what is above it. Its device
// memory is host memory; "kernels" are functions.
#ifndef DEVICE_CUDA_SIMULATED_SIMULATED_DRIVER_H_
#define DEVICE_CUDA_SIMULATED_SIMULATED_DRIVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/cuda/driver/cuda_driver.h"
#include "millrace/status.h"

namespace millrace {

struct SimulatedDriverOptions {
  int num_devices = 2;
  int64_t memory = int64_t{64} << 20;  // of each, bytes
  int64_t used_by_others = 0;
  // Not 0: streams take turns at random.
  uint64_t seed = 0;
};

class SimulatedDriver : public CudaDriver {
 public:
  static std::unique_ptr<SimulatedDriver> New(SimulatedDriverOptions options = {});

  // A kernel: `fn` runs when the stream comes to it. During a capture it is recorded.
  virtual Status LaunchFunction(void* stream, std::function<void()> fn) = 0;
  // A kernel that loses the context when the stream comes to it.
  virtual Status LaunchFault(void* stream) = 0;

  // What is issued, from now on, is told first, by the thread that issues it. `to` and `from` are
  // those of a copy; a fill has no `from`, a kernel neither.
  struct Issued {
    void* stream = nullptr;
    const void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
  };
  virtual void SetOnIssue(std::function<void(const Issued&)> on_issue) = 0;

  // The devices' threads stand still, or go on.
  virtual void Hold() = 0;
  virtual void Release() = 0;
  // The next call of that name ("cuMemAlloc") fails with this; it does not lose the context.
  virtual void FailNext(const std::string& call, Status status) = 0;

  // What there is: 0 of all once the machines are gone.
  struct Census {
    int contexts = 0;
    int streams = 0;
    int events = 0;
    int allocations = 0;
    int pinned_allocations = 0;
    int graphs = 0;
    friend bool operator==(const Census&, const Census&) = default;
  };
  virtual Census Count() = 0;
  // How often the driver was asked for something, by name of the call.
  virtual int64_t NumCalls(const std::string& call) = 0;
  // Copies to a device from host memory that is not pinned; they would keep the host waiting.
  virtual int64_t num_pageable_copies() = 0;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_SIMULATED_SIMULATED_DRIVER_H_
