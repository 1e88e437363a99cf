// SPDX-License-Identifier: Apache-2.0
// NVIDIA's assembler takes what is made of fused programs. There only where its toolkit is.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "base/strings.h"
#include "gtest/gtest.h"
#include "jit/fused_test_util.h"
#include "jit/ptx_test_util.h"

namespace millrace::jit {
namespace {

// "" or what the assembler says of all kernels, in one file each.
std::string Assemble(const std::string& ptx, const std::string& name, const std::string& arch) {
  const std::string path = StrCat(std::getenv("TEST_TMPDIR"), "/", name, ".ptx");
  std::ofstream(path) << ptx;
  const std::string command =
      StrCat(std::getenv("PTXAS"), " -O3 -arch=", arch, " -o ", path, ".cubin ", path, " 2>&1");
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "no process for the assembler";
  std::string said;
  char part[512];
  while (const std::size_t n = std::fread(part, 1, sizeof(part), pipe)) said.append(part, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return StrCat("status ", status, ": ", said, "\n", ptx);
}

TEST(PtxAssemblyTest, EveryOpIsTakenForTheArchitecturesThatWeBuildFor) {
  int number = 0;
  for (const PtxCase& c : PtxCases()) {
    // Made for the oldest and the newest, assembled for what it would be loaded on.
    const bool old = number++ % 2 == 0;
    EXPECT_EQ(Assemble(PtxOf(c, old ? "sm_75" : "sm_90a"), c.name, "sm_90a"), "") << c.name;
  }
}

TEST(PtxAssemblyTest, ReductionsAreTaken) {
  for (const ReductionCase& c : ReductionCases()) {
    EXPECT_EQ(Assemble(PtxOf(c.map, "sm_75", c.reduction), c.map.name, "sm_90a"), "");
    EXPECT_EQ(Assemble(PtxOf(c.map, "sm_75", c.reduction), c.map.name, "sm_75"), "");
  }
}

TEST(PtxAssemblyTest, EveryArchitectureIsTakenByItself) {
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a"}) {
    EXPECT_EQ(Assemble(PtxOf(PtxCases().back(), arch), arch, arch), "");
  }
}

TEST(PtxAssemblyTest, RandomProgramsAreTaken) {
  int made = 0;
  for (int seed = 0; seed < 40 && made < 16; ++seed) {
    std::mt19937 random(seed);
    const RandomCase c = MakeRandomCase(random, Shape({16, 12}));
    std::vector<Shape> shapes;
    std::vector<DataType> types;
    for (const Tensor& input : c.inputs) {
      shapes.push_back(input.shape());
      types.push_back(input.dtype());
    }
    const FusedLayout layout = MakeFusedLayout(c.program, shapes);
    if (!layout.is_one_loop) continue;
    std::string error;
    const std::string ptx = MakePtx(c.program, types, layout.spreads, "sm_75", &error);
    EXPECT_EQ(error, "");
    EXPECT_EQ(Assemble(ptx, StrCat("random", seed), "sm_90a"), "") << FormatFusedProgram(c.program);
    ++made;
  }
  EXPECT_GE(made, 8);
}

}  // namespace
}  // namespace millrace::jit
