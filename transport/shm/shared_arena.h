// SPDX-License-Identifier: Apache-2.0
// Memory that a task fills and lends to tasks on its host: the sending half of transport/shm.
//
// Memory files (memfd) and not files in /dev/shm: they have no name, so nothing is left behind
// whoever crashes, a container's small /dev/shm does not bound them, and a descriptor that comes
// over a link needs no right of the receiver to look into the sender (as process_vm_readv does,
// which containers with namespaces of their own for processes do not have).
#ifndef TRANSPORT_SHM_SHARED_ARENA_H_
#define TRANSPORT_SHM_SHARED_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "millrace/ref_ptr.h"

namespace millrace {

// A block as both ends name it; on the wire 8 bytes.
struct SharedPlace {
  uint32_t slab = 0;
  uint32_t block = 0;
};

// One memory file with blocks of one size, mapped here for writing. Its size is sealed: nobody can
// make a mapping of it fault by making it smaller.
class SharedSlab final : public RefCounted {
 public:
  // Null if the system gives no memory. All of it is allocated here, so that no write can fault
  // later. `used` is what its size is taken off when it goes.
  static RefPtr<SharedSlab> New(uint32_t id, std::size_t block_size, uint32_t num_blocks,
                                std::shared_ptr<std::atomic<int64_t>> used);

  uint32_t id() const { return id_; }
  int fd() const { return fd_; }
  std::size_t size() const { return size_; }
  std::size_t block_size() const { return block_size_; }
  uint32_t num_blocks() const { return static_cast<uint32_t>(size_ / block_size_); }
  uint8_t* block(uint32_t index) const { return data_ + index * block_size_; }

  // No block of it will be lent any more: who has told others of it shall tell them so.
  void Drop() { dropped_.store(true, std::memory_order_release); }
  bool dropped() const { return dropped_.load(std::memory_order_acquire); }

 private:
  SharedSlab(uint32_t id, std::size_t block_size, std::size_t size, int fd, uint8_t* data,
             std::shared_ptr<std::atomic<int64_t>> used);
  ~SharedSlab() override;

  const uint32_t id_;
  const std::size_t block_size_, size_;
  const int fd_;
  uint8_t* const data_;
  const std::shared_ptr<std::atomic<int64_t>> used_;
  std::atomic<bool> dropped_{false};
};

class SharedArena;

// A block that is in use. The arena has it again when the last reference goes.
class SharedLease final : public RefCounted {
 public:
  SharedLease(RefPtr<SharedArena> arena, RefPtr<SharedSlab> slab, uint32_t block);

  const RefPtr<SharedSlab>& slab() const { return slab_; }
  const SharedPlace& place() const { return place_; }
  void* data() const { return slab_->block(place_.block); }
  // Somebody may read the block as long as it lives: nothing else may ever be written there.
  void Abandon() { abandoned_.store(true, std::memory_order_release); }

 private:
  ~SharedLease() override;

  const RefPtr<SharedArena> arena_;
  const RefPtr<SharedSlab> slab_;
  const SharedPlace place_;
  std::atomic<bool> abandoned_{false};
};

// Thread-safe.
class SharedArena final : public RefCounted {
 public:
  // Below it a copy through a socket is as fast.
  static constexpr std::size_t kLeast = 64 * 1024;

  // `budget`: bytes that all slabs together may have.
  explicit SharedArena(int64_t budget) : budget_(budget) {}

  // A block of at least `size` bytes (kLeast or more), aligned as tensors are; null if the budget
  // or the system's memory is used up. Slabs of other sizes that nobody uses make room.
  RefPtr<SharedLease> Take(std::size_t size);
  // Bytes of slabs that are alive somewhere in this task.
  int64_t used() const { return used_->load(std::memory_order_relaxed); }

  // From leases.
  void GiveBack(const SharedPlace& place);
  void Retire(uint32_t slab);

 private:
  struct Entry {
    RefPtr<SharedSlab> slab;
    uint32_t num_free = 0;
  };
  ~SharedArena() override = default;
  RefPtr<SharedLease> TakeFree(std::size_t block_size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeRoom(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(uint32_t slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t budget_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
  Mutex mu_;
  uint32_t next_slab_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<uint32_t, Entry> slabs_ ABSL_GUARDED_BY(mu_);
  // By the size of the blocks; the last one is the warmest.
  std::map<std::size_t, std::vector<SharedPlace>> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // TRANSPORT_SHM_SHARED_ARENA_H_
