// SPDX-License-Identifier: Apache-2.0
// Devices "GPU" over a simulated driver.
#include "device/cuda/machine/cuda_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "base/errors.h"
#include "device/cuda/simulated/simulated_driver.h"

namespace millrace {
namespace {

constexpr char kTask[] = "/job:a/replica:0/task:0";
constexpr int64_t kMiB = int64_t{1} << 20;

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest()
      : driver_(SimulatedDriver::New({.num_devices = 3, .memory = 2048 * kMiB})),
        devices_(driver_.get(), {}) {}
  ~CudaDeviceTest() override {
    EXPECT_EQ(driver_->Count(), SimulatedDriver::Census()) << "something was not given back";
  }

  StatusOr<std::unique_ptr<TaskDevices>> Open(int count, const AcceleratorOptions& options = {},
                                              const std::string& task = kTask) {
    return TaskDevices::Open({devices_.Factory(options)}, task, {{"GPU", count}});
  }

  const std::unique_ptr<SimulatedDriver> driver_;
  CudaDevices devices_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  auto task = Open(2);
  ASSERT_TRUE(task.ok()) << task.status();
  const auto made = (*task)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made->size(), 3u);
  const Device& gpu = *(*made)[2].device;
  EXPECT_EQ(gpu.name(), "/job:a/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(gpu.type(), "GPU");
  EXPECT_EQ(gpu.memory_space(), MemorySpace::kDevice);
  EXPECT_EQ(gpu.attributes().physical_description,
            "device: 1, name: Simulated GPU, pci bus id: 0000:01:00.0, compute capability: 9.0");
  EXPECT_EQ(gpu.attributes().memory_limit, (2048 - 512) * kMiB);
  EXPECT_EQ(CudaMachineOf(&gpu)->properties().num_multiprocessors, 4);
}

TEST_F(CudaDeviceTest, CountsWhatIsVisible) {
  EXPECT_EQ(*devices_.Count({}), 3);
  EXPECT_EQ(*devices_.Count({.visible_devices = "2,0"}), 2);
  EXPECT_EQ(*devices_.Count({.virtual_devices = {{}, {100 * kMiB, 200 * kMiB}}}), 4);
  for (const char* const list : {"3", "0,0", "x", "0,", "-1"}) {
    EXPECT_TRUE(errors::IsInvalidArgument(devices_.Count({.visible_devices = list}).status()))
        << list;
  }
  EXPECT_TRUE(errors::IsInvalidArgument(
      devices_.Count({.visible_devices = "0", .virtual_devices = {{}, {}}}).status()));
}

TEST_F(CudaDeviceTest, TheVisibleListChoosesAndOrders) {
  auto task = Open(2, {.visible_devices = "2,0"});
  ASSERT_TRUE(task.ok());
  const auto made = (*task)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(CudaMachineOf((*made)[1].device.get())->properties().ordinal, 2);
  EXPECT_EQ(CudaMachineOf((*made)[2].device.get())->properties().ordinal, 0);
}

TEST_F(CudaDeviceTest, VirtualDevicesHaveMemoryOfTheirOwn) {
  auto task = Open(2, {.visible_devices = "1", .virtual_devices = {{100 * kMiB, 200 * kMiB}}});
  ASSERT_TRUE(task.ok());
  const auto made = (*task)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  Device* const first = (*made)[1].device.get();
  Device* const second = (*made)[2].device.get();
  EXPECT_EQ(first->attributes().memory_limit, 100 * kMiB);
  EXPECT_EQ(second->attributes().memory_limit, 200 * kMiB);
  EXPECT_EQ(CudaMachineOf(second)->properties().ordinal, 1);
  const auto block = second->allocator()->Allocate(150 * kMiB);
  ASSERT_TRUE(block);
  EXPECT_EQ(AcceleratorOf(block->data()), AcceleratorOf(second));
  EXPECT_FALSE(first->allocator()->Allocate(150 * kMiB));
}

TEST_F(CudaDeviceTest, MemoryIsTakenAllAtOnceOrAsItIsNeeded) {
  for (const bool grows : {false, true}) {
    auto task = Open(1, {.memory_fraction = 0.25, .allow_growth = grows});
    ASSERT_TRUE(task.ok());
    const auto made = (*task)->MakeDevices(nullptr);
    ASSERT_TRUE(made.ok());
    Device* const gpu = (*made)[1].device.get();
    EXPECT_EQ(gpu->attributes().memory_limit, 512 * kMiB);
    CudaMachine* const machine = CudaMachineOf(gpu);
    ASSERT_TRUE(machine->MakeCurrent().ok());
    EXPECT_EQ(driver_->Memory()->free, 2048 * kMiB);  // nothing yet
    const auto block = gpu->allocator()->Allocate(1000);
    EXPECT_EQ(driver_->Memory()->free, (grows ? 2048 - 2 : 2048 - 512) * kMiB);
  }
}

TEST_F(CudaDeviceTest, TasksOfAProcessShareAMachine) {
  auto first = Open(1);
  auto second = Open(1, {}, "/job:b/replica:0/task:0");
  ASSERT_TRUE(first.ok() && second.ok());
  const auto made = (*first)->MakeDevices(nullptr);
  const auto also = (*second)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok() && also.ok());
  EXPECT_EQ(AcceleratorOf((*made)[1].device.get()), AcceleratorOf((*also)[1].device.get()));
  EXPECT_EQ(driver_->Count().contexts, 1);
  EXPECT_EQ(driver_->Count().streams, kNumStreamKinds);
}

