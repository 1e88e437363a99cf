// SPDX-License-Identifier: Apache-2.0
#include "collective/ring.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/errors.h"

namespace millrace {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{4} << 20;
constexpr int64_t kAlignment = 64;
constexpr int kUsualPerDevice = 2;

int TreeParent(int position, int source) {
  if (source == 0) return (position - 1) / 2;
  const int parent = position / 2 - 1;
  return parent < 0 ? source : parent;
}

void AddTree(const std::vector<int>& order, int subdivision, int source, int position,
             BroadcastTree* plan) {
  if (position != source) {
    const int parent = TreeParent(position, source);
    plan->receives = true;
    plan->from = {subdivision, parent, position, order[parent]};
  }
  for (int child = 0; child < static_cast<int>(order.size()); ++child) {
    if (child == source || TreeParent(child, source) != position) continue;
    plan->to.push_back({subdivision, position, child, order[child]});
  }
}

}  // namespace

StatusOr<std::vector<Ring>> MakeRings(const CollectiveGroup& group, int rank,
                                      std::span<const int32_t> offsets) {
  std::vector<Ring> rings;
  for (const int32_t signed_offset : offsets) {
    if (signed_offset == std::numeric_limits<int32_t>::min()) {
      return errors::InvalidArgument("subdiv_offsets must not contain ", signed_offset);
    }
    const int offset = std::abs(signed_offset);
    Ring& ring = rings.emplace_back();
    int first = 0;  // rank of the task's first device
    for (const int devices : group.devices_per_task) {
      for (int i = 0; i < devices; ++i) {
        const int turned = static_cast<int>((int64_t{i} + offset) % devices);
        const int member = first + (signed_offset < 0 ? devices - 1 - turned : turned);
        if (member == rank) ring.position = ring.size();
        ring.order.push_back(member);
      }
      first += devices;
    }
  }
  return rings;
}

std::vector<int32_t> ChooseOffsets(const CollectiveGroup& group, int64_t num_bytes,
                                   int max_per_device) {
  if (max_per_device < 0) return {0};
  const int per_task =
      std::max(1, group.size() / std::max<int>(1, static_cast<int>(group.devices_per_task.size())));
  const int64_t most = int64_t{max_per_device == 0 ? kUsualPerDevice : max_per_device} * per_task;
  int64_t count = 1;
  while (num_bytes / (group.size() * count) > kMaxChunkBytes && count < most) ++count;
  const int64_t stride = std::max<int64_t>(1, per_task / count);
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i < count; ++i) {
    offsets.push_back(static_cast<int32_t>(i % 2 == 0 ? stride * i : -stride * i));
  }
  return offsets;
}

int64_t ChunkElements(int64_t element_bytes, int64_t num_elements, int64_t num_chunks) {
  const int64_t share = (num_elements + num_chunks - 1) / num_chunks;
  const int64_t bytes = share * element_bytes;
  return share + (kAlignment - bytes % kAlignment) / element_bytes;
}

BroadcastTree PlanBroadcast(const CollectiveGroup& group, int rank, int source_rank) {
  BroadcastTree plan;
  const bool several = group.devices_per_task.size() > 1;
  std::vector<int> heads;  // of the tasks
  int source_task = 0, my_task = 0, first = 0;
  for (std::size_t task = 0; task < group.devices_per_task.size(); ++task) {
    const int end = first + group.devices_per_task[task];
    const bool has_source = source_rank >= first && source_rank < end;
    heads.push_back(has_source ? source_rank : first);
    if (has_source) source_task = static_cast<int>(task);
    if (rank >= first && rank < end) my_task = static_cast<int>(task);
    first = end;
  }
  if (several && heads[my_task] == rank) AddTree(heads, 0, source_task, my_task, &plan);
  first = 0;
  for (int task = 0; task < my_task; ++task) first += group.devices_per_task[task];
  std::vector<int> devices;
  for (int i = 0; i < group.devices_per_task[my_task]; ++i) devices.push_back(first + i);
  AddTree(devices, my_task + (several ? 1 : 0), heads[my_task] - first, rank - first, &plan);
  return plan;
}

}  // namespace millrace
