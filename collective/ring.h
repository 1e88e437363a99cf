// SPDX-License-Identifier: Apache-2.0
// The orders in which pieces travel: rings for reductions and gathers, a tree for broadcasts.
// They are TensorFlow's, so that its servers can be members.
#ifndef COLLECTIVE_RING_H_
#define COLLECTIVE_RING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "collective/collective_types.h"

namespace millrace {

// Each member receives from the one before it and sends to the one after it.
struct Ring {
  std::vector<int> order;  // ranks
  int position = 0;        // of this member

  int size() const { return static_cast<int>(order.size()); }
  int before() const { return (position + size() - 1) % size(); }  // a position
};

// The rings of the member with this rank, one for each offset: tasks in the order of the ranks,
// the devices of each task turned by the offset's size, backwards if it is negative.
// InvalidArgument for an offset of INT32_MIN.
StatusOr<std::vector<Ring>> MakeRings(const CollectiveGroup& group, int rank,
                                      std::span<const int32_t> offsets);

// Offsets for a tensor of this size: as many rings as bring a chunk below 4 MiB, as far as there
// are devices in a task. max_per_device: -1 for one ring, 0 for the usual number.
std::vector<int32_t> ChooseOffsets(const CollectiveGroup& group, int64_t num_bytes,
                                   int max_per_device);

// Elements of each chunk but the last ones, which may be short or empty: a multiple of 64 bytes,
// and more than their even share if that is one already.
int64_t ChunkElements(int64_t element_bytes, int64_t num_elements, int64_t num_chunks);

// What one member does in a broadcast. Ranks are the group's; a subdivision and the positions in
// it name the transfer.
struct BroadcastHop {
  int subdivision = 0;
  int src_position = 0, dst_position = 0;
  int rank = 0;  // of the other member
};
struct BroadcastTree {
  bool receives = false;
  BroadcastHop from;
  std::vector<BroadcastHop> to;
};
// A tree over one device of each task, then one over the devices of each task.
BroadcastTree PlanBroadcast(const CollectiveGroup& group, int rank, int source_rank);

}  // namespace millrace

#endif  // COLLECTIVE_RING_H_
