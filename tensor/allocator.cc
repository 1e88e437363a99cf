// SPDX-License-Identifier: Apache-2.0
// The pooled host allocator, and the buffers that hold objects or borrowed memory.
#include "tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/mutex.h"

#include "absl/base/config.h"

// Idle blocks are out of bounds for the address sanitizer, as freed memory would be.
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace millrace {
namespace {

// The header of a block; the payload begins one alignment unit after it.
constexpr std::size_t kHeaderSize = kTensorAlignment;
constexpr std::size_t kMinPayload = 64;
// Classes above 64 bytes: 80, 96, 112, 128, 160, ... four to an octave up to 2^47.
constexpr int kMinShift = 6;
constexpr int kMaxShift = 47;
constexpr int kNumClasses = (kMaxShift - kMinShift) * 4 + 1;
// Blocks from this size on are mapped by themselves, and given back beyond the cap.
constexpr std::size_t kLargePayload = std::size_t{1} << 20;
// Blocks from this size on are made of huge pages where the system has them.
constexpr std::size_t kHugePayload = std::size_t{4} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20, kSmallPageBytes = 4096;
constexpr int64_t kIdleLargeBytesCap = int64_t{512} << 20;

constexpr std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The smallest class with at least `bytes`; kNumClasses or more if there is none.
int ClassOf(std::size_t bytes) {
  if (bytes <= kMinPayload) return 0;
  const int shift = std::bit_width(bytes - 1) - 1;  // 2^shift < bytes <= 2^(shift+1)
  if (shift >= kMaxShift) return kNumClasses;
  const std::size_t quarter = std::size_t{1} << (shift - 2);
  const std::size_t above = bytes - (std::size_t{1} << shift);
  return (shift - kMinShift) * 4 + static_cast<int>((above + quarter - 1) / quarter);
}

std::size_t ClassSize(int size_class) {
  const int shift = kMinShift + size_class / 4;
  return (std::size_t{1} << shift) + (size_class % 4) * (std::size_t{1} << (shift - 2));
}

void* Map(std::size_t size) {
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Memory whose whole huge pages the system may give at once: a page fault for each 2 MiB instead of
// 512. What is left at the end stays in small pages, so that no more becomes resident than is used.
void* MapHugePages(std::size_t size) {
  size = RoundUp(size, kSmallPageBytes);
  void* const memory = Map(size + kHugePageBytes);
  if (memory == nullptr) return nullptr;
  auto* const from = static_cast<std::byte*>(memory);
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const std::size_t before = RoundUp(address, kHugePageBytes) - address;
  if (before > 0) munmap(from, before);
  munmap(from + before + size, kHugePageBytes - before);
  madvise(from + before, size, MADV_HUGEPAGE);  // without it, it is slower and nothing else
  return from + before;
}

class PooledHostAllocator;

class PooledBuffer final : public Buffer {
 public:
  PooledBuffer(PooledHostAllocator* owner, int size_class, void* payload, std::size_t size)
      : Buffer(payload, size, MemorySpace::kHost), owner_(owner), size_class_(size_class) {}

  int size_class() const { return size_class_; }
  PooledBuffer* next_free = nullptr;
  using Buffer::ResetRefCount;

 private:
  void Destroy() override;

  PooledHostAllocator* const owner_;
  const int size_class_;
};
static_assert(sizeof(PooledBuffer) <= kHeaderSize);

class PooledHostAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "host"; }

  RefPtr<Buffer> Allocate(std::size_t bytes) override {
    const int size_class = ClassOf(bytes);
    if (size_class >= kNumClasses) return nullptr;
    const std::size_t size = ClassSize(size_class);
    const bool is_large = size >= kLargePayload;
    PooledBuffer* buffer = is_large ? TakeIdleLarge(size_class) : TakeIdle(size_class);
    if (buffer != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(buffer->data(), size);
      buffer->ResetRefCount();
    } else {
      buffer = NewBlock(size_class, size);
      if (buffer == nullptr) return nullptr;
    }
    CountAllocation(static_cast<int64_t>(size));
    return RefPtr<Buffer>(buffer);
  }

  AllocatorStats stats() const override {
    AllocatorStats stats;
    stats.bytes_in_use = bytes_in_use_.load(std::memory_order_relaxed);
    stats.peak_bytes_in_use = peak_bytes_in_use_.load(std::memory_order_relaxed);
    stats.num_allocations = num_allocations_.load(std::memory_order_relaxed);
    stats.num_system_allocations = num_system_allocations_.load(std::memory_order_relaxed);
    return stats;
  }

  void FreeIdleLargeBlocks() {
    for (int c = ClassOf(kLargePayload); c < kNumClasses; ++c) {
      while (PooledBuffer* buffer = TakeIdleLarge(c)) FreeBlock(buffer);
    }
  }

  // Those that nobody has taken since the last call: of each class as many as were always idle.
  void FreeUnusedLargeBlocks() {
    for (int c = ClassOf(kLargePayload); c < kNumClasses; ++c) {
      FreeList& list = lists_[c];
      int64_t unused;
      {
        MutexLock lock(&list.mu);
        unused = list.least;
      }
      for (PooledBuffer* buffer; unused-- > 0 && (buffer = TakeIdleLarge(c)) != nullptr;) {
        FreeBlock(buffer);
      }
      MutexLock lock(&list.mu);
      list.least = list.count;
    }
  }

  void GiveBack(PooledBuffer* buffer) {
    const std::size_t size = buffer->size();
    bytes_in_use_.fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
    if (size >= kLargePayload) {
      const int64_t idle = idle_large_bytes_.fetch_add(size, std::memory_order_relaxed);
      if (idle + static_cast<int64_t>(size) > kIdleLargeBytesCap) {
        idle_large_bytes_.fetch_sub(size, std::memory_order_relaxed);
        FreeBlock(buffer);
        return;
      }
    }
    ASAN_POISON_MEMORY_REGION(buffer->data(), size);
    FreeList& list = lists_[buffer->size_class()];
    MutexLock lock(&list.mu);
    buffer->next_free = list.head;
    list.head = buffer;
    if (size >= kLargePayload) ++list.count;
  }

 private:
  struct alignas(64) FreeList {
    Mutex mu;
    PooledBuffer* head ABSL_GUARDED_BY(mu) = nullptr;
    // Of a class of large blocks: how many lie here, and the least that did since the last
    // FreeUnusedLargeBlocks.
    int64_t count ABSL_GUARDED_BY(mu) = 0, least ABSL_GUARDED_BY(mu) = 0;
  };

  PooledBuffer* TakeIdle(int size_class) {
    FreeList& list = lists_[size_class];
    MutexLock lock(&list.mu);
    PooledBuffer* buffer = list.head;
    if (buffer != nullptr) list.head = buffer->next_free;
    return buffer;
  }

  PooledBuffer* TakeIdleLarge(int size_class) {
    FreeList& list = lists_[size_class];
    MutexLock lock(&list.mu);
    PooledBuffer* buffer = list.head;
    if (buffer == nullptr) return nullptr;
    list.head = buffer->next_free;
    list.least = std::min(list.least, --list.count);
    idle_large_bytes_.fetch_sub(buffer->size(), std::memory_order_relaxed);
    return buffer;
  }

  PooledBuffer* NewBlock(int size_class, std::size_t size) {
    void* block = AllocateBlock(size);
    if (block == nullptr) {
      FreeIdleLargeBlocks();
      block = AllocateBlock(size);
      if (block == nullptr) return nullptr;
    }
    num_system_allocations_.fetch_add(1, std::memory_order_relaxed);
    return new (block)
        PooledBuffer(this, size_class, static_cast<char*>(block) + kHeaderSize, size);
  }

  static void* AllocateBlock(std::size_t size) {
    const std::size_t whole = kHeaderSize + size;
    if (size >= kHugePayload) return MapHugePages(whole);
    if (size >= kLargePayload) return Map(whole);
    void* block = nullptr;
    return posix_memalign(&block, kTensorAlignment, whole) == 0 ? block : nullptr;
  }

  static void FreeBlock(PooledBuffer* buffer) {
    const std::size_t size = buffer->size();
    ASAN_UNPOISON_MEMORY_REGION(buffer->data(), size);
    std::destroy_at(buffer);
    if (size >= kLargePayload) {
      munmap(buffer, kHeaderSize + size);
    } else {
      std::free(buffer);
    }
  }

  void CountAllocation(int64_t size) {
    num_allocations_.fetch_add(1, std::memory_order_relaxed);
    const int64_t in_use = bytes_in_use_.fetch_add(size, std::memory_order_relaxed) + size;
    int64_t peak = peak_bytes_in_use_.load(std::memory_order_relaxed);
    while (in_use > peak &&
           !peak_bytes_in_use_.compare_exchange_weak(peak, in_use, std::memory_order_relaxed)) {
    }
  }

  std::array<FreeList, kNumClasses> lists_;
  std::atomic<int64_t> bytes_in_use_{0};
  std::atomic<int64_t> peak_bytes_in_use_{0};
  std::atomic<int64_t> num_allocations_{0};
  std::atomic<int64_t> num_system_allocations_{0};
  std::atomic<int64_t> idle_large_bytes_{0};
};

void PooledBuffer::Destroy() { owner_->GiveBack(this); }

// Objects inside a block of another allocator, behind this header in the same block.
template <typename T>
class ObjectBuffer final : public Buffer {
 public:
  static RefPtr<Buffer> Make(Allocator* allocator, std::size_t count) {
    if (allocator->space() == MemorySpace::kDevice) allocator = HostAllocator();
    if (count > (SIZE_MAX - kRoom) / sizeof(T)) return nullptr;
    RefPtr<Buffer> block = allocator->Allocate(kRoom + count * sizeof(T));
    if (!block) return nullptr;
    void* place = block->data();
    return RefPtr<Buffer>(new (place) ObjectBuffer(std::move(block), count));
  }

 private:
  static constexpr std::size_t kRoom = 64;

  ObjectBuffer(RefPtr<Buffer> block, std::size_t count)
      : Buffer(static_cast<char*>(block->data()) + kRoom, count * sizeof(T), block->space()),
        block_(std::move(block)) {
    static_assert(sizeof(ObjectBuffer) <= kRoom);
    std::uninitialized_value_construct_n(static_cast<T*>(data_), count);
  }

  void Destroy() override {
    std::destroy_n(static_cast<T*>(data_), size_ / sizeof(T));
    const RefPtr<Buffer> block = std::move(block_);  // outlives this object
    std::destroy_at(this);
  }

  RefPtr<Buffer> block_;
};

class WrappedBuffer final : public Buffer {
 public:
  WrappedBuffer(void* data, std::size_t size, void (*release)(void*), void* arg, MemorySpace space)
      : Buffer(data, size, space), release_(release), arg_(arg) {}
  ~WrappedBuffer() override {
    if (release_ != nullptr) release_(arg_);
  }

 private:
  void (*const release_)(void*);
  void* const arg_;
};

}  // namespace

