// SPDX-License-Identifier: Apache-2.0
#include "executor/capture/capture_memory.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace millrace {
namespace {

// As allocators of devices align: libraries choose algorithms by alignment.
constexpr std::size_t kAlignment = 256;

std::size_t RoundUp(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

struct RehearsalMemory::Shared {
  mutable Mutex mu;
  int64_t clock ABSL_GUARDED_BY(mu) = 0;
  std::vector<LiveRange> ranges ABSL_GUARDED_BY(mu);  // `end` is -1 while it is there
  std::multimap<std::size_t, RefPtr<Buffer>> free ABSL_GUARDED_BY(mu);  // by size
};

class RehearsalMemory::Lent final : public Buffer {
 public:
  Lent(std::shared_ptr<Shared> shared, std::size_t index, std::size_t bytes, RefPtr<Buffer> block)
      : Buffer(block->data(), bytes, block->space()),
        shared_(std::move(shared)),
        index_(index),
        block_(std::move(block)) {}
  ~Lent() override {
    MutexLock lock(&shared_->mu);
    shared_->ranges[index_].end = shared_->clock++;
    const std::size_t size = block_->size();
    shared_->free.emplace(size, std::move(block_));
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const std::size_t index_;
  RefPtr<Buffer> block_;
};

RehearsalMemory::RehearsalMemory(Allocator* base)
    : base_(base), shared_(std::make_shared<Shared>()) {}

RefPtr<Buffer> RehearsalMemory::Allocate(std::size_t bytes) {
  const std::size_t rounded = RoundUp(bytes);
  MutexLock lock(&shared_->mu);
  RefPtr<Buffer> block;
  const auto fits = shared_->free.lower_bound(rounded);
  if (fits != shared_->free.end() && fits->first <= 2 * rounded) {
    block = std::move(fits->second);
    shared_->free.erase(fits);
  } else {
    block = base_->Allocate(rounded);
    if (!block) return nullptr;
  }
  const std::size_t index = shared_->ranges.size();
  shared_->ranges.push_back({static_cast<int64_t>(rounded), shared_->clock++, -1});
  return RefPtr<Buffer>(new Lent(shared_, index, bytes, std::move(block)));
}

CaptureLayout RehearsalMemory::Plan() const {
  MutexLock lock(&shared_->mu);
  const std::span<const LiveRange> ranges(shared_->ranges);
  const int n = static_cast<int>(ranges.size());
  CaptureLayout layout;
  Conflicts conflicts(n);
  // Ranges begin in order: those that have not ended when one begins are in its way.
  std::vector<int> live;
  for (int i = 0; i < n; ++i) {
    const LiveRange& range = ranges[i];
    layout.bytes.push_back(range.bytes);
    std::erase_if(live, [&](int other) {
      const int64_t end = ranges[other].end;
      return end >= 0 && end <= range.begin;
    });
    for (const int other : live) conflicts.Add(i, other);
    live.push_back(i);
  }
  Offsets planned = PlanOffsets(layout.bytes, conflicts);
  layout.offsets = std::move(planned.offsets);
  layout.block_bytes = planned.bytes;
  return layout;
}

RefPtr<Buffer> LaidOutMemory::Allocate(std::size_t bytes) {
  const bool fits = next_ < layout_->bytes.size() &&
                    layout_->bytes[next_] == static_cast<int64_t>(RoundUp(bytes));
  kept_ = kept_ && fits;
  if (!fits) return nullptr;
  return WrapBuffer(block_ + layout_->offsets[next_++], bytes, nullptr, nullptr, base_->space());
}

}  // namespace millrace
