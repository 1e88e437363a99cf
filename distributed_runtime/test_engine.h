// SPDX-License-Identifier: Apache-2.0
// The ops and kernels of the servers in tests.
#ifndef DISTRIBUTED_RUNTIME_TEST_ENGINE_H_
#define DISTRIBUTED_RUNTIME_TEST_ENGINE_H_

#include "kernels/data/data_kernels.h"
#include "kernels/host_kernels.h"
#include "master/session_test_util.h"

namespace millrace {

// All ops, those of TestGraph, and kernels for TestGraph, for files and for data sets.
struct TestEngine {
  TestEngine() {
    RegisterTestOpsAndKernels(ops, kernels);
    RegisterFileKernels(kernels);
    RegisterDataKernels(kernels);
  }
  OpRegistry ops;
  KernelRegistry kernels;
};

// The one of this process: servers may outlive the test that made them.
inline const TestEngine& TheTestEngine() {
  static const auto* const engine = new TestEngine;
  return *engine;
}

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_TEST_ENGINE_H_
