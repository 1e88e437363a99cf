// SPDX-License-Identifier: Apache-2.0
#include "executor/memory/step_arena.h"

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr std::size_t kBytes = 20480;  // a multiple of the alignment, large enough to be planned

// A program of ten nodes that never compute: the tests take their memory for them.
class ProgramMemoryTest : public testing::Test {
 protected:
  class Step {
   public:
    Step(ProgramMemoryTest* test, MemoryTracker* tracker = nullptr) : test_(*test) {
      test_.memory_->BeginStep(&arena_, &watch_, tracker);
      tracker_ = watch_ ? watch_.get() : tracker;
    }
    RefPtr<Buffer> Allocate(int node, std::size_t bytes = kBytes) {
      Allocator* base = HostAllocator();
      std::optional<ArenaAllocator> planned;
      if (arena_ && arena_->plan().first[node] >= 0) {
        base = &planned.emplace(base, arena_.get(), node);
      }
      std::optional<NodeAllocator> tracked;
      if (tracker_ != nullptr) {
        base = &tracked.emplace(base, tracker_, test_.KernelOf(node));
      }
      RefPtr<Buffer> buffer = base->Allocate(bytes);
      EXPECT_TRUE(buffer);
      return buffer;
    }
    void End() { test_.memory_->EndStep(/*failed=*/false, std::move(arena_), std::move(watch_)); }
    const StepArena* arena() const { return arena_.get(); }
    bool watched() const { return static_cast<bool>(watch_); }

   private:
    ProgramMemoryTest& test_;
    RefPtr<StepArena> arena_;
    RefPtr<MemoryTracker> watch_;
    MemoryTracker* tracker_ = nullptr;
  };

  // Each value is there until the next one is.
  std::vector<void*> RunChain() {
    std::vector<void*> where;
    Step step(this);
    RefPtr<Buffer> last;
    for (int node = 0; node < kNodes; ++node) {
      RefPtr<Buffer> next = step.Allocate(node);
      where.push_back(next->data());
      last = std::move(next);
    }
    last.reset();
    step.End();
    return where;
  }
  const Kernel* KernelOf(int node) const {
    return reinterpret_cast<const Kernel*>(&kernels_[node]);  // a name, never looked into
  }

  static constexpr int kNodes = 10;
  int kernels_[kNodes] = {};
  std::unique_ptr<ProgramMemory> memory_ = std::make_unique<ProgramMemory>(
      kNodes, HostAllocator(), [this](const Kernel* kernel) -> int32_t {
        for (int node = 0; node < kNodes; ++node) {
          if (KernelOf(node) == kernel) return node;
        }
        return -1;
      });
};

TEST_F(ProgramMemoryTest, AChainThatWasWatchedLiesInTwoPlaces) {
  RunChain();
  RunChain();
  const std::vector<void*> first = RunChain();
  EXPECT_EQ(first, RunChain()) << "every step takes the same places";
  for (int node = 2; node < kNodes; ++node) EXPECT_EQ(first[node], first[node - 2]);
  Step step(this);
  ASSERT_NE(step.arena(), nullptr);
  EXPECT_EQ(step.arena()->plan().bytes, 2 * int64_t{kBytes});
  EXPECT_EQ(step.arena()->plan().bound, 2 * int64_t{kBytes});
  EXPECT_FALSE(step.watched()) << "once is enough";
  step.End();
}

TEST_F(ProgramMemoryTest, WhatSomebodyKeepsIsNotOverwrittenAndGetsNoPlaceAgain) {
  for (int i = 0; i < 3; ++i) RunChain();
  Step step(this);
  const RefPtr<Buffer> kept = step.Allocate(0);
  std::memset(kept->data(), 1, kBytes);
  for (int node = 1; node < kNodes; ++node) {
    const RefPtr<Buffer> other = step.Allocate(node);
    std::memset(other->data(), 2, kBytes);
    EXPECT_NE(other->data(), kept->data());
  }
  step.End();
  for (int i = 0; i < 3; ++i) {
    for (void* other : RunChain()) EXPECT_NE(other, kept->data());
  }
  const auto* bytes = static_cast<const unsigned char*>(kept->data());
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(bytes[i], 1) << "at " << i;
  Step last(this);
  EXPECT_LT(last.arena()->plan().slots[0].offset, 0);
  last.End();
}

