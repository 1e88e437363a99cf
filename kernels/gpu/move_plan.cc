// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/move_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace millrace::gpu {
namespace {

constexpr int kWidest = 16;
// Shorter rows or columns leave most of a tile empty.
constexpr int64_t kLeastSide = 8;

void JoinAxes(std::vector<MoveAxis>* axes) {
  std::erase_if(*axes, [](const MoveAxis& axis) { return axis.size == 1; });
  std::stable_sort(axes->begin(), axes->end(), [](const MoveAxis& a, const MoveAxis& b) {
    return std::llabs(a.to_stride) > std::llabs(b.to_stride);
  });
  std::vector<MoveAxis> joined;
  for (const MoveAxis& axis : *axes) {
    if (!joined.empty() && joined.back().from_stride == axis.from_stride * axis.size &&
        joined.back().to_stride == axis.to_stride * axis.size) {
      joined.back() = {joined.back().size * axis.size, axis.from_stride, axis.to_stride};
    } else {
      joined.push_back(axis);
    }
  }
  *axes = std::move(joined);
}

bool Divides(int64_t n, const std::vector<MoveAxis>& outer) {
  return std::all_of(outer.begin(), outer.end(), [n](const MoveAxis& axis) {
    return axis.from_stride % n == 0 && axis.to_stride % n == 0;
  });
}

bool IsAligned(const void* p, int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(bytes) == 0;
}

// Makes groups of neighbours elements.
void Widen(const void* from, const void* to, MovePlan* plan) {
  if (plan->axes.empty()) return;
  const MoveAxis inner = plan->axes.back();
  if (inner.from_stride != 1 || inner.to_stride != 1) return;
  std::vector<MoveAxis> outer(plan->axes.begin(), plan->axes.end() - 1);
  int64_t group = kWidest / plan->size;
  while (group > 1 &&
         (inner.size % group != 0 || !Divides(group, outer) ||
          !IsAligned(from, group * plan->size) || !IsAligned(to, group * plan->size))) {
    group /= 2;
  }
  if (group <= 1) return;
  for (MoveAxis& axis : outer) {
    axis.from_stride /= group;
    axis.to_stride /= group;
  }
  outer.push_back({inner.size / group, 1, 1});
  plan->size *= static_cast<int>(group);
  plan->axes = std::move(outer);
  JoinAxes(&plan->axes);
}

}  // namespace

MovePlan PlanMove(int size, const void* from, const void* to, std::vector<MoveAxis> axes) {
  MovePlan plan;
  plan.size = size;
  plan.axes = std::move(axes);
  JoinAxes(&plan.axes);
  Widen(from, to, &plan);
  int row = -1, column = -1;
  for (int i = 0; i < static_cast<int>(plan.axes.size()); ++i) {
    if (plan.axes[i].size < kLeastSide) continue;
    if (plan.axes[i].to_stride == 1) row = i;
    if (plan.axes[i].from_stride == 1) column = i;
  }
  if (row >= 0 && column >= 0 && row != column) {
    plan.row = row;
    plan.column = column;
  }
  return plan;
}

}  // namespace millrace::gpu
