// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine.
#include <map>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "millrace/gpu.h"
#include "tests/gpu/gpus.h"
#include "tests/gpu/test_kernels.h"

namespace millrace::testing {
namespace {

// Of one GPU. Loaded together, as the driver may wait for what runs when it loads code.
struct Functions {
  void *bad_address = nullptr, *trap = nullptr, *spin = nullptr;
};

// The modules are never unloaded: a context has them to its end, or is lost.
StatusOr<Functions> FunctionsOf(CudaMachine* machine) {
  static auto* const mu = new Mutex;
  static auto* const by_ordinal = new std::map<int, Functions>;
  MutexLock lock(mu);
  const int ordinal = machine->properties().ordinal;
  if (const auto found = by_ordinal->find(ordinal); found != by_ordinal->end()) {
    return found->second;
  }
  CudaDriver* const driver = machine->driver();
  Functions made;
  MR_ASSIGN_OR_RETURN(void* const module, driver->LoadModule(kTestKernelsPtx));
  MR_ASSIGN_OR_RETURN(made.bad_address, driver->FindFunction(module, "bad_address"));
  MR_ASSIGN_OR_RETURN(made.trap, driver->FindFunction(module, "trap_now"));
  MR_ASSIGN_OR_RETURN(made.spin, driver->FindFunction(module, "spin"));
  return (*by_ordinal)[ordinal] = made;
}

Status Issue(CudaMachine* machine, TestKernel kernel) {
  MR_ASSIGN_OR_RETURN(const Functions functions, FunctionsOf(machine));
  void* const function = kernel == TestKernel::kBadAddress ? functions.bad_address
                         : kernel == TestKernel::kTrap     ? functions.trap
                                                           : functions.spin;
  int64_t nanoseconds = kSpinNanoseconds;
  void* arguments[] = {&nanoseconds};
  return machine->driver()->LaunchKernel(function, {1, 1, 1}, {1, 1, 1}, 0,
                                         machine->compute_stream(),
                                         kernel == TestKernel::kSpin ? arguments : nullptr);
}

}  // namespace

const TestGpus& GpusForTests() {
  static const TestGpus gpus = [] {
    TestGpus found;
    found.support = &BuiltInGpuSupport();
    found.issue = &Issue;
    if (const auto there = FindGpus(); !there.ok()) found.obstacle = Message(there.status());
    if (const auto driver = LoadedCudaDriver(); driver.ok()) found.driver = *driver;
    return found;
  }();
  return gpus;
}

}  // namespace millrace::testing
