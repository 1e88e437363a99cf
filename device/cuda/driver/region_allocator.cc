// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver/region_allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::size_t kUnit = 256;
constexpr std::size_t kRegionUnit = std::size_t{2} << 20;  // what drivers round to
constexpr int64_t kLargestStep = int64_t{1} << 30;         // regions do not double beyond it

std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return std::max<std::size_t>(1, (bytes + unit - 1) / unit) * unit;
}

std::atomic<uint64_t> next_id{1};

}  // namespace

// What a thread took last. Chunks live as long as their allocator, and its id says whether it is
// still the same.
struct RegionAllocator::Recent {
  static constexpr std::size_t kMost = 16;
  struct Taken {
    uint64_t allocator = 0;
    Chunk* chunk = nullptr;
    uint64_t serial = 0;
  };
  std::array<Taken, kMost> taken;
  std::size_t count = 0;

  void Add(const Taken& one) { taken[count++ % kMost] = one; }
};

RegionAllocator::Recent& RegionAllocator::ThreadsRecent() {
  static thread_local Recent recent;
  return recent;
}

std::string HumanBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

class RegionAllocator::Block final : public Buffer {
 public:
  Block(std::shared_ptr<RegionAllocator> owner, Chunk* chunk)
      : Buffer(chunk->data, chunk->size, owner->options_.space),
        owner_(std::move(owner)),
        chunk_(chunk) {}
  ~Block() override { owner_->Free(chunk_); }

 private:
  const std::shared_ptr<RegionAllocator> owner_;
  Chunk* const chunk_;
};

std::shared_ptr<RegionAllocator> RegionAllocator::New(RegionOptions options,
                                                      std::shared_ptr<RawMemory> raw) {
  return std::shared_ptr<RegionAllocator>(new RegionAllocator(std::move(options), std::move(raw)));
}

RegionAllocator::RegionAllocator(RegionOptions options, std::shared_ptr<RawMemory> raw)
    : options_(std::move(options)),
      raw_(std::move(raw)),
      id_(next_id.fetch_add(1)),
      next_region_(options_.first_region),
      grows_(options_.grows) {
  stats_.bytes_limit = options_.limit;
}

RegionAllocator::~RegionAllocator() {
  MutexLock lock(&mu_);
  for (Region& region : regions_) {
    if (region.data != nullptr) GiveRegion(&region);
  }
  for (Chunk* const chunk : spare_) delete chunk;
}

RefPtr<Buffer> RegionAllocator::Allocate(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(options_.limit)) return nullptr;
  const std::size_t size = options_.exact ? std::max<std::size_t>(bytes, 1) : RoundUp(bytes, kUnit);
  for (const bool last : {false, true}) {
    Chunk* chunk = nullptr;
    {
      MutexLock lock(&mu_);
      chunk = TakeChunk(size, bytes);
      if (chunk == nullptr && Grow(size)) chunk = TakeChunk(size, bytes);
    }
    if (chunk != nullptr) return MakeRef<Block>(shared_from_this(), chunk);
    if (last || on_full_ == nullptr) break;
    on_full_();
  }
  return nullptr;
}

RegionAllocator::Chunk* RegionAllocator::NewChunk() {
  if (spare_.empty()) return new Chunk;
  Chunk* const chunk = spare_.back();
  spare_.pop_back();
  return chunk;
}

RegionAllocator::Chunk* RegionAllocator::TakeChunk(std::size_t size, std::size_t wanted) {
  Chunk key;
  key.size = size;
  const auto found = free_.lower_bound(&key);
  if (found == free_.end()) return nullptr;
  Chunk* const chunk = *found;
  free_.erase(found);
  if (chunk->size > size) {
    Chunk* const rest = NewChunk();
    rest->data = chunk->data + size;
    rest->size = chunk->size - size;
    rest->region = chunk->region;
    rest->before = chunk;
    rest->after = chunk->after;
    if (rest->after != nullptr) rest->after->before = rest;
    chunk->after = rest;
    chunk->size = size;
    free_.insert(rest);
  }
  chunk->used = true;
  chunk->wanted = wanted;
  chunk->node.clear();
  chunk->serial = next_serial_++;
  ThreadsRecent().Add({id_, chunk, chunk->serial});
  stats_.bytes_in_use += static_cast<int64_t>(size);
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  ++stats_.num_allocations;
  return chunk;
}

