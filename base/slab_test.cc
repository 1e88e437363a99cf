// SPDX-License-Identifier: Apache-2.0
#include "base/slab.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace {
namespace {

TEST(Slab, KeepsObjectsWhereTheyAre) {
  Slab<std::string> slab;
  std::vector<std::string*> texts;
  for (int i = 0; i < 200'000; ++i) texts.push_back(slab.New(std::to_string(i)));
  for (int i = 0; i < 200'000; ++i) ASSERT_EQ(*texts[i], std::to_string(i));
  for (std::string* text : texts) slab.Delete(text);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Slab, UsesThePlaceOfADeletedObjectNext) {
  Slab<int64_t> slab;
  int64_t* const first = slab.New(1);
  slab.New(2);
  slab.Delete(first);
  EXPECT_EQ(slab.New(3), first);
  EXPECT_NE(slab.New(4), first);
}
#endif

TEST(Slab, DestroysWhatIsDeleted) {
  Slab<std::shared_ptr<int>> slab;
  const auto owned = std::make_shared<int>(1);
  std::shared_ptr<int>* const copy = slab.New(owned);
  EXPECT_EQ(owned.use_count(), 2);
  slab.Delete(copy);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(LargeVector, GrowsOverTheSizeOfAHugePage) {
  LargeVector<int32_t> numbers;
  for (int32_t i = 0; i < 2'000'000; ++i) numbers.push_back(i);
  for (int32_t i = 0; i < 2'000'000; ++i) ASSERT_EQ(numbers[i], i);
  const LargeVector<int32_t> copy = numbers;
  numbers.clear();
  numbers.shrink_to_fit();
  EXPECT_EQ(copy.back(), 1'999'999);
}

TEST(AllocateBlock, AlignsHugeBlocksToHugePages) {
  for (const std::size_t bytes : {kHugePageBytes - 64, kHugePageBytes, 3 * kHugePageBytes + 1}) {
    void* const block = AllocateBlock(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % kHugePageBytes, 0u) << bytes;
    static_cast<char*>(block)[bytes - 1] = 1;
    FreeBlock(block, bytes);
  }
}

}  // namespace
}  // namespace millrace
