// SPDX-License-Identifier: Apache-2.0
// What the tests of libraries share: operands, and a body through a library beside our own loops.
#ifndef KERNELS_CUDA_LIBRARY_TEST_H_
#define KERNELS_CUDA_LIBRARY_TEST_H_

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/host_machine.h"
#include "kernels/cuda/library_body.h"
#include "kernels/cuda/library_cases.h"
#include "kernels/gpu/body.h"

namespace millrace::testing {

class LibraryTest : public ::testing::Test {
 protected:
  LibraryTest() {
    // Plans of other tests are not found again.
    static int ordinal = 0;
    machine_.properties_.ordinal = ++ordinal;
  }

  // `body` calls a library for the node of `c`; our loops, which goldens check, are the reference.
  // With expect_done false the library does not know this operation.
  void CheckAgainstLoops(KernelConstruction& c, const LibraryBody* body, std::vector<Tensor> inputs,
                         const Shape& shape, bool expect_done) {
    ASSERT_NE(body, nullptr);
    StreamCall call;
    call.inputs = std::move(inputs);
    const DataType type = call.inputs[0].dtype();
    call.outputs = {Tensor(type, shape)};
    const auto done = body->Run(call, &machine_, gpu::HostLoops());
    ASSERT_TRUE(done.ok()) << done.status();
    ASSERT_EQ(*done, expect_done);
    if (!expect_done) return;
    const Tensor result = call.outputs[0];
    call.outputs = {Tensor(type, shape)};
    const auto loops = gpu::FindBody(c)->make(c);
    ASSERT_TRUE(loops->Run(call, gpu::HostLoops(), {}).ok());
    EXPECT_TRUE(TensorsEqual(result, call.outputs[0]))
        << result.DebugString(20) << " instead of " << call.outputs[0].DebugString(20);
  }

  HostMachine machine_;
};

}  // namespace millrace::testing

#endif  // KERNELS_CUDA_LIBRARY_TEST_H_