TEST_F(CudaDeviceTest, AMachineThatWasLostIsStartedAnewForTheNextTask) {
  {
    auto task = Open(1);
    ASSERT_TRUE(task.ok());
    const auto made = (*task)->MakeDevices(nullptr);
    CudaMachine* const machine = CudaMachineOf((*made)[1].device.get());
    ASSERT_TRUE(driver_->LaunchFault(machine->compute_stream()).ok());
    machine->stream(StreamKind::kCompute)->EnqueueCallback(nullptr, "look", [](const Status&) {});
    EXPECT_FALSE((*made)[1].device->Sync().ok());
  }
  auto task = Open(1);
  ASSERT_TRUE(task.ok()) << task.status();
  const auto made = (*task)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE((*made)[1].device->Sync().ok());
}

TEST_F(CudaDeviceTest, ADeviceWithoutRoomSaysSo) {
  const auto full = SimulatedDriver::New({.memory = 2048 * kMiB, .used_by_others = 1800 * kMiB});
  CudaDevices devices(full.get(), {});
  const auto task = TaskDevices::Open({devices.Factory({})}, kTask, {{"GPU", 1}});
  EXPECT_TRUE(errors::IsResourceExhausted(task.status())) << task.status();
  EXPECT_NE(Message(task.status()).find("248.0 MiB of 2.0 GiB free"), std::string::npos)
      << task.status();
}

TEST_F(CudaDeviceTest, AMachineWaitsForTheMemoryOfOneThatIsJustGoingAway) {
  const auto driver = SimulatedDriver::New({.memory = 2048 * kMiB});
  CudaDevices devices(driver.get(), {});
  const auto open = [&] { return TaskDevices::Open({devices.Factory({})}, kTask, {{"GPU", 1}}); };
  auto first = open();
  ASSERT_TRUE(first.ok()) << first.status();
  auto made = (*first)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  // All of the GPU's memory, which a tensor holds a little longer than the last session its device.
  RefPtr<Buffer> kept = (*made)[1].device->allocator()->Allocate(1000);
  ASSERT_TRUE(kept);
  made->clear();
  first->reset();
  std::thread later([&kept] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kept = nullptr;
  });
  const auto second = open();
  EXPECT_TRUE(second.ok()) << second.status();
  later.join();
}

class CudaDeviceSwitchesTest : public CudaDeviceTest {
 protected:
  ~CudaDeviceSwitchesTest() override {
    unsetenv("MILLRACE_CUDA_TF32");
    unsetenv("MILLRACE_CUDA_EXACT_MEMORY");
  }
};

