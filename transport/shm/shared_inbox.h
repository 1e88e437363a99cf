// SPDX-License-Identifier: Apache-2.0
// Memory of tasks on this host, mapped and made tensors' buffers: the receiving half of
// transport/shm.
#ifndef TRANSPORT_SHM_SHARED_INBOX_H_
#define TRANSPORT_SHM_SHARED_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "transport/shm/shared_arena.h"

namespace millrace {

// Blocks that are not read any more, on their way back to their owner. Thread-safe: buffers end on
// any thread, with any lock held.
class SharedReturns final : public RefCounted {
 public:
  // `wake` is called when there is something to take, until Close; it must only post.
  explicit SharedReturns(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Add(const SharedPlace& place);
  std::vector<SharedPlace> Take();
  // The owner is gone: nobody is told any more.
  void Close();

 private:
  ~SharedReturns() override = default;
  Mutex mu_;
  std::function<void()> wake_ ABSL_GUARDED_BY(mu_);
  std::vector<SharedPlace> places_ ABSL_GUARDED_BY(mu_);
};

// The slabs of one peer. A slab stays mapped as long as a buffer needs it, also after the peer, or
// this object, is gone. Not synchronised.
class SharedInbox {
 public:
  static constexpr std::size_t kMostSlabs = 4096;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // of one slab

  // `copies`: bytes are copied out at once. Otherwise they stay where they are, once more fewer
  // copies; a peer that does not keep to the rules could then change a tensor after it was checked.
  SharedInbox(bool copies, RefPtr<SharedReturns> returns);
  ~SharedInbox();

  // Maps a slab of `size` bytes with blocks of `block_size`. Closes `fd`. InvalidArgument unless it
  // is a memory file of that size, all of it allocated, whose size is sealed: with any other file a
  // read could raise SIGBUS.
  Status Add(uint32_t id, int fd, uint64_t size, uint64_t block_size);
  // The peer uses it no more.
  Status Remove(uint32_t id);
  // The first `size` bytes of a block, which goes back when the last share of the buffer is gone.
  // InvalidArgument if there is no such block; ResourceExhausted if there is no memory for a copy.
  StatusOr<RefPtr<Buffer>> Open(const SharedPlace& place, uint64_t size);

 private:
  class Mapping;
  class MappedBuffer;
  const bool copies_;
  const RefPtr<SharedReturns> returns_;
  absl::flat_hash_map<uint32_t, RefPtr<Mapping>> slabs_;
};

}  // namespace millrace

#endif  // TRANSPORT_SHM_SHARED_INBOX_H_
