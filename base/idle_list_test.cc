// SPDX-License-Identifier: Apache-2.0
#include "base/idle_list.h"

#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

struct Item {
  explicit Item(std::atomic<int>* alive) : alive(alive) { ++*alive; }
  ~Item() { --*alive; }
  std::atomic<int>* const alive;
  Item* next = nullptr;
  bool in_use = false;
};
using Items = IdleList<Item, &Item::next>;

TEST(IdleListTest, GivesBackWhatWasKeptAndNothingElse) {
  std::atomic<int> alive{0};
  {
    Items items;
    EXPECT_EQ(items.Take(), nullptr);
    std::set<Item*> kept;
    for (int i = 0; i < 4; ++i) {
      Item* const item = new Item(&alive);
      kept.insert(item);
      items.Keep(item);
    }
    for (int i = 0; i < 4; ++i) {
      Item* const item = items.Take();
      ASSERT_EQ(kept.erase(item), 1u);
      EXPECT_EQ(item->next, nullptr);
      delete item;
    }
    EXPECT_EQ(items.Take(), nullptr);
    EXPECT_EQ(alive, 0);
    items.Keep(new Item(&alive));
    items.Keep(new Item(&alive));
  }
  EXPECT_EQ(alive, 0) << "what is idle goes with the list";
}

TEST(IdleListTest, NoTwoThreadsGetTheSameObject) {
  std::atomic<int> alive{0};
  std::atomic<int> shared{0};
  {
    Items items;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5'000; ++i) {
          Item* item = items.Take();
          if (item == nullptr) item = new Item(&alive);
          if (std::exchange(item->in_use, true)) ++shared;
          item->in_use = false;
          items.Keep(item);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(shared, 0);
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace millrace
