// SPDX-License-Identifier: Apache-2.0
#include "device/fake/fake_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "device/fake/fake_device.h"

namespace millrace {
namespace {

constexpr std::size_t kBlockUnit = 256;

// All that there is, by address.
struct Regions {
  Mutex mu;
  std::map<const char*, const FakeMemory*> by_begin ABSL_GUARDED_BY(mu);
};

Regions& AllRegions() {
  static auto* const regions = new Regions;
  return *regions;
}

}  // namespace

void* FakeAlias(const void* address) {
  const char* const at = static_cast<const char*>(address);
  Regions& regions = AllRegions();
  MutexLock lock(&regions.mu);
  auto next = regions.by_begin.upper_bound(at);
  if (next != regions.by_begin.begin()) {
    const FakeMemory& region = *(--next)->second;
    if (at < region.begin() + region.size()) return region.alias() + (at - region.begin());
  }
  return const_cast<void*>(address);
}

class FakeMemory::Block final : public Buffer {
 public:
  Block(std::shared_ptr<FakeMemory> memory, std::size_t offset, std::size_t bytes)
      : Buffer(memory->shut_ + offset, bytes, MemorySpace::kDevice),
        memory_(std::move(memory)),
        offset_(offset) {}
  ~Block() override { memory_->Free(offset_, size_); }

 private:
  const std::shared_ptr<FakeMemory> memory_;
  const std::size_t offset_;
};

StatusOr<std::shared_ptr<FakeMemory>> FakeMemory::Map(std::string name, int64_t limit) {
  const std::size_t unit = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (limit < 1) return errors::InvalidArgument("a device without memory: ", name);
  const std::size_t size = (static_cast<std::size_t>(limit) + unit - 1) / unit * unit;
  std::shared_ptr<FakeMemory> memory(new FakeMemory(std::move(name), size));
  const int file = memfd_create("millrace-fake", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    return errors::ResourceExhausted("no memory for ", memory->name_, ": ", std::strerror(error));
  }
  void* const shut = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
  void* const open =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (shut != MAP_FAILED) memory->shut_ = static_cast<char*>(shut);
  if (open != MAP_FAILED) memory->open_ = static_cast<char*>(open);
  if (shut == MAP_FAILED || open == MAP_FAILED) {
    return errors::ResourceExhausted("no addresses for ", memory->name_);
  }
  {
    MutexLock lock(&memory->mu_);
    memory->free_[0] = size;
    memory->stats_.bytes_limit = limit;
  }
  Regions& regions = AllRegions();
  MutexLock lock(&regions.mu);
  regions.by_begin[memory->shut_] = memory.get();
  return memory;
}

FakeMemory::~FakeMemory() {
  {
    Regions& regions = AllRegions();
    MutexLock lock(&regions.mu);
    regions.by_begin.erase(shut_);
  }
  if (shut_ != nullptr) munmap(shut_, size_);
  if (open_ != nullptr) munmap(open_, size_);
}

RefPtr<Buffer> FakeMemory::Allocate(std::size_t bytes) {
  if (bytes > size_) return nullptr;
  const std::size_t size =
      std::max<std::size_t>(1, (bytes + kBlockUnit - 1) / kBlockUnit) * kBlockUnit;
  std::size_t offset = 0;
  {
    MutexLock lock(&mu_);
    if (fail_ > 0) {
      --fail_;
      return nullptr;
    }
    if (stats_.bytes_in_use + static_cast<int64_t>(size) > stats_.bytes_limit) return nullptr;
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return nullptr;
    offset = best->first;
    const std::size_t rest = best->second - size;
    free_.erase(best);
    if (rest > 0) free_[offset + size] = rest;
    stats_.bytes_in_use += static_cast<int64_t>(size);
    stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
    ++stats_.num_allocations;
  }
  RefPtr<Buffer> block = MakeRef<Block>(shared_from_this(), offset, size);
  if (on_new_) on_new_(block->data(), size);
  return block;
}

void FakeMemory::Free(std::size_t offset, std::size_t bytes) {
  MutexLock lock(&mu_);
  stats_.bytes_in_use -= static_cast<int64_t>(bytes);
  auto here = free_.emplace(offset, bytes).first;
  const auto next = std::next(here);
  if (next != free_.end() && offset + bytes == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here == free_.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second == offset) {
    before->second += here->second;
    free_.erase(here);
  }
}

AllocatorStats FakeMemory::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

void FakeMemory::FailNext(int times) {
  MutexLock lock(&mu_);
  fail_ = times;
}

void FakeMemory::SetOnNew(std::function<void(void*, std::size_t)> on_new) {
  on_new_ = std::move(on_new);
}

}  // namespace millrace
