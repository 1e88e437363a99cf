// SPDX-License-Identifier: Apache-2.0
// How fused loops are loaded and launched on a GPU, over a driver that notes what it is asked.
#include "jit/cuda_grid.h"

#include <cstring>
#include <string>
#include <vector>

#include "base/errors.h"
#include "device/cuda/driver/cuda_driver.h"
#include "device/cuda/driver/cuda_machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jit/ptx_test_util.h"

namespace millrace::jit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Status No() { return errors::Unimplemented("not part of this test"); }

// Only code.
class NotingDriver final : public CudaDriver {
 public:
  struct Launched {
    std::array<unsigned, 3> grid, block;
    void* stream;
    std::vector<uint64_t> arguments;
  };

  StatusOr<int> NumDevices() override { return No(); }
  StatusOr<CudaProperties> Properties(int) override { return No(); }
  StatusOr<void*> RetainContext(int) override { return No(); }
  void ReleaseContext(int) override {}
  Status SetCurrent(void*) override { return No(); }
  Status EnablePeer(int, int, void*) override { return No(); }
  StatusOr<MemoryInfo> Memory() override { return No(); }
  StatusOr<void*> Allocate(std::size_t) override { return No(); }
  void Free(void*) override {}
  StatusOr<void*> AllocatePinned(std::size_t) override { return No(); }
  void FreePinned(void*) override {}
  StatusOr<void*> NewStream(bool) override { return No(); }
  void DeleteStream(void*) override {}
  Status Synchronize(void*) override { return No(); }
  StatusOr<void*> NewEvent() override { return No(); }
  void DeleteEvent(void*) override {}
  Status Record(void*, void*) override { return No(); }
  StatusOr<bool> Query(void*) override { return No(); }
  Status Wait(void*, void*) override { return No(); }
  Status Copy(void*, const void*, std::size_t, void*) override { return No(); }
  Status Fill(void*, unsigned char, std::size_t, void*) override { return No(); }
  Status BeginCapture(void*) override { return No(); }
  StatusOr<void*> EndCapture(void*) override { return No(); }
  StatusOr<void*> Instantiate(void*) override { return No(); }
  Status Launch(void*, void*) override { return No(); }
  void DeleteGraph(void*) override {}
  void DeleteExecutable(void*) override {}

  StatusOr<void*> LoadModule(const void* image) override {
    EXPECT_TRUE(is_current) << "no context is current";
    ptx = static_cast<const char*>(image);
    if (refuses) return errors::InvalidArgument("ptxas says no");
    ++modules;
    return &ptx;
  }
  void UnloadModule(void* module) override {
    EXPECT_EQ(module, &ptx);
    --modules;
  }
  StatusOr<void*> FindFunction(void* module, const std::string& name) override {
    if (ptx.find(".visible .entry " + name + "(") == std::string::npos) {
      return errors::NotFound("no function ", name);
    }
    return &function;
  }
  Status LaunchKernel(void* called, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                      unsigned shared_bytes, void* stream, void** arguments) override {
    EXPECT_EQ(called, &function);
    EXPECT_EQ(shared_bytes, 0u);
    Launched& noted = launched.emplace_back(Launched{grid, block, stream, {}});
    for (int i = 0; i < num_arguments; ++i) {
      std::memcpy(&noted.arguments.emplace_back(), arguments[i], sizeof(uint64_t));
    }
    return OkStatus();
  }

  std::string ptx;
  bool refuses = false, is_current = false;
  int modules = 0, num_arguments = 0, function = 0;
  std::vector<Launched> launched;
};

class NotingMachine final : public CudaMachine {
 public:
  explicit NotingMachine(int capability) {
    properties_.name = "a GPU";
    properties_.compute_capability = capability;
    properties_.num_multiprocessors = 10;
    math_ = {};
  }
  const std::string& name() const override { return properties_.name; }
  Stream* stream(StreamKind) override { return nullptr; }
  Allocator* allocator() override { return nullptr; }
  Allocator* staging_allocator() override { return nullptr; }
  void Post(std::function<void()> fn) override { fn(); }
  const CudaProperties& properties() const override { return properties_; }
  const CudaMathOptions& math() const override { return math_; }
  CudaDriver* driver() override { return &noted; }
  void* compute_stream() override { return this; }
  Status MakeCurrent() override {
    noted.is_current = true;
    return OkStatus();
  }
  StatusOr<void*> cublaslt() override { return No(); }
  StatusOr<void*> cublas() override { return No(); }
  StatusOr<void*> cudnn() override { return No(); }
  StatusOr<void*> Workspace(std::size_t) override { return No(); }

  NotingDriver noted;

 private:
  CudaProperties properties_;
  CudaMathOptions math_;
};

GridImage ImageOf(const PtxCase& c, const std::string& arch) {
  const FusedProgram program = ParseCase(c);
  const TranslatedProgram translated(program, c.inputs, c.spreads);
  GridImage image;
  image.ptx = PtxOf(c, arch);
  image.lanes = GridLanes(translated.program());
  image.num_inputs = static_cast<int>(c.inputs.size());
  image.num_outputs = static_cast<int>(c.outputs.size());
  return image;
}

