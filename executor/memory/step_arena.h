// SPDX-License-Identifier: Apache-2.0
// Memory of steps that run again and again: what a node needs lies at the same place in every
// step, in one block that survives from step to step.
//
// A step is watched (its memory tracker keeps a log), and what was taken by nodes outside of loops
// and was gone by the end of the step gets a place (executor/memory/memory_plan.h). The plan is a
// guess, not a promise: a place is given away only if no buffer that overlaps it has a share left,
// and for everything that does not fit or comes unexpected there is the device's allocator. So no
// kernel has to say what it keeps, and any order of nodes is right; an order that is not the one
// that was watched is learnt.
#ifndef EXECUTOR_MEMORY_STEP_ARENA_H_
#define EXECUTOR_MEMORY_STEP_ARENA_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/memory/memory_plan.h"
#include "executor/memory/memory_tracker.h"
#include "millrace/ref_ptr.h"
#include "tensor/allocator.h"

namespace millrace {

// Buffers of less than this are not planned: they come from the allocator's size classes.
inline constexpr int64_t kPlannedBytes = int64_t{16} << 10;

// What a program's block looks like. Constant.
struct ArenaPlan {
  struct Slot {
    int32_t node = 0;
    int32_t ordinal = 0;  // of the node's buffers of at least kPlannedBytes
    int64_t bytes = 0;
    int64_t offset = -1;  // -1: known to outlive the step; not in the block
  };
  int64_t bytes = 0;
  int64_t bound = 0;           // what was there at one time in the steps that were watched
  int64_t apart = 0;           // what the places would take if none overlapped another
  std::vector<int32_t> first;  // by node: its first slot, -1: none
  std::vector<Slot> slots;     // by node and ordinal
  Conflicts overlaps;          // of places
};

// One block, for one step at a time. Thread-safe. Lives until its last buffer is gone.
class StepArena final : public RefCounted {
 public:
  // Null if there is no memory for it.
  static RefPtr<StepArena> Make(std::shared_ptr<const ArenaPlan> plan, Allocator* allocator);
  ~StepArena() override;

  const ArenaPlan& plan() const { return *plan_; }
  // The place of that buffer; null if it has none, or if another buffer is there still.
  RefPtr<Buffer> Claim(int32_t node, int32_t ordinal, std::size_t bytes);

  // At the end of a step. True if something that was planned could not be as planned.
  bool TakeMisses(std::vector<std::pair<int32_t, int32_t>>* collisions);
  std::vector<int32_t> Busy() const;  // slots that somebody has a share of

 private:
  class Place;
  StepArena(std::shared_ptr<const ArenaPlan> plan, RefPtr<Buffer> block);
  void Release(int32_t slot);

  const std::shared_ptr<const ArenaPlan> plan_;
  const RefPtr<Buffer> block_;
  std::vector<Place*> places_;
  mutable Mutex mu_;
  std::vector<uint64_t> busy_ ABSL_GUARDED_BY(mu_);
  bool missed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::pair<int32_t, int32_t>> collisions_ ABSL_GUARDED_BY(mu_);
};

// Memory for one run of one node: its places in the arena, the rest from `base`.
class ArenaAllocator final : public Allocator {
 public:
  ArenaAllocator(Allocator* base, StepArena* arena, int32_t node)
      : base_(base), arena_(arena), node_(node) {}
  std::string_view name() const override { return base_->name(); }
  RefPtr<Buffer> Allocate(std::size_t bytes) override;
  AllocatorStats stats() const override { return base_->stats(); }
  MemorySpace space() const override { return base_->space(); }

 private:
  Allocator* const base_;
  StepArena* const arena_;
  const int32_t node_;
  std::atomic<int32_t> ordinal_{0};
};

// What is known of the memory of one program. Thread-safe.
class ProgramMemory {
 public:
  // `node_of` gives the number of a kernel's node outside of loops, -1 for all others. So many
  // steps are not watched: the first one may do what no other does, and while costs are learnt a
  // program may run in a way that is given up.
  ProgramMemory(int num_nodes, Allocator* allocator, std::function<int32_t(const Kernel*)> node_of,
                int64_t unwatched_steps = 1);
  ~ProgramMemory();

  // False if steps have nothing to do with it: it costs one load then.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // `tracker` is the step's own, or null; it may be given one that watches. The arena may be null.
  void BeginStep(RefPtr<StepArena>* arena, RefPtr<MemoryTracker>* watch, MemoryTracker* tracker);
  // When all values of the step are gone but those that somebody keeps.
  void EndStep(bool failed, RefPtr<StepArena> arena, RefPtr<MemoryTracker> watch);

 private:
  struct Known {  // a buffer
    int64_t bytes = 0;
    bool escapes = false;
  };
  using Key = std::pair<int32_t, int32_t>;       // node, ordinal
  static constexpr std::size_t kMaxWatched = 8;  // steps
  static constexpr int kMaxSlots = 512;
  static constexpr std::size_t kMaxIdle = 2;

  void Learn(const std::vector<MemoryTracker::Logged>& log) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Conflicts FindConflicts(const std::map<Key, int>& index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Replan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetPlan(std::shared_ptr<const ArenaPlan> plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int num_nodes_;
  Allocator* const allocator_;
  const std::function<int32_t(const Kernel*)> node_of_;
  const int64_t unwatched_steps_;
  std::atomic<bool> active_{true};
  Mutex mu_;
  int64_t num_steps_ ABSL_GUARDED_BY(mu_) = 0;
  bool wants_watch_ ABSL_GUARDED_BY(mu_) = true;
  bool watching_ ABSL_GUARDED_BY(mu_) = false;
  std::map<Key, Known> known_ ABSL_GUARDED_BY(mu_);
  std::vector<std::map<Key, LiveRange>> watched_ ABSL_GUARDED_BY(mu_);  // steps
  std::set<std::pair<Key, Key>> collisions_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const ArenaPlan> plan_ ABSL_GUARDED_BY(mu_);
  bool plan_is_new_ ABSL_GUARDED_BY(mu_) = false;  // it has no block yet
  std::vector<RefPtr<StepArena>> idle_ ABSL_GUARDED_BY(mu_);
};

// Of all programs of this process that have a plan.
struct PlannedMemory {
  int64_t programs = 0;
  int64_t arena_bytes = 0;  // of one block each
  int64_t bound_bytes = 0;  // what the same buffers need at least
  int64_t apart_bytes = 0;  // what they would take without sharing: the most that a block grows to
  int64_t misses = 0;       // steps in which something was not as planned, since the start
};
PlannedMemory TotalPlannedMemory();

}  // namespace millrace

#endif  // EXECUTOR_MEMORY_STEP_ARENA_H_
