// SPDX-License-Identifier: Apache-2.0
#include "executor/memory/step_arena.h"

#include <algorithm>
#include <new>

#include "absl/base/config.h"

// Places that nobody has are out of bounds for the address sanitizer.
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace millrace {

// Of tensor/allocator.cc.
void FreeIdleHostMemory();

namespace {

struct Totals {
  std::atomic<int64_t> programs{0}, arena_bytes{0}, bound_bytes{0}, apart_bytes{0}, misses{0};
};
Totals& GetTotals() {
  static Totals totals;
  return totals;
}

void Count(const ArenaPlan* plan, int64_t sign) {
  if (plan == nullptr) return;
  Totals& totals = GetTotals();
  totals.programs += sign;
  totals.arena_bytes += sign * plan->bytes;
  totals.bound_bytes += sign * plan->bound;
  totals.apart_bytes += sign * plan->apart;
}

}  // namespace

PlannedMemory TotalPlannedMemory() {
  const Totals& totals = GetTotals();
  return {totals.programs, totals.arena_bytes, totals.bound_bytes, totals.apart_bytes,
          totals.misses};
}

// ---- the block ----

// A buffer at its place; used again and again.
class StepArena::Place final : public Buffer {
 public:
  Place(StepArena* arena, int32_t slot, void* data, std::size_t size, MemorySpace space)
      : Buffer(data, size, space), arena_(arena), slot_(slot) {}
  using Buffer::ResetRefCount;

 private:
  void Destroy() override { arena_->Release(slot_); }

  StepArena* const arena_;
  const int32_t slot_;
};

RefPtr<StepArena> StepArena::Make(std::shared_ptr<const ArenaPlan> plan, Allocator* allocator) {
  RefPtr<Buffer> block = allocator->Allocate(static_cast<std::size_t>(plan->bytes));
  if (!block) return nullptr;
  return RefPtr<StepArena>(new StepArena(std::move(plan), std::move(block)));
}

StepArena::StepArena(std::shared_ptr<const ArenaPlan> plan, RefPtr<Buffer> block)
    : plan_(std::move(plan)), block_(std::move(block)) {
  const std::vector<ArenaPlan::Slot>& slots = plan_->slots;
  busy_.resize((slots.size() + 63) / 64);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    char* const data = static_cast<char*>(block_->data()) + std::max<int64_t>(0, slots[i].offset);
    places_.push_back(
        new Place(this, static_cast<int32_t>(i), data, slots[i].bytes, block_->space()));
  }
  ASAN_POISON_MEMORY_REGION(block_->data(), plan_->bytes);
}

StepArena::~StepArena() {
  ASAN_UNPOISON_MEMORY_REGION(block_->data(), plan_->bytes);
  for (Place* place : places_) delete place;
}

RefPtr<Buffer> StepArena::Claim(int32_t node, int32_t ordinal, std::size_t bytes) {
  const std::vector<ArenaPlan::Slot>& slots = plan_->slots;
  const int32_t slot = plan_->first[node] + ordinal;
  const bool planned = slot < static_cast<int32_t>(slots.size()) && slots[slot].node == node;
  if (planned && slots[slot].offset < 0) return nullptr;
  MutexLock lock(&mu_);
  if (!planned || static_cast<int64_t>(bytes) > slots[slot].bytes) {
    missed_ = true;
    return nullptr;
  }
  const std::span<const uint64_t> overlaps = plan_->overlaps.row(slot);
  for (std::size_t w = 0; w < busy_.size(); ++w) {
    if ((busy_[w] & overlaps[w]) == 0) continue;
    missed_ = true;
    for (int32_t b = 0; b < 64; ++b) {
      if ((busy_[w] & overlaps[w]) >> b & 1) {
        collisions_.emplace_back(slot, static_cast<int32_t>(w * 64) + b);
      }
    }
    return nullptr;
  }
  busy_[slot / 64] |= uint64_t{1} << (slot % 64);
  Place* const place = places_[slot];
  ASAN_UNPOISON_MEMORY_REGION(place->data(), place->size());
  place->ResetRefCount();
  Ref();  // the buffer's
  return RefPtr<Buffer>(place);
}

void StepArena::Release(int32_t slot) {
  {
    MutexLock lock(&mu_);
    ASAN_POISON_MEMORY_REGION(places_[slot]->data(), places_[slot]->size());
    busy_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  }
  Unref();
}