static PooledHostAllocator* ThePool() {
  static auto* const allocator = new PooledHostAllocator;
  return allocator;
}

Allocator* HostAllocator() { return ThePool(); }

RefPtr<Buffer> AllocateStringBuffer(Allocator* allocator, std::size_t count) {
  return ObjectBuffer<std::string>::Make(allocator, count);
}

RefPtr<Buffer> AllocateHandleBuffer(Allocator* allocator, std::size_t count) {
  return ObjectBuffer<ResourceHandle>::Make(allocator, count);
}

// Used by tensor.cc alone, which declares it.
RefPtr<Buffer> AllocateVariantBuffer(Allocator* allocator, std::size_t count);
RefPtr<Buffer> AllocateVariantBuffer(Allocator* allocator, std::size_t count) {
  return ObjectBuffer<RefPtr<RefCounted>>::Make(allocator, count);
}

// Used by executor/memory/step_arena.cc alone, which declares it: gives the large blocks that
// nobody has back to the operating system.
void FreeIdleHostMemory();
void FreeIdleHostMemory() { ThePool()->FreeIdleLargeBlocks(); }

// Used by eager/eager_server.cc alone, which declares it: only those that nobody has had since the
// last call.
void FreeUnusedHostMemory();
void FreeUnusedHostMemory() { ThePool()->FreeUnusedLargeBlocks(); }

RefPtr<Buffer> WrapBuffer(void* data, std::size_t size, void (*release)(void* arg), void* arg,
                          MemorySpace space) {
  return MakeRef<WrappedBuffer>(data, size, release, arg, space);
}

}  // namespace millrace
