// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver/region_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Host memory that counts itself.
class HostRaw final : public RawMemory {
 public:
  explicit HostRaw(int64_t available = int64_t{1} << 40) : available_(available) {}
  ~HostRaw() override { EXPECT_TRUE(held_.empty()) << "regions were not given back"; }

  StatusOr<void*> Take(std::size_t bytes) override {
    MutexLock lock(&mu_);
    asked.push_back(static_cast<int64_t>(bytes));
    if (static_cast<int64_t>(bytes) > available_) return errors::ResourceExhausted("no more");
    available_ -= static_cast<int64_t>(bytes);
    void* const region = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    held_[region] = bytes;
    return region;
  }
  void Give(void* region, std::size_t bytes) override {
    MutexLock lock(&mu_);
    ASSERT_EQ(held_.at(region), bytes);
    held_.erase(region);
    available_ += static_cast<int64_t>(bytes);
    std::free(region);
  }
  int64_t held() {
    MutexLock lock(&mu_);
    int64_t sum = 0;
    for (const auto& [region, bytes] : held_) sum += static_cast<int64_t>(bytes);
    return sum;
  }
  std::vector<int64_t> asked;

 private:
  Mutex mu_;
  int64_t available_ ABSL_GUARDED_BY(mu_);
  std::map<void*, std::size_t> held_ ABSL_GUARDED_BY(mu_);
};

std::shared_ptr<RegionAllocator> Growing(int64_t limit, std::shared_ptr<HostRaw> raw) {
  RegionOptions options;
  options.limit = limit;
  return RegionAllocator::New(options, std::move(raw));
}

TEST(RegionAllocatorTest, NothingIsTakenBeforeItIsNeeded) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(64 * kMiB, raw);
  EXPECT_EQ(raw->held(), 0);
  const RefPtr<Buffer> block = memory->Allocate(1000);
  ASSERT_TRUE(block);
  EXPECT_EQ(raw->held(), 2 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % 256, 0u);
  EXPECT_EQ(memory->stats().bytes_in_use, 1024);
  EXPECT_EQ(memory->stats().num_system_allocations, 1);
}

TEST(RegionAllocatorTest, RegionsDoubleAsMemoryGrows) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(64 * kMiB, raw);
  std::vector<RefPtr<Buffer>> blocks;
  for (int i = 0; i < 14; ++i) blocks.push_back(memory->Allocate(kMiB));
  EXPECT_EQ(raw->asked, (std::vector<int64_t>{2 * kMiB, 4 * kMiB, 8 * kMiB}));
  blocks.push_back(memory->Allocate(30 * kMiB));  // larger than what would be next
  EXPECT_EQ(raw->asked.back(), 30 * kMiB);
}

TEST(RegionAllocatorTest, WithoutGrowthTheWholeLimitIsTakenAtOnce) {
  auto raw = std::make_shared<HostRaw>();
  RegionOptions options;
  options.limit = 64 * kMiB;
  options.grows = false;
  const auto memory = RegionAllocator::New(options, raw);
  const RefPtr<Buffer> block = memory->Allocate(1);
  EXPECT_EQ(raw->asked, (std::vector<int64_t>{64 * kMiB}));
}

TEST(RegionAllocatorTest, WithoutGrowthLessIsTakenWhereOthersHaveSome) {
  auto raw = std::make_shared<HostRaw>(50 * kMiB);
  RegionOptions options;
  options.limit = 64 * kMiB;
  options.grows = false;
  const auto memory = RegionAllocator::New(options, raw);
  const RefPtr<Buffer> block = memory->Allocate(1);
  ASSERT_TRUE(block);
  EXPECT_GE(raw->held(), 44 * kMiB);
  EXPECT_LE(raw->held(), 50 * kMiB);
}

TEST(RegionAllocatorTest, TheSmallestBlockThatFitsIsTaken) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(2 * kMiB, raw);
  RefPtr<Buffer> large = memory->Allocate(8192);
  const RefPtr<Buffer> wall = memory->Allocate(256);
  RefPtr<Buffer> small = memory->Allocate(1024);
  const RefPtr<Buffer> other_wall = memory->Allocate(256);
  void* const large_place = large->data();
  void* const small_place = small->data();
  large = nullptr;
  small = nullptr;
  EXPECT_EQ(memory->Allocate(1024)->data(), small_place);
  EXPECT_EQ(memory->Allocate(8192)->data(), large_place);
}

