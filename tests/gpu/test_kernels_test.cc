// SPDX-License-Identifier: Apache-2.0
// NVIDIA's assembler takes the kernels that tests run.
#include "tests/gpu/test_kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace millrace::testing {
namespace {

TEST(TestKernelsTest, AreAssembled) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/kernels.ptx";
  std::ofstream(path) << kTestKernelsPtx;
  const std::string command =
      std::string(std::getenv("PTXAS")) + " -arch=sm_90a -o " + path + ".cubin " + path;
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace millrace::testing
