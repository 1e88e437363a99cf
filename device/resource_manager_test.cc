// SPDX-License-Identifier: Apache-2.0
#include "device/resource_manager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace millrace {
namespace {

class Counter : public Resource {
 public:
  explicit Counter(int value = 0, std::atomic<int>* alive = nullptr) : value(value), alive_(alive) {
    if (alive_ != nullptr) ++*alive_;
  }
  ~Counter() override {
    if (alive_ != nullptr) --*alive_;
  }
  std::string DebugString() const override { return StrCat("Counter ", value.load()); }
  void OnRemoved() override { removed = true; }

  std::atomic<int> value;
  std::atomic<bool> removed{false};

 private:
  std::atomic<int>* const alive_;
};

class Other : public Resource {
 public:
  std::string DebugString() const override { return "Other"; }
};

TEST(ResourceManagerTest, FindsWhatWasCreatedByContainerTypeAndName) {
  ResourceManager resources;
  ASSERT_TRUE(resources.Create("c", "x", MakeRef<Counter>(7)).ok());
  const StatusOr<RefPtr<Counter>> found = resources.Lookup<Counter>("c", "x");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)->value, 7);
  EXPECT_TRUE(errors::IsNotFound(resources.Lookup<Other>("c", "x").status()));
  EXPECT_TRUE(errors::IsNotFound(resources.Lookup<Counter>("d", "x").status()));
  EXPECT_TRUE(resources.Create("c", "x", MakeRef<Other>()).ok()) << "another type";
}

TEST(ResourceManagerTest, ErrorsNameContainerNameAndType) {
  ResourceManager resources;
  const Status missing = resources.Lookup<Counter>("", "queue").status();
  EXPECT_EQ(Message(missing).find("Resource localhost/queue/"), 0u) << missing;
  EXPECT_NE(Message(missing).find("Counter does not exist."), std::string_view::npos) << missing;
  ASSERT_TRUE(resources.Create("", "x", MakeRef<Counter>()).ok());
  EXPECT_TRUE(errors::IsAlreadyExists(resources.Create("", "x", MakeRef<Counter>())));
}

TEST(ResourceManagerTest, TheEmptyContainerIsTheDefaultOne) {
  ResourceManager resources;
  ASSERT_TRUE(resources.Create("", "x", MakeRef<Counter>(3)).ok());
  EXPECT_TRUE(resources.Lookup<Counter>(kDefaultContainer, "x").ok());
  resources.Cleanup("localhost");
  EXPECT_FALSE(resources.Lookup<Counter>("", "x").ok());
}

TEST(ResourceManagerTest, LookupOrCreateMakesOneForAllThreads) {
  ResourceManager resources;
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&resources, &made] {
      for (int i = 0; i < 50; ++i) {
        const StatusOr<RefPtr<Counter>> counter =
            resources.LookupOrCreate<Counter>("c", StrCat("x", i % 5), [&made] {
              ++made;
              return StatusOr<RefPtr<Counter>>(MakeRef<Counter>());
            });
        ASSERT_TRUE(counter.ok());
        ++(*counter)->value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 5);
  EXPECT_EQ((*resources.Lookup<Counter>("c", "x0"))->value, 80);
}

TEST(ResourceManagerTest, AFailedCreatorLeavesNothing) {
  ResourceManager resources;
  const auto fail = []() -> StatusOr<RefPtr<Counter>> { return errors::InvalidArgument("no"); };
  EXPECT_TRUE(
      errors::IsInvalidArgument(resources.LookupOrCreate<Counter>("c", "x", fail).status()));
  EXPECT_TRUE(errors::IsNotFound(resources.Lookup<Counter>("c", "x").status()));
}

TEST(ResourceManagerTest, DeletedResourceLivesAsLongAsItIsHeld) {
  std::atomic<int> alive{0};
  ResourceManager resources;
  ASSERT_TRUE(resources.Create("c", "x", MakeRef<Counter>(1, &alive)).ok());
  RefPtr<Counter> held = *resources.Lookup<Counter>("c", "x");
  EXPECT_TRUE(resources.Delete<Counter>("c", "x").ok());
  EXPECT_TRUE(held->removed);
  EXPECT_EQ(alive, 1);
  EXPECT_TRUE(errors::IsNotFound(resources.Delete<Counter>("c", "x")));
  held.reset();
  EXPECT_EQ(alive, 0);
}

TEST(ResourceManagerTest, CleanupForgetsOneContainerAndClearAll) {
  std::atomic<int> alive{0};
  ResourceManager resources;
  for (const char* container : {"a", "b", "step"}) {
    ASSERT_TRUE(resources.Create(container, "x", MakeRef<Counter>(1, &alive)).ok());
  }
  EXPECT_EQ(resources.DebugString(), "a/x: Counter 1\nb/x: Counter 1\nstep/x: Counter 1");
  resources.Cleanup("step");
  resources.Cleanup("never seen");
  EXPECT_EQ(alive, 2);
  EXPECT_TRUE(resources.Lookup<Counter>("a", "x").ok());
  resources.Clear();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(resources.DebugString(), "");
}

TEST(ResourceManagerTest, ANameWithLinesIsOneLineToReaders) {
  std::atomic<int> alive{0};
  ResourceManager resources;
  ASSERT_TRUE(resources.Create("c", "x\nc/forged: Counter 9", MakeRef<Counter>(1, &alive)).ok());
  EXPECT_EQ(resources.DebugString(), "c/x?c/forged: Counter 9: Counter 1");
  EXPECT_TRUE(resources.Lookup<Counter>("c", "x\nc/forged: Counter 9").ok());
}

}  // namespace
}  // namespace millrace