bool StepArena::TakeMisses(std::vector<std::pair<int32_t, int32_t>>* collisions) {
  MutexLock lock(&mu_);
  collisions->swap(collisions_);
  collisions_.clear();
  return std::exchange(missed_, false);
}

std::vector<int32_t> StepArena::Busy() const {
  std::vector<int32_t> slots;
  MutexLock lock(&mu_);
  for (std::size_t w = 0; w < busy_.size(); ++w) {
    if (busy_[w] == 0) continue;
    for (int32_t b = 0; b < 64; ++b) {
      if (busy_[w] >> b & 1) slots.push_back(static_cast<int32_t>(w * 64) + b);
    }
  }
  return slots;
}

RefPtr<Buffer> ArenaAllocator::Allocate(std::size_t bytes) {
  if (static_cast<int64_t>(bytes) >= kPlannedBytes) {
    const int32_t ordinal = ordinal_.fetch_add(1, std::memory_order_relaxed);
    if (RefPtr<Buffer> buffer = arena_->Claim(node_, ordinal, bytes)) return buffer;
  }
  return base_->Allocate(bytes);
}

// ---- the program ----

ProgramMemory::ProgramMemory(int num_nodes, Allocator* allocator,
                             std::function<int32_t(const Kernel*)> node_of, int64_t unwatched_steps)
    : num_nodes_(num_nodes),
      allocator_(allocator),
      node_of_(std::move(node_of)),
      unwatched_steps_(unwatched_steps) {
  idle_.reserve(kMaxIdle);
}

ProgramMemory::~ProgramMemory() { Count(plan_.get(), -1); }

void ProgramMemory::BeginStep(RefPtr<StepArena>* arena, RefPtr<MemoryTracker>* watch,
                              MemoryTracker* tracker) {
  MutexLock lock(&mu_);
  const int64_t step = num_steps_++;
  const bool allowed = plan_ != nullptr && (tracker == nullptr || tracker->limit() == 0 ||
                                            plan_->bytes <= tracker->limit());
  if (allowed && !idle_.empty()) {
    *arena = std::move(idle_.back());
    idle_.pop_back();
  } else if (allowed) {
    // What the buffers took before they had places is needed no more.
    if (std::exchange(plan_is_new_, false)) FreeIdleHostMemory();
    *arena = StepArena::Make(plan_, allocator_);
  }
  if (!wants_watch_ || watching_ || step < unwatched_steps_) return;
  *watch = tracker != nullptr ? RefPtr<MemoryTracker>::Share(tracker) : MakeRef<MemoryTracker>(0);
  watching_ = (*watch)->StartLog(kPlannedBytes);
  if (!watching_) watch->reset();
}

