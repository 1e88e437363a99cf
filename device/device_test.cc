// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace millrace {
namespace {

constexpr char kName[] = "/job:worker/replica:0/task:1/device:CPU:0";

TEST(CpuDeviceTest, TellsItsNameTypeAndIncarnation) {
  ThreadPool pool("intra", 0);
  ResourceManager resources;
  const uint64_t incarnation = RandomId();
  const std::unique_ptr<Device> device = NewCpuDevice(kName, incarnation, &pool, &resources);
  EXPECT_EQ(device->name(), kName);
  EXPECT_EQ(device->parsed_name().ToString(), kName);
  EXPECT_EQ(device->type(), "CPU");
  EXPECT_EQ(device->incarnation(), incarnation);
  EXPECT_EQ(device->attributes().memory_limit, 256 << 20);
  EXPECT_EQ(device->memory_space(), MemorySpace::kHost);
  EXPECT_TRUE(device->Sync().ok());
}

TEST(CpuDeviceTest, SharesThreadsAndResourcesAsItsOwnerSays) {
  ThreadPool pool("intra", 2);
  ResourceManager shared;
  ResourceManager isolated;
  const std::unique_ptr<Device> a = NewCpuDevice(kName, 1, &pool, &shared);
  const std::unique_ptr<Device> b = NewCpuDevice(kName, 1, &pool, &isolated);
  EXPECT_EQ(a->intra_op_pool(), b->intra_op_pool());
  EXPECT_NE(a->resource_manager(), b->resource_manager());
  EXPECT_EQ(a->allocator(), HostAllocator());
}

}  // namespace
}  // namespace millrace
