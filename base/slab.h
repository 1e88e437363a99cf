// SPDX-License-Identifier: Apache-2.0
// Memory for very many small objects, and for very large arrays.
#ifndef BASE_SLAB_H_
#define BASE_SLAB_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace millrace {

// Blocks of at least this many bytes come in huge pages where the kernel gives them on request:
// a page fault for each 4 KiB costs more than most passes do with what is on the page.
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Memory for any type, to be given back with the same size; throws std::bad_alloc. Thread-safe.
void* AllocateBlock(std::size_t bytes);
void FreeBlock(void* block, std::size_t bytes);

// A vector whose memory comes from AllocateBlock.
template <typename T>
struct BlockAllocator {
  using value_type = T;
  BlockAllocator() = default;
  template <typename U>
  BlockAllocator(const BlockAllocator<U>&) {}  // NOLINT: as std::allocator
  T* allocate(std::size_t count) { return static_cast<T*>(AllocateBlock(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) { FreeBlock(block, count * sizeof(T)); }
  friend bool operator==(const BlockAllocator&, const BlockAllocator&) { return true; }
};
template <typename T>
using LargeVector = std::vector<T, BlockAllocator<T>>;

#if defined(__SANITIZE_ADDRESS__)
// One by one, so that the sanitizer sees what becomes of each.
template <typename T>
class Slab {
 public:
  static constexpr bool kFreesWhatIsLeft = false;
  template <typename... Args>
  T* New(Args&&... args) {
    return new T(std::forward<Args>(args)...);
  }
  void Delete(T* object) { delete object; }
};
#else
// Objects in blocks that grow to the size of a huge page; they keep their addresses. Objects that
// are left are freed with the slab, but not destroyed. Not synchronised.
template <typename T>
class Slab {
  static_assert(alignof(T) <= alignof(std::max_align_t));

 public:
  static constexpr bool kFreesWhatIsLeft = true;
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    for (const Block& block : blocks_) FreeBlock(block.begin, block.capacity * sizeof(Place));
  }

  template <typename... Args>
  T* New(Args&&... args) {
    return new (NewPlace()) T(std::forward<Args>(args)...);
  }
  // Its place is used for the next object.
  void Delete(T* object) {
    object->~T();
    Place* const place = reinterpret_cast<Place*>(object);
    place->next = free_;
    free_ = place;
  }

 private:
  union Place {
    Place* next;
    alignas(T) std::byte object[sizeof(T)];
  };
  struct Block {
    Place* begin;
    std::size_t capacity;
  };
  static constexpr std::size_t kSmallest = 8;
  static constexpr std::size_t kLargest = std::max(kSmallest, kHugePageBytes / sizeof(Place));

  void* NewPlace() {
    if (free_ != nullptr) return std::exchange(free_, free_->next)->object;
    if (used_ == (blocks_.empty() ? 0 : blocks_.back().capacity)) {
      std::size_t capacity = blocks_.empty() ? kSmallest : blocks_.back().capacity * 2;
      // From half a huge page on it is a whole one.
      if (capacity > kLargest / 2) capacity = kLargest;
      blocks_.push_back({static_cast<Place*>(AllocateBlock(capacity * sizeof(Place))), capacity});
      used_ = 0;
    }
    return blocks_.back().begin[used_++].object;
  }

  std::vector<Block> blocks_;
  std::size_t used_ = 0;  // of the last block
  Place* free_ = nullptr;
};
#endif

}  // namespace millrace

#endif  // BASE_SLAB_H_