TEST_F(CudaDeviceSwitchesTest, ExactMemoryIsTakenTensorByTensor) {
  setenv("MILLRACE_CUDA_EXACT_MEMORY", "1", 1);
  auto task = Open(1);
  ASSERT_TRUE(task.ok()) << task.status();
  const auto made = (*task)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  Device* const gpu = (*made)[1].device.get();
  ASSERT_TRUE(CudaMachineOf(gpu)->MakeCurrent().ok());
  {
    const auto block = gpu->allocator()->Allocate(1000);
    ASSERT_TRUE(block);
    EXPECT_EQ(driver_->Memory()->free, 2048 * kMiB - 1000);
  }
  EXPECT_EQ(driver_->Memory()->free, 2048 * kMiB);
}

TEST_F(CudaDeviceSwitchesTest, AMachineWithOthersIsNotShared) {
  auto first = Open(1);
  ASSERT_TRUE(first.ok()) << first.status();
  setenv("MILLRACE_CUDA_TF32", "1", 1);
  const auto second = Open(1);
  EXPECT_TRUE(errors::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_NE(Message(second.status()).find("MILLRACE_CUDA_TF32"), std::string::npos);
}

TEST_F(CudaDeviceSwitchesTest, AMachineWithOthersThatIsGoingAwayIsWaitedFor) {
  auto first = Open(1);
  ASSERT_TRUE(first.ok()) << first.status();
  setenv("MILLRACE_CUDA_TF32", "1", 1);
  std::thread later([&first] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    first->reset();
  });
  const auto second = Open(1);
  ASSERT_TRUE(second.ok()) << second.status();
  const auto made = (*second)->MakeDevices(nullptr);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(CudaMachineOf((*made)[1].device.get())->math().tf32);
  later.join();
}

TEST_F(CudaDeviceTest, MoreThanThereAreCannotBeOpened) {
  EXPECT_TRUE(errors::IsFailedPrecondition(Open(4).status()));
}

TEST(CudaEnvironmentTest, SwitchesAreZeroOrOne) {
  std::map<std::string, std::string> variables;
  const auto read = [&] {
    return CudaEnvironmentOf([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_FALSE(read()->math.tf32);
  EXPECT_FALSE(read()->math.deterministic);
  EXPECT_FALSE(read()->blocking);
  variables = {{"MILLRACE_CUDA_TF32", "1"},
               {"TF_DETERMINISTIC_OPS", "true"},
               {"MILLRACE_CUDA_BLOCKING", "1"},
               {"MILLRACE_CUDA_EXACT_MEMORY", "1"}};
  EXPECT_TRUE(read()->math.tf32);
  EXPECT_TRUE(read()->math.deterministic);
  EXPECT_TRUE(read()->blocking);
  EXPECT_TRUE(read()->exact_memory);
  variables = {{"MILLRACE_CUDA_TF32", "yes"}};
  EXPECT_TRUE(errors::IsInvalidArgument(read().status()));
}

TEST(CudaEnvironmentTest, WorkspaceOfConvolutionsIsANumberOfMebibytes) {
  const auto read = [](const char* value) {
    return CudaEnvironmentOf([&](const char* name) -> const char* {
      return name == std::string_view("TF_CUDNN_WORKSPACE_LIMIT_IN_MB") ? value : nullptr;
    });
  };
  EXPECT_EQ(read(nullptr)->math.convolution_workspace, int64_t{4} << 30);
  EXPECT_EQ(read("")->math.convolution_workspace, int64_t{4} << 30);
  EXPECT_EQ(read("512")->math.convolution_workspace, int64_t{512} << 20);
  EXPECT_EQ(read("0")->math.convolution_workspace, 0);
  for (const char* const bad : {"-1", "4GB", "1e3", "99999999999999999"}) {
    EXPECT_TRUE(errors::IsInvalidArgument(read(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace millrace