bool RegionAllocator::Grow(std::size_t size) {
  const auto room = static_cast<std::size_t>(options_.limit - in_regions_);
  if (options_.exact) return size <= room && AddRegion(size);
  if (size > room) {
    // Regions without a block in them are of no use if none is large enough.
    std::size_t idle = 0;
    for (const Region& region : regions_) {
      if (region.data != nullptr && !region.first->used && region.first->after == nullptr) {
        idle += region.size;
      }
    }
    if (size > room + idle) return false;
    for (Region& region : regions_) {
      if (region.data != nullptr && !region.first->used && region.first->after == nullptr) {
        GiveRegion(&region);
      }
    }
  }
  const auto left = static_cast<std::size_t>(options_.limit - in_regions_);
  if (!grows_) {
    grows_ = true;
    // The rest of the device may be taken: a little less each time, down to half.
    for (std::size_t all = left; all >= size && all >= left / 2; all -= left / 16 + 1) {
      const std::size_t whole = all / kUnit * kUnit;
      if (whole >= size && AddRegion(whole)) return true;
    }
  }
  std::size_t want = std::max(size, static_cast<std::size_t>(next_region_));
  want = std::min(RoundUp(want, kRegionUnit), left / kUnit * kUnit);
  if (want >= size && AddRegion(want)) {
    next_region_ = std::max(next_region_, std::min(2 * next_region_, kLargestStep));
    return true;
  }
  return want > size && AddRegion(size);
}

bool RegionAllocator::AddRegion(std::size_t size) {
  StatusOr<void*> memory = raw_->Take(size);
  if (!memory.ok()) return false;
  Chunk* const chunk = NewChunk();
  *chunk = Chunk();
  chunk->data = static_cast<char*>(*memory);
  chunk->size = size;
  chunk->region = static_cast<int>(regions_.size());
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i].data == nullptr) chunk->region = static_cast<int>(i);
  }
  if (chunk->region == static_cast<int>(regions_.size())) regions_.emplace_back();
  regions_[chunk->region] = {chunk->data, size, chunk};
  free_.insert(chunk);
  in_regions_ += static_cast<int64_t>(size);
  ++stats_.num_system_allocations;
  if (on_region_ != nullptr) on_region_(chunk->data, size, true);
  return true;
}

void RegionAllocator::GiveRegion(Region* region) {
  if (on_region_ != nullptr) on_region_(region->data, region->size, false);
  raw_->Give(region->data, region->size);
  in_regions_ -= static_cast<int64_t>(region->size);
  for (Chunk* chunk = region->first; chunk != nullptr;) {
    Chunk* const next = chunk->after;
    if (!chunk->used) free_.erase(chunk);
    *chunk = Chunk();
    spare_.push_back(chunk);
    chunk = next;
  }
  *region = Region();
}

void RegionAllocator::Join(Chunk* chunk) {
  Chunk* const gone = chunk->after;
  chunk->size += gone->size;
  chunk->after = gone->after;
  if (chunk->after != nullptr) chunk->after->before = chunk;
  *gone = Chunk();
  spare_.push_back(gone);
}

void RegionAllocator::Free(Chunk* chunk) {
  MutexLock lock(&mu_);
  stats_.bytes_in_use -= static_cast<int64_t>(chunk->size);
  chunk->used = false;
  chunk->wanted = 0;
  if (Chunk* const next = chunk->after; next != nullptr && !next->used) {
    free_.erase(next);
    Join(chunk);
  }
  if (Chunk* const previous = chunk->before; previous != nullptr && !previous->used) {
    free_.erase(previous);
    Join(previous);
    chunk = previous;
  }
  free_.insert(chunk);
  if (options_.exact) GiveRegion(&regions_[chunk->region]);
}