TEST_F(ProgramMemoryTest, WhatOutlivesTheWatchedStepHasNoPlace) {
  const int64_t before = TotalPlannedMemory().misses;
  std::vector<RefPtr<Buffer>> kept;
  for (int i = 0; i < 4; ++i) {
    Step step(this);
    kept.push_back(step.Allocate(0));
    step.Allocate(1);
    if (i >= 2) {
      ASSERT_NE(step.arena(), nullptr);
      EXPECT_EQ(step.arena()->plan().bytes, int64_t{kBytes}) << "of node 1 alone";
      EXPECT_TRUE(step.arena()->Busy().empty());
    }
    step.End();
  }
  EXPECT_EQ(TotalPlannedMemory().misses, before);
}

TEST_F(ProgramMemoryTest, AnOrderThatWasNotWatchedIsRightAndLearnt) {
  for (int i = 0; i < 3; ++i) RunChain();
  const int64_t before = TotalPlannedMemory().misses;
  int64_t misses = 0;
  for (int i = 0; i < 6; ++i) {
    Step step(this);
    std::vector<RefPtr<Buffer>> all;
    for (int node = 0; node < 4; ++node) {
      all.push_back(step.Allocate(node));
      std::memset(all.back()->data(), node, kBytes);
    }
    for (int node = 0; node < 4; ++node) {
      EXPECT_EQ(static_cast<const char*>(all[node]->data())[kBytes - 1], node);
    }
    all.clear();
    step.End();
    misses = TotalPlannedMemory().misses - before;
  }
  EXPECT_GE(misses, 1);
  EXPECT_LE(misses, 3) << "then there are four places";
  Step step(this);
  EXPECT_EQ(step.arena()->plan().bytes, 4 * int64_t{kBytes});
  step.End();
}

TEST_F(ProgramMemoryTest, ManyOrdersAreLearntAfterTheLastStepThatIsWatched) {
  for (int i = 0; i < 3; ++i) RunChain();
  // Any two nodes meet in some step.
  const auto run_pairs = [this] {
    const int64_t before = TotalPlannedMemory().misses;
    for (int a = 0; a < kNodes; ++a) {
      for (int b = 0; b < a; ++b) {
        Step step(this);
        RefPtr<Buffer> first = step.Allocate(a), second = step.Allocate(b);
        EXPECT_NE(first->data(), second->data());
        first.reset();
        second.reset();
        step.End();
      }
    }
    return TotalPlannedMemory().misses - before;
  };
  EXPECT_GT(run_pairs(), 8);
  EXPECT_EQ(run_pairs(), 0);
}

TEST_F(ProgramMemoryTest, WhatIsLargerThanItsPlaceComesFromElsewhereUntilThatIsLearnt) {
  for (int i = 0; i < 3; ++i) RunChain();
  for (int i = 0; i < 4; ++i) {
    Step step(this);
    RefPtr<Buffer> buffer = step.Allocate(0, 2 * kBytes);
    EXPECT_GE(buffer->size(), 2 * kBytes);
    std::memset(buffer->data(), 1, 2 * kBytes);
    if (i >= 2) {
      EXPECT_EQ(step.arena()->Busy().size(), 1u) << "it has a place";
    }
    buffer.reset();
    step.End();
  }
}

TEST_F(ProgramMemoryTest, StepsAtTheSameTimeHaveABlockEach) {
  for (int i = 0; i < 3; ++i) RunChain();
  Step a(this), b(this);
  ASSERT_NE(a.arena(), nullptr);
  ASSERT_NE(b.arena(), nullptr);
  EXPECT_NE(a.arena(), b.arena());
  EXPECT_NE(a.Allocate(0)->data(), b.Allocate(0)->data());
  a.End();
  b.End();
}

TEST_F(ProgramMemoryTest, ABlockLargerThanTheStepsLimitIsNotUsed) {
  for (int i = 0; i < 3; ++i) RunChain();
  auto tight = MakeRef<MemoryTracker>(2 * kBytes - 1), wide = MakeRef<MemoryTracker>(2 * kBytes);
  Step a(this, tight.get()), b(this, wide.get());
  EXPECT_EQ(a.arena(), nullptr);
  EXPECT_NE(b.arena(), nullptr);
  a.End();
  b.End();
}

TEST_F(ProgramMemoryTest, AProgramOfSmallBuffersIsLeftAlone) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(memory_->active());
    Step step(this);
    step.Allocate(0, kPlannedBytes - 1);
    step.End();
  }
  EXPECT_FALSE(memory_->active());
}

TEST_F(ProgramMemoryTest, BuffersMayOutliveTheProgram) {
  for (int i = 0; i < 3; ++i) RunChain();
  Step step(this);
  RefPtr<Buffer> kept = step.Allocate(3);
  step.End();
  memory_.reset();
  std::memset(kept->data(), 5, kBytes);
  EXPECT_EQ(TotalPlannedMemory().programs, 0);
}

}  // namespace
}  // namespace millrace
