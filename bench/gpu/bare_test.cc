// SPDX-License-Identifier: Apache-2.0
// NVIDIA's assembler takes the kernel of the bare figures.
#include "bench/gpu/bare.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace millrace::bench {
namespace {

TEST(BareTest, TheKernelIsAssembled) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/add.ptx";
  std::ofstream(path) << kBareAddPtx;
  const std::string command =
      std::string(std::getenv("PTXAS")) + " -arch=sm_90a -o " + path + ".cubin " + path;
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace millrace::bench