const PtxCase kBias = {"bias",
                       "BiasAdd:float i0 i1; Relu:float t0 > t1",
                       {kFloat, kFloat},
                       {kFloat},
                       {Spread::kEach, Spread::kRow}};

TEST(CudaGridTest, PtxIsForTheLatestArchitectureThatTheMachineHas) {
  const std::vector<std::pair<int, std::string>> table = {
      {75, "sm_75"}, {80, "sm_80"},  {86, "sm_86"},  {87, "sm_87"}, {89, "sm_89"},
      {90, "sm_90"}, {100, "sm_90"}, {103, "sm_90"}, {120, "sm_90"}};
  for (const auto& [capability, arch] : table) {
    NotingMachine gpu(capability);
    const auto found = CudaGrids().ArchOf(&gpu);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, arch) << capability;
    EXPECT_THAT(PtxOf(kBias, *found), HasSubstr(".target " + arch));
  }
  NotingMachine old(70);
  EXPECT_THAT(CudaGrids().ArchOf(&old).status().ToString(),
              HasSubstr("a GPU has compute capability 7.0; loops are compiled for 7.5 and later"));
}

TEST(CudaGridTest, ALaunchPassesAddressesAndSizesInTheOrderOfTheKernel) {
  NotingMachine gpu(90);
  gpu.noted.num_arguments = 5;
  const auto loop = CudaGrids().Load(&gpu, ImageOf(kBias, "sm_90"));
  ASSERT_TRUE(loop.ok()) << loop.status();
  const void* const in[] = {reinterpret_cast<void*>(0x1000), reinterpret_cast<void*>(0x2000)};
  void* const out[] = {reinterpret_cast<void*>(0x3000)};
  ASSERT_TRUE((*loop)->Launch(in, out, {4100, 410, 0}).ok());
  ASSERT_EQ(gpu.noted.launched.size(), 1u);
  const auto& launched = gpu.noted.launched[0];
  EXPECT_THAT(launched.arguments, ElementsAre(0x1000, 0x2000, 0x3000, 4100, 410));
  EXPECT_THAT(launched.grid, ElementsAre(5, 1, 1)) << "1,025 groups of four";
  EXPECT_THAT(launched.block, ElementsAre(256, 1, 1));
  EXPECT_EQ(launched.stream, gpu.compute_stream());
}

TEST(CudaGridTest, ATeamOfThreadsReducesARowWhoseLengthIsPassedLast) {
  NotingMachine gpu(90);
  gpu.noted.num_arguments = 6;
  GridImage image = ImageOf(kBias, "sm_90");
  image.ptx = PtxOf(kBias, "sm_90", kMrJitSum);
  image.reduces = true;
  const auto loop = CudaGrids().Load(&gpu, image);
  ASSERT_TRUE(loop.ok()) << loop.status();
  const void* const in[] = {reinterpret_cast<void*>(0x1000), reinterpret_cast<void*>(0x2000)};
  void* const out[] = {reinterpret_cast<void*>(0x3000)};
  ASSERT_TRUE((*loop)->Launch(in, out, {100, 410, 820}).ok());
  const auto& launched = gpu.noted.launched[0];
  EXPECT_THAT(launched.arguments, ElementsAre(0x1000, 0x2000, 0x3000, 100, 410, 820));
  EXPECT_THAT(launched.grid, ElementsAre(7, 1, 1)) << "sixteen teams of sixteen in a block";
}

TEST(CudaGridTest, AGridIsNoLargerThanTheMachineIsWorth) {
  NotingMachine gpu(90);
  const auto loop = CudaGrids().Load(&gpu, ImageOf(kBias, "sm_90"));
  ASSERT_TRUE(loop.ok()) << loop.status();
  const void* const in[] = {nullptr, nullptr};
  void* const out[] = {nullptr};
  ASSERT_TRUE((*loop)->Launch(in, out, {int64_t{1} << 40, 4, 0}).ok());
  ASSERT_TRUE((*loop)->Launch(in, out, {1, 1, 0}).ok());
  EXPECT_EQ(gpu.noted.launched[0].grid[0], 10u * 32u);
  EXPECT_EQ(gpu.noted.launched[1].grid[0], 1u);
}

TEST(CudaGridTest, AModuleIsUnloadedWithItsLoop) {
  NotingMachine gpu(90);
  auto loop = CudaGrids().Load(&gpu, ImageOf(kBias, "sm_90"));
  ASSERT_TRUE(loop.ok()) << loop.status();
  EXPECT_EQ(gpu.noted.modules, 1);
  loop->reset();
  EXPECT_EQ(gpu.noted.modules, 0);
}

TEST(CudaGridTest, WhatTheDriverRefusesIsItsError) {
  NotingMachine gpu(90);
  gpu.noted.refuses = true;
  EXPECT_THAT(CudaGrids().Load(&gpu, ImageOf(kBias, "sm_90")).status().ToString(),
              HasSubstr("ptxas says no"));
  gpu.noted.refuses = false;
  GridImage other = ImageOf(kBias, "sm_90");
  other.ptx = "// nothing";
  EXPECT_TRUE(errors::IsNotFound(CudaGrids().Load(&gpu, other).status()));
  EXPECT_EQ(gpu.noted.modules, 0);
}

}  // namespace
}  // namespace millrace::jit
