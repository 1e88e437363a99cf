// SPDX-License-Identifier: Apache-2.0
// A simulated driver: what tests of GPUs say of sessions, memory and errors holds there too.
#include <chrono>
#include <thread>

#include "tests/device_conformance/simulated_gpus.h"
#include "tests/gpu/gpus.h"

namespace millrace::testing {
namespace {

Status Issue(CudaMachine* machine, TestKernel kernel) {
  if (kernel != TestKernel::kSpin) {
    return TheSimulatedDriver()->LaunchFault(machine->compute_stream());
  }
  return TheSimulatedDriver()->LaunchFunction(machine->compute_stream(), [] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kSpinNanoseconds));
  });
}

}  // namespace

const TestGpus& GpusForTests() {
  static const TestGpus gpus = {.simulated = true,
                                .obstacle = "",
                                .driver = TheSimulatedDriver(),
                                .support = &SimulatedGpuSupport(),
                                .issue = &Issue};
  return gpus;
}

}  // namespace millrace::testing
