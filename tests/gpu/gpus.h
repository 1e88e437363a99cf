// SPDX-License-Identifier: Apache-2.0
// The GPUs that tests of tests/gpu run on: those of the machine, or simulated ones, which show that
// the tests themselves are right. One of two .cc files says which.
#ifndef TESTS_GPU_GPUS_H_
#define TESTS_GPU_GPUS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/driver/cuda_driver.h"
#include "device/cuda/driver/region_allocator.h"
#include "millrace/graph.h"
#include "runtime/gpu.h"

namespace millrace::testing {

// Kernels that a test wants of a device besides its own.
enum class TestKernel {
  kBadAddress,  // writes to memory that is not the device's
  kTrap,        // meets an instruction that ends it
  kSpin,        // keeps the compute stream busy for kSpin
};
inline constexpr int64_t kSpinNanoseconds = 1'500'000'000;

struct TestGpus {
  bool simulated = false;
  std::string obstacle;  // why there are none; "" if there are: then tests fail
  CudaDriver* driver = nullptr;
  const GpuSupport* support = nullptr;
  // Within an operation of the machine: issues the kernel into its compute stream.
  Status (*issue)(CudaMachine* machine, TestKernel kernel) = nullptr;
};
const TestGpus& GpusForTests();

// From now on the process has kernels of Neg for floats on GPUs with these labels ("_kernel"):
// "bad_address", "trap", "spin" (which makes zeros), and "probe" (which makes zeros, and notes what
// follows). Before the first session.
void UseTestKernels();
// Neg with a label.
Output Labelled(const Scope& scope, const std::string& label, const Input& x);

// What the last probe that was enqueued has seen.
struct Probed {
  std::shared_ptr<RegionAllocator> memory;
  CudaProperties properties;
  CudaDriver::MemoryInfo driver;  // of the GPU, by everybody
  int64_t steady_nanos = 0;       // when it was issued
};
Probed LastProbe();
// How many blocks of it are in use.
int64_t LiveBlocks(const RegionAllocator& memory);

// What is free on a GPU, of which this process may use nothing yet.
StatusOr<CudaDriver::MemoryInfo> MemoryOf(int ordinal);

}  // namespace millrace::testing

#endif  // TESTS_GPU_GPUS_H_