void RegionAllocator::NameRecent(std::string_view node) {
  Recent& recent = ThreadsRecent();
  if (recent.count == 0) return;
  const std::size_t count = std::min(recent.count, Recent::kMost);
  MutexLock lock(&mu_);
  for (std::size_t i = 0; i < count; ++i) {
    const Recent::Taken& taken = recent.taken[i];
    if (taken.allocator != id_ || taken.chunk->serial != taken.serial) continue;
    if (taken.chunk->used && taken.chunk->node.empty()) taken.chunk->node.assign(node);
  }
  recent.count = 0;
}

int64_t RegionAllocator::Trim() {
  MutexLock lock(&mu_);
  if (!options_.grows) return 0;
  int64_t given = 0;
  for (Region& region : regions_) {
    if (region.data == nullptr || region.first->used || region.first->after != nullptr) continue;
    given += static_cast<int64_t>(region.size);
    GiveRegion(&region);
  }
  return given;
}

AllocatorStats RegionAllocator::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

bool RegionAllocator::Contains(const void* address) const {
  const char* const at = static_cast<const char*>(address);
  MutexLock lock(&mu_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const Region& region) {
    return region.data != nullptr && at >= region.data && at < region.data + region.size;
  });
}

std::string RegionAllocator::Report(int blocks) const {
  MutexLock lock(&mu_);
  std::vector<const Chunk*> live;
  int num_regions = 0;
  for (const Region& region : regions_) {
    if (region.data == nullptr) continue;
    ++num_regions;
    for (const Chunk* chunk = region.first; chunk != nullptr; chunk = chunk->after) {
      if (chunk->used) live.push_back(chunk);
    }
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const Chunk* a, const Chunk* b) { return a->wanted > b->wanted; });
  std::string text = StrCat(
      options_.name, ": ", HumanBytes(stats_.bytes_in_use), " of ", HumanBytes(options_.limit),
      " in use (peak ", HumanBytes(stats_.peak_bytes_in_use), ") in ", num_regions,
      num_regions == 1 ? " region" : " regions", "; largest free block ",
      HumanBytes(free_.empty() ? 0 : static_cast<int64_t>((*free_.rbegin())->size)));
  if (live.empty()) return text;
  StrAppend(&text, ". Largest of ", live.size(), " live blocks: ");
  for (std::size_t i = 0; i < live.size() && i < static_cast<std::size_t>(blocks); ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", HumanBytes(static_cast<int64_t>(live[i]->wanted)), " ",
              live[i]->node.empty() ? "(no node)" : StrCat("{{node ", live[i]->node, "}}"));
  }
  return text;
}

Status RegionAllocator::Check() const {
  MutexLock lock(&mu_);
  int64_t used = 0;
  int64_t all = 0;
  std::size_t num_free = 0;
  for (const Region& region : regions_) {
    if (region.data == nullptr) continue;
    const char* at = region.data;
    const Chunk* before = nullptr;
    for (const Chunk* chunk = region.first; chunk != nullptr; chunk = chunk->after) {
      if (chunk->data != at) return errors::Internal("a gap, or blocks that overlap");
      if (chunk->before != before) return errors::Internal("a neighbour that is not known");
      if (before != nullptr && !before->used && !chunk->used) {
        return errors::Internal("free neighbours that were not joined");
      }
      if (!chunk->used) ++num_free;
      if (!chunk->used && !free_.contains(const_cast<Chunk*>(chunk))) {
        return errors::Internal("a free block that cannot be found");
      }
      if (chunk->used) used += static_cast<int64_t>(chunk->size);
      at += chunk->size;
      before = chunk;
    }
    if (at != region.data + region.size) return errors::Internal("a region that is not filled");
    all += static_cast<int64_t>(region.size);
  }
  if (num_free != free_.size()) return errors::Internal("a free block that does not exist");
  if (used != stats_.bytes_in_use) return errors::Internal("bytes in use: ", used);
  if (all != in_regions_ || all > options_.limit) return errors::Internal("bytes held: ", all);
  return OkStatus();
}

}  // namespace millrace