void ProgramMemory::EndStep(bool failed, RefPtr<StepArena> arena, RefPtr<MemoryTracker> watch) {
  std::vector<MemoryTracker::Logged> log;
  if (watch) log = watch->TakeLog();
  std::vector<RefPtr<StepArena>> dropped;  // freed without the lock
  MutexLock lock(&mu_);
  if (watch) {
    watching_ = false;
    if (!failed) {
      wants_watch_ = false;
      Learn(log);
    }
  }
  if (arena) {
    std::vector<std::pair<int32_t, int32_t>> collisions;
    const bool missed = arena->TakeMisses(&collisions);
    const std::vector<int32_t> busy = arena->Busy();
    const std::vector<ArenaPlan::Slot>& slots = arena->plan().slots;
    const auto key = [&slots](int32_t slot) { return Key(slots[slot].node, slots[slot].ordinal); };
    bool learnt = false;
    if (missed) {
      GetTotals().misses += 1;
      for (const auto& [a, b] : collisions) {
        learnt = collisions_.emplace(key(a), key(b)).second || learnt;
      }
      // The next step is watched, or, after enough of them, what met is kept apart from now on:
      // there are only so many pairs.
      wants_watch_ = wants_watch_ || watched_.size() < kMaxWatched;
    }
    for (const int32_t slot : busy) known_[key(slot)].escapes = true;
    const bool current = &arena->plan() == plan_.get();
    if ((!busy.empty() && current) || (learnt && !wants_watch_)) Replan();
    if (&arena->plan() == plan_.get() && idle_.size() < kMaxIdle) {
      idle_.push_back(std::move(arena));
    } else {
      dropped.push_back(std::move(arena));
    }
  }
  for (std::size_t i = 0; i < idle_.size();) {
    if (&idle_[i]->plan() == plan_.get()) {
      ++i;
      continue;
    }
    dropped.push_back(std::move(idle_[i]));
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  active_.store(plan_ != nullptr || wants_watch_, std::memory_order_relaxed);
}

void ProgramMemory::Learn(const std::vector<MemoryTracker::Logged>& log) {
  std::map<Key, LiveRange>& ranges = watched_.emplace_back();
  for (const MemoryTracker::Logged& entry : log) {
    const int32_t node = node_of_(entry.kernel);
    if (node < 0) continue;
    const Key key(node, entry.ordinal);
    Known& known = known_[key];
    known.bytes = std::max(known.bytes, entry.bytes);
    known.escapes = known.escapes || entry.end < 0;
    ranges[key] = {entry.bytes, entry.begin, entry.end};
  }
  Replan();
}

// In whatever step that was watched, or met in another one.
Conflicts ProgramMemory::FindConflicts(const std::map<Key, int>& index) const {
  Conflicts conflicts(static_cast<int>(index.size()));
  for (const auto& ranges : watched_) {
    for (const auto& [a_key, a] : ranges) {
      const auto a_index = index.find(a_key);
      if (a_index == index.end()) continue;
      for (const auto& [b_key, b] : ranges) {
        if (b_key == a_key) break;
        const auto b_index = index.find(b_key);
        const bool together = a.begin < b.end && b.begin < a.end;
        if (together && b_index != index.end()) conflicts.Add(a_index->second, b_index->second);
      }
    }
  }
  for (const auto& [a, b] : collisions_) {
    const auto a_index = index.find(a), b_index = index.find(b);
    if (a_index != index.end() && b_index != index.end() && a != b) {
      conflicts.Add(a_index->second, b_index->second);
    }
  }
  return conflicts;
}

void ProgramMemory::Replan() {
  auto plan = std::make_shared<ArenaPlan>();
  plan->first.assign(num_nodes_, -1);
  // The largest ones, if there are too many.
  std::vector<int64_t> sizes;
  for (const auto& [key, known] : known_) sizes.push_back(known.bytes);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const int64_t least = sizes.size() > kMaxSlots ? sizes[kMaxSlots] + 1 : 0;
  std::map<Key, int> index;  // of those that get a place
  std::vector<int32_t> slot_of_index;
  std::vector<int64_t> bytes;
  for (const auto& [key, known] : known_) {
    const auto slot = static_cast<int32_t>(plan->slots.size());
    if (plan->first[key.first] < 0) plan->first[key.first] = slot;
    // Ordinals of a node that were never seen would shift the others.
    while (static_cast<int32_t>(plan->slots.size()) - plan->first[key.first] < key.second) {
      const auto gap = static_cast<int32_t>(plan->slots.size()) - plan->first[key.first];
      plan->slots.push_back({key.first, gap, 0, -1});
    }
    if (!known.escapes && known.bytes >= least) {
      index[key] = static_cast<int>(bytes.size());
      slot_of_index.push_back(static_cast<int32_t>(plan->slots.size()));
      bytes.push_back(known.bytes);
    }
    plan->slots.push_back({key.first, key.second, known.bytes, -1});
  }
  if (bytes.empty()) return SetPlan(nullptr);
  const Offsets offsets = PlanOffsets(bytes, FindConflicts(index));
  plan->bytes = offsets.bytes;
  constexpr auto kUnit = static_cast<int64_t>(kTensorAlignment);
  for (const int64_t size : bytes) plan->apart += (size + kUnit - 1) / kUnit * kUnit;
  for (const auto& ranges : watched_) {
    std::vector<LiveRange> placed;
    for (const auto& [key, range] : ranges) {
      if (index.contains(key)) placed.push_back(range);
    }
    plan->bound = std::max(plan->bound, LiveRangeBound(placed));
  }
  plan->overlaps = Conflicts(static_cast<int>(plan->slots.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    plan->slots[slot_of_index[i]].offset = offsets.offsets[i];
    for (std::size_t k = 0; k <= i; ++k) {
      const bool apart = offsets.offsets[i] + bytes[i] <= offsets.offsets[k] ||
                         offsets.offsets[k] + bytes[k] <= offsets.offsets[i];
      if (!apart) plan->overlaps.Add(slot_of_index[i], slot_of_index[k]);
    }
  }
  SetPlan(std::move(plan));
}

void ProgramMemory::SetPlan(std::shared_ptr<const ArenaPlan> plan) {
  Count(plan_.get(), -1);
  plan_ = std::move(plan);
  plan_is_new_ = true;
  Count(plan_.get(), 1);
}

}  // namespace millrace
