// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace millrace {
namespace {

// Small blocks come in slabs of this size; a larger one has a slab to itself.
constexpr std::size_t kSlabBytes = std::size_t{4} << 20;

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

// Four sizes to an octave, so that blocks are used again for tensors of about their size.
std::size_t BlockSize(std::size_t size) {
  const std::size_t step = std::bit_floor(size - 1) / 4;
  return (size + step - 1) / step * step;
}

int NewMemoryFile() {
  // Where the system refuses memory files that could be run.
  const int fd = memfd_create("millrace", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) return fd;
  return memfd_create("millrace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

}  // namespace

RefPtr<SharedSlab> SharedSlab::New(uint32_t id, std::size_t block_size, uint32_t num_blocks,
                                   std::shared_ptr<std::atomic<int64_t>> used) {
  const std::size_t size = block_size * num_blocks;
  const int fd = NewMemoryFile();
  if (fd < 0) return nullptr;
  void* data = MAP_FAILED;
  // fallocate says that there is no memory where a write to the mapping would raise SIGBUS.
  if (ftruncate(fd, static_cast<off_t>(size)) == 0 &&
      fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (data == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  return RefPtr<SharedSlab>(
      new SharedSlab(id, block_size, size, fd, static_cast<uint8_t*>(data), std::move(used)));
}

SharedSlab::SharedSlab(uint32_t id, std::size_t block_size, std::size_t size, int fd, uint8_t* data,
                       std::shared_ptr<std::atomic<int64_t>> used)
    : id_(id), block_size_(block_size), size_(size), fd_(fd), data_(data), used_(std::move(used)) {}

SharedSlab::~SharedSlab() {
  munmap(data_, size_);
  close(fd_);
  used_->fetch_sub(static_cast<int64_t>(size_), std::memory_order_relaxed);
}

SharedLease::SharedLease(RefPtr<SharedArena> arena, RefPtr<SharedSlab> slab, uint32_t block)
    : arena_(std::move(arena)), slab_(std::move(slab)), place_{slab_->id(), block} {}

SharedLease::~SharedLease() {
  if (abandoned_.load(std::memory_order_acquire)) {
    arena_->Retire(place_.slab);
  } else {
    arena_->GiveBack(place_);
  }
}

RefPtr<SharedLease> SharedArena::Take(std::size_t size) {
  const std::size_t block_size = BlockSize(std::max(size, kLeast));
  const auto num_blocks = static_cast<uint32_t>(std::max<std::size_t>(kSlabBytes / block_size, 1));
  const auto bytes = static_cast<int64_t>(block_size * num_blocks);
  uint32_t id;
  {
    MutexLock lock(&mu_);
    if (RefPtr<SharedLease> lease = TakeFree(block_size)) return lease;
    if (bytes > budget_) return nullptr;
    MakeRoom(bytes);
    if (used() + bytes > budget_) return nullptr;
    used_->fetch_add(bytes, std::memory_order_relaxed);
    id = next_slab_++;
  }
  // Without the lock: the system clears the memory.
  RefPtr<SharedSlab> slab = SharedSlab::New(id, block_size, num_blocks, used_);
  if (!slab) {
    used_->fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  MutexLock lock(&mu_);
  slabs_[id] = Entry{slab, num_blocks};
  for (uint32_t i = 0; i < num_blocks; ++i) free_[block_size].push_back({id, i});
  return TakeFree(block_size);
}

RefPtr<SharedLease> SharedArena::TakeFree(std::size_t block_size) {
  const auto it = free_.find(block_size);
  if (it == free_.end() || it->second.empty()) return nullptr;
  const SharedPlace place = it->second.back();
  it->second.pop_back();
  Entry& entry = slabs_.at(place.slab);
  --entry.num_free;
  return MakeRef<SharedLease>(RefPtr<SharedArena>::Share(this), entry.slab, place.block);
}

void SharedArena::MakeRoom(int64_t bytes) {
  std::vector<uint32_t> idle;
  for (const auto& [id, entry] : slabs_) {
    if (entry.num_free == entry.slab->num_blocks()) idle.push_back(id);
  }
  for (const uint32_t id : idle) {
    if (used() + bytes <= budget_) return;
    Forget(id);
  }
}

void SharedArena::Forget(uint32_t slab) {
  const auto it = slabs_.find(slab);
  if (it == slabs_.end()) return;
  it->second.slab->Drop();
  std::erase_if(free_[it->second.slab->block_size()],
                [slab](const SharedPlace& place) { return place.slab == slab; });
  slabs_.erase(it);
}

void SharedArena::GiveBack(const SharedPlace& place) {
  MutexLock lock(&mu_);
  const auto it = slabs_.find(place.slab);
  if (it == slabs_.end()) return;  // retired
  ++it->second.num_free;
  free_[it->second.slab->block_size()].push_back(place);
}

void SharedArena::Retire(uint32_t slab) {
  MutexLock lock(&mu_);
  Forget(slab);
}

}  // namespace millrace
