// SPDX-License-Identifier: Apache-2.0
// Where the windows of pools lie.
#ifndef KERNELS_GPU_LOOPS_POOL_PLACES_H_
#define KERNELS_GPU_LOOPS_POOL_PLACES_H_

#include "kernels/gpu/loops/elementwise_loops.h"
#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// Positions in images [batch, height, width, groups of channels], counted from the innermost on.
class PoolGrid {
 public:
  struct Position {
    int64_t batch, y, x, group;
  };

  PoolGrid(int64_t batch, int64_t height, int64_t width, int64_t groups)
      : count_(batch * height * width * groups), height_(height), width_(width), groups_(groups) {
    small_ = count_ < (int64_t{1} << 31);
    if (!small_ || count_ == 0) return;
    by_height_ = Divider(static_cast<uint32_t>(height));
    by_width_ = Divider(static_cast<uint32_t>(width));
    by_groups_ = Divider(static_cast<uint32_t>(groups));
  }
  int64_t count() const { return count_; }

  MR_HD Position At(int64_t i) const {
    Position at;
    at.group = Take(&i, groups_, by_groups_);
    at.x = Take(&i, width_, by_width_);
    at.y = Take(&i, height_, by_height_);
    at.batch = i;
    return at;
  }

 private:
  // The rest of *i, which is divided.
  MR_HD int64_t Take(int64_t* i, int64_t size, const Divider& divider) const {
    const int64_t above =
        small_ ? static_cast<int64_t>(divider.Quotient(static_cast<uint32_t>(*i))) : *i / size;
    const int64_t rest = *i - above * size;
    *i = above;
    return rest;
  }

  int64_t count_, height_, width_, groups_;
  bool small_ = true;
  Divider by_height_, by_width_, by_groups_;
};

struct Span {
  int64_t begin, end;
  MR_HD int64_t size() const { return end - begin; }
};
// The inputs of output o that exist, without dilation.
MR_HD inline Span InputsOf(const WindowParams& w, int64_t o) {
  const int64_t first = o * w.stride - w.pad;
  return {Larger<int64_t>(0, first), Smaller<int64_t>(w.input, first + w.size)};
}
// The outputs that see input i, without dilation.
MR_HD inline Span OutputsOf(const WindowParams& w, int64_t i) {
  const int64_t at = i + w.pad;
  const int64_t begin = at < w.size ? 0 : (at - w.size) / w.stride + 1;
  return {begin, Smaller<int64_t>(w.output, at / w.stride + 1)};
}

// What a maximum begins with: the lowest finite number, as in kernels/nn/pool.cc.
template <typename T>
MR_HD ComputeType<T> LowestOf() {
  if constexpr (std::is_same_v<T, Half>) {
    return -65504.0f;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return -3.3895313892515355e38f;
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// Where the elements of a position begin, and the numbers of windows.
template <int kGroup>
struct PoolPlaces {
  PoolParams p;
  PoolGrid grid;
  MR_HD int64_t Image(const PoolGrid::Position& at, int64_t y, int64_t x) const {
    return at.batch * p.image.batch + y * p.image.y + x * p.image.x + at.group * kGroup;
  }
  MR_HD int64_t Pooled(const PoolGrid::Position& at, int64_t oy, int64_t ox) const {
    return at.batch * p.pooled.batch + oy * p.pooled.y + ox * p.pooled.x + at.group * kGroup;
  }
  // The tap by which output (oy, ox) sees input (y, x).
  MR_HD int32_t Tap(int64_t oy, int64_t ox, int64_t y, int64_t x) const {
    const int64_t ky = y - (oy * p.rows.stride - p.rows.pad);
    const int64_t kx = x - (ox * p.cols.stride - p.cols.pad);
    return static_cast<int32_t>(ky * p.cols.size + kx);
  }
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_POOL_PLACES_H_
