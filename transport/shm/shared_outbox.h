// SPDX-License-Identifier: Apache-2.0
// What one peer has been told of this task's shared memory, and which blocks it reads.
#ifndef TRANSPORT_SHM_SHARED_OUTBOX_H_
#define TRANSPORT_SHM_SHARED_OUTBOX_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "transport/shm/shared_arena.h"

namespace millrace {

// Not synchronised.
class SharedOutbox {
 public:
  // The peer will get the block. True if it has to be told of its slab first.
  bool Lend(RefPtr<SharedLease> lease);
  // Slabs that the peer knows and that are of no use any more: it has to be told.
  std::vector<uint32_t> TakeDropped();
  // The peer reads a block no more. InvalidArgument if it was not lent to it.
  Status GiveBack(const SharedPlace& place);
  // The connection is gone, but the peer may be alive and read what it was lent.
  void AbandonAll();

 private:
  using Key = std::pair<uint32_t, uint32_t>;
  absl::flat_hash_map<uint32_t, RefPtr<SharedSlab>> told_;
  absl::flat_hash_map<Key, RefPtr<SharedLease>> lent_;
};

}  // namespace millrace

#endif  // TRANSPORT_SHM_SHARED_OUTBOX_H_