TEST(RegionAllocatorTest, FreeNeighboursAreJoined) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(2 * kMiB, raw);
  for (const auto& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    RefPtr<Buffer> blocks[3];
    for (RefPtr<Buffer>& block : blocks) block = memory->Allocate(512 << 10);
    EXPECT_FALSE(memory->Allocate(kMiB));
    for (const int i : order) blocks[i] = nullptr;
    EXPECT_TRUE(memory->Check().ok()) << memory->Check();
    EXPECT_TRUE(memory->Allocate(2 * kMiB));
  }
}

TEST(RegionAllocatorTest, TheLimitHolds) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(3 * kMiB, raw);
  EXPECT_FALSE(memory->Allocate(3 * kMiB + 1));
  const RefPtr<Buffer> block = memory->Allocate(2 * kMiB);
  EXPECT_TRUE(block);
  EXPECT_FALSE(memory->Allocate(2 * kMiB));
  EXPECT_TRUE(memory->Allocate(kMiB));
  EXPECT_LE(raw->held(), 3 * kMiB);
  EXPECT_EQ(memory->stats().bytes_limit, 3 * kMiB);
  EXPECT_EQ(memory->stats().peak_bytes_in_use, 3 * kMiB);
}

TEST(RegionAllocatorTest, IdleRegionsMakeRoomForALargeBlock) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(8 * kMiB, raw);
  memory->Allocate(kMiB);
  memory->Allocate(3 * kMiB);
  EXPECT_EQ(raw->held(), 6 * kMiB);
  EXPECT_TRUE(memory->Allocate(8 * kMiB));  // neither region would do
  EXPECT_TRUE(memory->Check().ok()) << memory->Check();
}

TEST(RegionAllocatorTest, FragmentedMemoryIsReportedAsSuch) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(2 * kMiB, raw);
  std::vector<RefPtr<Buffer>> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(memory->Allocate(64 << 10));
  for (int i = 0; i < 32; i += 2) blocks[i] = nullptr;
  EXPECT_FALSE(memory->Allocate(128 << 10));  // half is free, in pieces
  const std::string report = memory->Report();
  EXPECT_NE(report.find("1.0 MiB of 2.0 MiB in use"), std::string::npos) << report;
  EXPECT_NE(report.find("largest free block 64.0 KiB"), std::string::npos) << report;
}

TEST(RegionAllocatorTest, TheReportNamesTheBiggestFirst) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(16 * kMiB, raw);
  std::vector<RefPtr<Buffer>> blocks;
  blocks.push_back(memory->Allocate(3 * kMiB));
  blocks.push_back(memory->Allocate(kMiB));
  memory->Allocate(64);  // is gone before anybody says whose it was
  memory->NameRecent("fc/MatMul");
  blocks.push_back(memory->Allocate(5 * kMiB));
  memory->NameRecent("conv/Conv2D");
  blocks.push_back(memory->Allocate(512));
  const std::string report = memory->Report(3);
  EXPECT_NE(report.find("Largest of 4 live blocks: 5.0 MiB {{node conv/Conv2D}}, "
                        "3.0 MiB {{node fc/MatMul}}, 1.0 MiB {{node fc/MatMul}}"),
            std::string::npos)
      << report;
  EXPECT_EQ(report.find("512 B"), std::string::npos) << report;
  EXPECT_NE(memory->Report().find("512 B (no node)"), std::string::npos);
}

TEST(RegionAllocatorTest, ANameIsForWhatItsOwnThreadTook) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(16 * kMiB, raw);
  RefPtr<Buffer> others;
  std::thread([&] { others = memory->Allocate(2 * kMiB); }).join();
  const RefPtr<Buffer> own = memory->Allocate(kMiB);
  const auto elsewhere = Growing(16 * kMiB, raw);
  elsewhere->NameRecent("of/another");
  const RefPtr<Buffer> later = memory->Allocate(256 << 10);
  memory->NameRecent("mine");
  EXPECT_NE(memory->Report().find("2.0 MiB (no node), 1.0 MiB (no node), 256.0 KiB {{node mine}}"),
            std::string::npos)
      << memory->Report();
}

TEST(RegionAllocatorTest, BeforeItGivesUpItAsksForWhatIsAboutToBeFreed) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(2 * kMiB, raw);
  RefPtr<Buffer> held;
  int asked = 0;
  memory->SetOnFull([&] {
    ++asked;
    held = nullptr;
  });
  held = memory->Allocate(2 * kMiB);
  const RefPtr<Buffer> block = memory->Allocate(kMiB);
  EXPECT_TRUE(block);
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(memory->Allocate(2 * kMiB));
  EXPECT_EQ(asked, 2);
}

