// SPDX-License-Identifier: Apache-2.0
// Devices "GPU" without a GPU: the CUDA device over a simulated driver, with the CPU's kernels.
#ifndef TESTS_DEVICE_CONFORMANCE_SIMULATED_GPUS_H_
#define TESTS_DEVICE_CONFORMANCE_SIMULATED_GPUS_H_

#include "device/cuda/simulated/simulated_driver.h"
#include "runtime/gpu.h"

namespace millrace::testing {

// From now on this process has two GPUs, whose streams take turns at random. Before kernels are
// asked for the first time, by any test of the program.
void UseSimulatedGpus();
SimulatedDriver* TheSimulatedDriver();
// What UseSimulatedGpus sets, for tests that add kernels to it.
const GpuSupport& SimulatedGpuSupport();

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_SIMULATED_GPUS_H_
