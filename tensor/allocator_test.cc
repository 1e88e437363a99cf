// SPDX-License-Identifier: Apache-2.0
#include "tensor/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace millrace {

// Of allocator.cc.
void FreeUnusedHostMemory();

namespace {

TEST(HostAllocatorTest, GivesAtLeastWhatWasAskedForAndAtMostAQuarterMore) {
  for (std::size_t bytes = 0; bytes < 5000; ++bytes) {
    const RefPtr<Buffer> buffer = HostAllocator()->Allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_GE(buffer->size(), bytes);
    EXPECT_LE(buffer->size(), std::max<std::size_t>(64, bytes + bytes / 4));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kTensorAlignment, 0u);
    std::memset(buffer->data(), 0xab, buffer->size());
  }
}

TEST(HostAllocatorTest, ReusesFreedBlocksWithoutTheSystem) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{5} << 20}) {
    void* first = HostAllocator()->Allocate(bytes)->data();
    const AllocatorStats before = HostAllocator()->stats();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(HostAllocator()->Allocate(bytes)->data(), first);
    const AllocatorStats after = HostAllocator()->stats();
    EXPECT_EQ(after.num_system_allocations, before.num_system_allocations);
    EXPECT_EQ(after.num_allocations, before.num_allocations + 100);
    EXPECT_EQ(after.bytes_in_use, before.bytes_in_use);
  }
}

TEST(HostAllocatorTest, CountsWhatIsInUse) {
  const int64_t before = HostAllocator()->stats().bytes_in_use;
  RefPtr<Buffer> buffer = HostAllocator()->Allocate(1000);
  const RefPtr<Buffer> share = buffer;
  EXPECT_EQ(HostAllocator()->stats().bytes_in_use, before + static_cast<int64_t>(buffer->size()));
  EXPECT_GE(HostAllocator()->stats().peak_bytes_in_use, HostAllocator()->stats().bytes_in_use);
  buffer.reset();
  EXPECT_GT(HostAllocator()->stats().bytes_in_use, before) << "a share is still held";
}

TEST(HostAllocatorTest, ManyIdleLargeBlocksGoBackAndMemoryStaysUsable) {
  std::vector<RefPtr<Buffer>> held;
  for (int i = 0; i < 12; ++i) held.push_back(HostAllocator()->Allocate(std::size_t{64} << 20));
  for (const RefPtr<Buffer>& buffer : held) {
    ASSERT_TRUE(buffer);
    static_cast<char*>(buffer->data())[0] = 1;
  }
  held.clear();
  const int64_t before = HostAllocator()->stats().num_system_allocations;
  for (int i = 0; i < 12; ++i) held.push_back(HostAllocator()->Allocate(std::size_t{64} << 20));
  const int64_t fresh = HostAllocator()->stats().num_system_allocations - before;
  EXPECT_GT(fresh, 0) << "some went back to the operating system";
  EXPECT_LT(fresh, 12) << "some were kept";
}

TEST(HostAllocatorTest, LargeBlocksThatAreNotUsedForAWhileGoBack) {
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  const auto from_system = [] { return HostAllocator()->stats().num_system_allocations; };
  const auto hold = [] {
    std::vector<RefPtr<Buffer>> held;
    for (int i = 0; i < 3; ++i) held.push_back(HostAllocator()->Allocate(kBytes));
    return held;
  };
  FreeUnusedHostMemory();
  FreeUnusedHostMemory();
  hold().clear();
  FreeUnusedHostMemory();  // used since the call before
  int64_t before = from_system();
  hold().clear();
  EXPECT_EQ(from_system(), before);
  FreeUnusedHostMemory();
  HostAllocator()->Allocate(kBytes).reset();  // one of the three is in use
  FreeUnusedHostMemory();
  before = from_system();
  hold().clear();
  EXPECT_EQ(from_system(), before + 2);
  FreeUnusedHostMemory();
  FreeUnusedHostMemory();
  before = from_system();
  hold().clear();
  EXPECT_EQ(from_system(), before + 3);
}

TEST(HostAllocatorTest, AnswersNullForWhatNoMachineHas) {
  EXPECT_FALSE(HostAllocator()->Allocate(std::size_t{1} << 62));
  EXPECT_FALSE(HostAllocator()->Allocate(~std::size_t{0}));
  EXPECT_FALSE(HostAllocator()->Allocate(std::size_t{1} << 47)) << "more than an address space";
}

TEST(HostAllocatorTest, BuffersMayBeFreedByOtherThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const auto bytes = static_cast<std::size_t>(64 << (i % 6));
        RefPtr<Buffer> buffer = HostAllocator()->Allocate(bytes);
        std::memset(buffer->data(), t, bytes);
        std::thread freeing;
        if (i % 100 == 0) {
          freeing = std::thread([share = buffer]() mutable { share.reset(); });
        }
        EXPECT_EQ(static_cast<char*>(buffer->data())[bytes - 1], t);
        buffer.reset();
        if (freeing.joinable()) freeing.join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ObjectBufferTest, ConstructsAndDestroysItsStrings) {
  const int64_t before = HostAllocator()->stats().bytes_in_use;
  {
    const RefPtr<Buffer> buffer = AllocateStringBuffer(HostAllocator(), 10);
    auto* strings = static_cast<std::string*>(buffer->data());
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(strings[i], "");
      strings[i] = std::string(100, 'x');  // leaks if not destroyed
    }
  }
  EXPECT_EQ(HostAllocator()->stats().bytes_in_use, before);
  EXPECT_FALSE(AllocateStringBuffer(HostAllocator(), ~std::size_t{0}));
}

TEST(WrapBufferTest, ReleasesWithTheLastShare) {
  char memory[16];
  int released = 0;
  const auto release = [](void* arg) { ++*static_cast<int*>(arg); };
  RefPtr<Buffer> buffer = WrapBuffer(memory, sizeof(memory), release, &released);
  RefPtr<Buffer> share = buffer;
  buffer.reset();
  EXPECT_EQ(released, 0);
  EXPECT_EQ(share->data(), memory);
  share.reset();
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace millrace
