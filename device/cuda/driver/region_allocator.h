// SPDX-License-Identifier: Apache-2.0
// Blocks out of large regions: memory of a device is slow to get and to give back, and doing so
// waits for the device.
#ifndef DEVICE_CUDA_DRIVER_REGION_ALLOCATOR_H_
#define DEVICE_CUDA_DRIVER_REGION_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "device/trimmable_allocator.h"
#include "millrace/status.h"
#include "tensor/allocator.h"

namespace millrace {

// Where regions come from. Thread-safe.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  virtual StatusOr<void*> Take(std::size_t bytes) = 0;
  virtual void Give(void* region, std::size_t bytes) = 0;
};

struct RegionOptions {
  std::string name = "GPU_0_memory";
  MemorySpace space = MemorySpace::kDevice;
  int64_t limit = 0;  // bytes in all regions; more than 0
  // False: the first allocation takes one region of `limit` bytes, or of what there is (at least
  // half of it). True, or when that failed: regions are taken as they are needed, the first of
  // `first_region` bytes, each twice as large as the one before.
  bool grows = true;
  int64_t first_region = int64_t{2} << 20;
  // Every block is a region of its own, of exactly the bytes that were asked for, and is given back
  // when it is freed: slow, but tools that watch the raw memory see where each block ends.
  bool exact = false;
};

// Best fit, smallest address first; blocks are split, and joined with their neighbours when they
// are freed. Sizes are multiples of 256 bytes. A block that is freed may be handed out at once:
// see docs/adding_a_device.md. Lives until its last buffer is gone. Thread-safe.
class RegionAllocator final : public Allocator,
                              public TrimmableAllocator,
                              public std::enable_shared_from_this<RegionAllocator> {
 public:
  static std::shared_ptr<RegionAllocator> New(RegionOptions options,
                                              std::shared_ptr<RawMemory> raw);
  ~RegionAllocator() override;

  std::string_view name() const override { return options_.name; }
  RefPtr<Buffer> Allocate(std::size_t bytes) override;
  AllocatorStats stats() const override;
  MemorySpace space() const override { return options_.space; }

  // Called when there is no room, without a lock, before Allocate looks once more: a chance to
  // wait for what is about to be freed. Set before the first allocation.
  void SetOnFull(std::function<void()> on_full) { on_full_ = std::move(on_full); }
  // Called after a region was taken and before it is given back. Set before the first allocation.
  void SetOnRegion(std::function<void(void* region, std::size_t bytes, bool taken)> on_region) {
    on_region_ = std::move(on_region);
  }

  // For reports: the blocks that this thread took last (up to 16), and that nobody has named, are
  // those of this node. A kernel takes its outputs' memory first, and then says its name.
  void NameRecent(std::string_view node);

  // Gives regions in which nothing is allocated back, if regions are taken as they are needed.
  int64_t Trim() override;

  // For people: "GPU_0_memory: 1.2 GiB of 4.0 GiB in use (peak 1.3 GiB) in 2 regions; largest free
  // block 12.0 MiB. Largest of 17 live blocks: 512.0 MiB {{node fc/MatMul}}, ...".
  std::string Report(int blocks = 10) const;
  bool Contains(const void* address) const;
  // Whether the lists agree with each other; for tests.
  Status Check() const;

 private:
  struct Chunk {
    char* data = nullptr;
    std::size_t size = 0;
    std::size_t wanted = 0;  // bytes asked for; 0 while free
    Chunk* before = nullptr;
    Chunk* after = nullptr;
    int region = 0;
    bool used = false;
    std::string node;
    uint64_t serial = 0;  // of the allocation
  };
  struct BySize {
    bool operator()(const Chunk* a, const Chunk* b) const {
      return a->size != b->size ? a->size < b->size : a->data < b->data;
    }
  };
  struct Region {
    char* data = nullptr;  // null once it was given back
    std::size_t size = 0;
    Chunk* first = nullptr;
  };
  class Block;
  struct Recent;
  static Recent& ThreadsRecent();

  RegionAllocator(RegionOptions options, std::shared_ptr<RawMemory> raw);
  Chunk* TakeChunk(std::size_t size, std::size_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Grow(std::size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AddRegion(std::size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveRegion(Region* region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Free(Chunk* chunk);
  Chunk* NewChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `chunk` swallows the one after it.
  void Join(Chunk* chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RegionOptions options_;
  const std::shared_ptr<RawMemory> raw_;
  const uint64_t id_;                                        // of this allocator alone
  std::function<void()> on_full_;                            // constant once set
  std::function<void(void*, std::size_t, bool)> on_region_;  // constant once set

  mutable Mutex mu_;
  std::set<Chunk*, BySize> free_ ABSL_GUARDED_BY(mu_);
  std::vector<Region> regions_ ABSL_GUARDED_BY(mu_);
  std::vector<Chunk*> spare_ ABSL_GUARDED_BY(mu_);  // chunks that stand for nothing
  int64_t in_regions_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_region_ ABSL_GUARDED_BY(mu_);
  bool grows_ ABSL_GUARDED_BY(mu_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mu_) = 1;
  AllocatorStats stats_ ABSL_GUARDED_BY(mu_);
};

// "1.5 GiB".
std::string HumanBytes(int64_t bytes);

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_REGION_ALLOCATOR_H_
