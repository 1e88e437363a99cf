// SPDX-License-Identifier: Apache-2.0
#include "executor/capture/capture_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace millrace {
namespace {

// Buffers of `bytes`; each is gone when the one two places later is taken.
std::vector<char*> Take(Allocator* memory, const std::vector<std::size_t>& bytes) {
  std::vector<RefPtr<Buffer>> live;
  std::vector<char*> places;
  for (const std::size_t size : bytes) {
    if (live.size() == 2) live.erase(live.begin());
    live.push_back(memory->Allocate(size));
    if (!live.back()) return places;
    places.push_back(static_cast<char*>(live.back()->data()));
  }
  return places;
}

TEST(CaptureMemory, BuffersThatAreThereAtOnceGetPlacesThatDoNotOverlap) {
  const std::vector<std::size_t> bytes = {1000, 70, 4000, 1, 2560, 4000, 300};
  RehearsalMemory rehearsal(HostAllocator());
  EXPECT_EQ(Take(&rehearsal, bytes).size(), bytes.size());
  const CaptureLayout layout = rehearsal.Plan();
  ASSERT_EQ(layout.offsets.size(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(layout.offsets[i] % 256, 0) << "libraries choose algorithms by alignment";
    EXPECT_LE(layout.offsets[i] + static_cast<int64_t>(bytes[i]), layout.block_bytes);
    if (i == 0) continue;
    const int64_t a = layout.offsets[i - 1], b = layout.offsets[i];
    EXPECT_TRUE(a + layout.bytes[i - 1] <= b || b + layout.bytes[i] <= a) << i;
  }
  // The two of 4,000 share a place.
  EXPECT_LT(layout.block_bytes, 2 * 4096);
}

TEST(CaptureMemory, TheSameBuffersComeToTheSamePlacesEachTime) {
  const std::vector<std::size_t> bytes = {1000, 70, 4000, 300};
  RehearsalMemory rehearsal(HostAllocator());
  Take(&rehearsal, bytes);
  const CaptureLayout layout = rehearsal.Plan();
  const RefPtr<Buffer> block = HostAllocator()->Allocate(layout.block_bytes);
  char* const begin = static_cast<char*>(block->data());
  for (int round = 0; round < 2; ++round) {
    LaidOutMemory memory(HostAllocator(), &layout, begin);
    const std::vector<char*> places = Take(&memory, bytes);
    ASSERT_EQ(places.size(), bytes.size());
    for (std::size_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i], begin + layout.offsets[i]);
    EXPECT_TRUE(memory.kept());
  }
}

TEST(CaptureMemory, WhatIsNotAsItWasIsRefused) {
  RehearsalMemory rehearsal(HostAllocator());
  Take(&rehearsal, {1000, 70});
  const CaptureLayout layout = rehearsal.Plan();
  const RefPtr<Buffer> block = HostAllocator()->Allocate(layout.block_bytes);
  for (const std::vector<std::size_t>& bytes :
       {std::vector<std::size_t>{1000, 700}, {1000}, {1000, 70, 70}, {}}) {
    LaidOutMemory memory(HostAllocator(), &layout, static_cast<char*>(block->data()));
    Take(&memory, bytes);
    EXPECT_FALSE(memory.kept()) << bytes.size();
  }
}

TEST(CaptureMemory, TheRehearsalUsesMemoryAgainAndGivesItBack) {
  const int64_t before = HostAllocator()->stats().bytes_in_use;
  {
    RehearsalMemory rehearsal(HostAllocator());
    Take(&rehearsal, std::vector<std::size_t>(100, 100'000));
    EXPECT_LE(HostAllocator()->stats().bytes_in_use - before, 400'000);
  }
  EXPECT_EQ(HostAllocator()->stats().bytes_in_use, before);
}

}  // namespace
}  // namespace millrace