TEST(RegionAllocatorTest, ExactBlocksAreRegionsOfTheirOwn) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = RegionAllocator::New({.limit = 1000, .exact = true}, raw);
  RefPtr<Buffer> first = memory->Allocate(700);
  const RefPtr<Buffer> second = memory->Allocate(300);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(raw->held(), 1000);
  EXPECT_FALSE(memory->Allocate(1));
  first = nullptr;
  EXPECT_EQ(raw->held(), 300);
  EXPECT_TRUE(memory->Allocate(0));
  EXPECT_TRUE(memory->Allocate(700));
  EXPECT_EQ(raw->held(), 300);
  EXPECT_TRUE(memory->Check().ok()) << memory->Check();
}

TEST(RegionAllocatorTest, TrimKeepsARegionThatWasTakenForAll) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = RegionAllocator::New({.limit = 8 * kMiB, .grows = false}, raw);
  memory->Allocate(kMiB);
  EXPECT_EQ(memory->Trim(), 0);
  EXPECT_EQ(raw->held(), 8 * kMiB);
}

TEST(RegionAllocatorTest, TrimGivesIdleRegionsBack) {
  std::vector<std::pair<std::size_t, bool>> events;
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(64 * kMiB, raw);
  memory->SetOnRegion(
      [&](void*, std::size_t bytes, bool taken) { events.emplace_back(bytes, taken); });
  const RefPtr<Buffer> kept = memory->Allocate(kMiB);
  memory->Allocate(3 * kMiB);
  EXPECT_EQ(memory->Trim(), 4 * kMiB);
  EXPECT_EQ(raw->held(), 2 * kMiB);
  EXPECT_EQ(events, (std::vector<std::pair<std::size_t, bool>>{
                        {2 * kMiB, true}, {4 * kMiB, true}, {4 * kMiB, false}}));
  EXPECT_TRUE(memory->Allocate(3 * kMiB));
}

TEST(RegionAllocatorTest, BuffersOutliveTheAllocatorsOwner) {
  auto raw = std::make_shared<HostRaw>();
  auto memory = Growing(64 * kMiB, raw);
  const RefPtr<Buffer> block = memory->Allocate(100);
  memory.reset();
  std::memset(block->data(), 1, 100);
}

TEST(RegionAllocatorTest, RandomUseKeepsBlocksApartAndListsInOrder) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    std::mt19937_64 random(seed);
    auto raw = std::make_shared<HostRaw>();
    const auto memory = Growing(24 * kMiB, raw);
    struct Held {
      RefPtr<Buffer> block;
      std::size_t bytes;
      unsigned char mark;
    };
    std::vector<Held> held;
    int refused = 0;
    for (int i = 0; i < 4000; ++i) {
      if (!held.empty() && random() % 5 < 2) {
        const std::size_t at = random() % held.size();
        const auto* const bytes = static_cast<unsigned char*>(held[at].block->data());
        for (std::size_t j = 0; j < held[at].bytes; j += 97) ASSERT_EQ(bytes[j], held[at].mark);
        held[at] = std::move(held.back());
        held.pop_back();
      } else {
        const std::size_t bytes = std::size_t{1} << (random() % 20);
        const std::size_t wanted = bytes + random() % bytes;
        RefPtr<Buffer> block = memory->Allocate(wanted);
        if (!block) {
          ++refused;
          held.erase(held.begin(), held.begin() + static_cast<int64_t>(held.size() / 2));
          continue;
        }
        ASSERT_GE(block->size(), wanted);
        const auto mark = static_cast<unsigned char>(random());
        std::memset(block->data(), mark, wanted);
        held.push_back({std::move(block), wanted, mark});
      }
      if (i % 64 == 0) {
        ASSERT_TRUE(memory->Check().ok()) << memory->Check();
      }
      if (i % 500 == 0) memory->Trim();
    }
    EXPECT_GT(refused, 0) << "the limit was never met";
    held.clear();
    EXPECT_TRUE(memory->Check().ok()) << memory->Check();
    EXPECT_EQ(memory->stats().bytes_in_use, 0);
    memory->Trim();
    EXPECT_EQ(raw->held(), 0);
  }
}

TEST(RegionAllocatorTest, ThreadsShareIt) {
  auto raw = std::make_shared<HostRaw>();
  const auto memory = Growing(64 * kMiB, raw);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      std::mt19937 random(t);
      std::vector<RefPtr<Buffer>> held(8);
      for (int i = 0; i < 2000; ++i) held[random() % 8] = memory->Allocate(random() % 100000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->stats().bytes_in_use, 0);
  EXPECT_TRUE(memory->Check().ok()) << memory->Check();
}

}  // namespace
}  // namespace millrace
