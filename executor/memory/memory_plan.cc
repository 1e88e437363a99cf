// SPDX-License-Identifier: Apache-2.0
#include "executor/memory/memory_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "tensor/allocator.h"

namespace millrace {
namespace {

int64_t Aligned(int64_t bytes) {
  constexpr auto kUnit = static_cast<int64_t>(kTensorAlignment);
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

// The start of the smallest gap with `bytes` between those of `placed` (by offset) that `buffer`
// conflicts with; their end if there is none.
int64_t BestFit(int buffer, int64_t bytes, const std::vector<int>& placed,
                std::span<const int64_t> sizes, const std::vector<int64_t>& offsets,
                const Conflicts& conflicts) {
  int64_t end = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
  for (const int other : placed) {
    if (!conflicts.Between(buffer, other)) continue;
    const int64_t gap = offsets[other] - end;
    if (gap >= bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, offsets[other] + Aligned(sizes[other]));
  }
  return best >= 0 ? best : end;
}

Offsets PlaceInOrder(const std::vector<int>& order, std::span<const int64_t> sizes,
                     const Conflicts& conflicts) {
  Offsets plan;
  plan.offsets.resize(sizes.size());
  std::vector<int> placed;  // by offset
  for (const int buffer : order) {
    const int64_t bytes = Aligned(sizes[buffer]);
    const int64_t offset = BestFit(buffer, bytes, placed, sizes, plan.offsets, conflicts);
    plan.offsets[buffer] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t o, int b) { return o < plan.offsets[b]; });
    placed.insert(at, buffer);
  }
  return plan;
}

}  // namespace

int64_t LiveRangeBound(std::span<const LiveRange> ranges) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // when, how much; what ends comes first
  for (const LiveRange& range : ranges) {
    changes.emplace_back(range.begin, range.bytes);
    changes.emplace_back(range.end, -range.bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto& [when, change] : changes) most = std::max(most, now += change);
  return most;
}

Offsets PlanOffsets(std::span<const int64_t> bytes, const Conflicts& conflicts) {
  const int n = static_cast<int>(bytes.size());
  std::vector<int> order(n), degree(n);
  std::iota(order.begin(), order.end(), 0);
  for (int i = 0; i < n; ++i) {
    for (const uint64_t word : conflicts.row(i)) degree[i] += std::popcount(word);
  }
  Offsets best = PlaceInOrder(order, bytes, conflicts);
  const auto by_size = [&](int a, int b) { return bytes[a] > bytes[b]; };
  const auto by_degree = [&](int a, int b) { return degree[a] > degree[b]; };
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt == 0) {
      std::stable_sort(order.begin(), order.end(), by_degree);
    }
    std::stable_sort(order.begin(), order.end(), by_size);
    if (attempt == 1) std::stable_sort(order.begin(), order.end(), by_degree);
    Offsets plan = PlaceInOrder(order, bytes, conflicts);
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  return best;
}

}  // namespace millrace
