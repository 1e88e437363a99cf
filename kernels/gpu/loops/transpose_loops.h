// SPDX-License-Identifier: Apache-2.0
// Rows that become columns, by tiles that the threads of a team share: elements are read, and then
// written, in the order in which they lie.
#ifndef KERNELS_GPU_LOOPS_TRANSPOSE_LOOPS_H_
#define KERNELS_GPU_LOOPS_TRANSPOSE_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

template <typename T>
struct TransposeTile {
  static constexpr int kSide = 32;
  // A column of a tile is in as many banks of memory as it has elements.
  static constexpr int kPitch = kSide + 1;

  const T* from;
  T* to;
  TransposeParams p;
  int64_t tiles_y, tiles_x;  // of one batch

  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t index, T* tile) const {
    const int64_t above = index / tiles_x, batch = above / tiles_y;
    const int64_t x0 = (index - above * tiles_x) * kSide, y0 = (above - batch * tiles_y) * kSide;
    const auto at = p.batches.At(batch);
    const T* source = from + at.offset[0] + y0 * p.from_row + x0;
    T* target = to + at.offset[1] + x0 * p.to_column + y0;
    const auto width = static_cast<int>(Smaller<int64_t>(kSide, p.columns - x0));
    const auto height = static_cast<int>(Smaller<int64_t>(kSide, p.rows - y0));
    const auto step = static_cast<int>(team.size());
    for (int i = static_cast<int>(team.rank()); i < kSide * kSide; i += step) {
      const int y = i / kSide, x = i % kSide;
      if (y < height && x < width) tile[y * kPitch + x] = source[y * p.from_row + x];
    }
    team.Sync();
    for (int i = static_cast<int>(team.rank()); i < kSide * kSide; i += step) {
      const int x = i / kSide, y = i % kSide;
      if (y < height && x < width) target[x * p.to_column + y] = tile[y * kPitch + x];
    }
    team.Sync();  // before the next tile is read over this one
  }
};

template <typename Launcher>
Outcome RunTranspose(Queue queue, const TransposeParams& p) {
  return DispatchSize(p.size, [&]<typename T>() {
    using Tile = TransposeTile<T>;
    const int64_t tiles_y = (p.rows + Tile::kSide - 1) / Tile::kSide;
    const int64_t tiles_x = (p.columns + Tile::kSide - 1) / Tile::kSide;
    return Launcher(queue).template ForTiles<T, Tile::kSide * Tile::kPitch>(
        p.batches.count() * tiles_y * tiles_x,
        Tile{static_cast<const T*>(p.from), static_cast<T*>(p.to), p, tiles_y, tiles_x});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_TRANSPOSE_LOOPS_H_
