// SPDX-License-Identifier: Apache-2.0
// How elements get from one place to another: along which axes, in which groups, and whether
// through tiles.
#ifndef KERNELS_GPU_MOVE_PLAN_H_
#define KERNELS_GPU_MOVE_PLAN_H_

#include <cstdint>
#include <vector>

namespace millrace::gpu {

// to[sum i_k * to_stride_k] = from[sum i_k * from_stride_k] over a box. Strides are in elements, of
// any sign; those of `from` may be 0.
struct MoveAxis {
  int64_t size, from_stride, to_stride;

  friend bool operator==(const MoveAxis&, const MoveAxis&) = default;
};

struct MovePlan {
  // Bytes that move together: neighbours that stay neighbours are one element of up to 16 bytes, if
  // both addresses allow it. Strides are in these.
  int size = 0;
  // From the outermost to the innermost of what is written, joined where two are like one. Those of
  // one element are left out.
  std::vector<MoveAxis> axes;
  // Where neighbours of what is read and of what is written lie along different axes: the one along
  // which is written, and the one along which is read. Else -1.
  int row = -1, column = -1;

  bool is_swap() const { return row >= 0; }
};

// Elements are of `size` bytes: 1, 2, 4, 8 or 16. Places of different elements are different.
MovePlan PlanMove(int size, const void* from, const void* to, std::vector<MoveAxis> axes);

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_MOVE_PLAN_H_
