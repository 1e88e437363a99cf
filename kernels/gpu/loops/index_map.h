// SPDX-License-Identifier: Apache-2.0
// From the number of an element to places in tensors with strides.
#ifndef KERNELS_GPU_LOOPS_INDEX_MAP_H_
#define KERNELS_GPU_LOOPS_INDEX_MAP_H_

#include <cstdint>

#include "kernels/gpu/loops/numbers.h"

namespace millrace::gpu {

inline constexpr int kMaxAxes = 8;

// Division of n < 2^31 by a constant 1 <= d < 2^31 through a product (Granlund and Montgomery,
// 1994).
class Divider {
 public:
  Divider() = default;
  explicit Divider(uint32_t d) : divisor_(d) {
    while (shift_ < 31 && (uint32_t{1} << shift_) < d) ++shift_;
    const uint64_t one = 1;
    magic_ = static_cast<uint32_t>(((one << 32) * ((one << shift_) - d)) / d + 1);
  }
  MR_HD uint32_t Quotient(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    const uint32_t high = __umulhi(n, magic_);
#else
    const auto high = static_cast<uint32_t>((static_cast<uint64_t>(n) * magic_) >> 32);
#endif
    return (high + n) >> shift_;
  }
  MR_HD uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_ = 1, magic_ = 1, shift_ = 0;
};

// Row-major indices over up to eight axes, each with a stride for each of kOperands tensors.
template <int kOperands>
class IndexMap {
 public:
  struct Place {
    int64_t offset[kOperands];
  };

  // Axes are added from the outermost to the innermost; `strides` are in elements, 0 repeats.
  // Those of size 1 are left out, and neighbours that lie behind each other in all operands are
  // joined. False once there are too many.
  bool Add(int64_t size, const int64_t (&strides)[kOperands]) {
    if (size == 1) return true;
    count_ *= size;
    if (rank_ > 0) {
      bool joins = true;
      for (int k = 0; k < kOperands; ++k) {
        joins = joins && stride_[k][rank_ - 1] == strides[k] * size;
      }
      if (joins) {
        size_[rank_ - 1] *= size;
        for (int k = 0; k < kOperands; ++k) stride_[k][rank_ - 1] = strides[k];
        return true;
      }
    }
    if (rank_ == kMaxAxes) return false;
    size_[rank_] = size;
    for (int k = 0; k < kOperands; ++k) stride_[k][rank_] = strides[k];
    ++rank_;
    return true;
  }
  // To be called once all axes were added.
  void Finish() {
    small_ = count_ < (int64_t{1} << 31);
    if (!small_) return;
    for (int i = 0; i < rank_; ++i) {
      divider_[i] = Divider(static_cast<uint32_t>(size_[i] > 0 ? size_[i] : 1));
    }
  }

  MR_HD Place At(int64_t index) const {
    Place place;
    for (int k = 0; k < kOperands; ++k) place.offset[k] = 0;
    for (int axis = rank_ - 1; axis > 0; --axis) {
      int64_t rest, above;
      if (small_) {
        const uint32_t flat = static_cast<uint32_t>(index);
        const uint32_t quotient = divider_[axis].Quotient(flat);
        rest = flat - quotient * divider_[axis].divisor();
        above = quotient;
      } else {
        above = index / size_[axis];
        rest = index - above * size_[axis];
      }
      for (int k = 0; k < kOperands; ++k) place.offset[k] += rest * stride_[k][axis];
      index = above;
    }
    if (rank_ > 0) {
      for (int k = 0; k < kOperands; ++k) place.offset[k] += index * stride_[k][0];
    }
    return place;
  }

  int rank() const { return rank_; }
  int64_t count() const { return count_; }
  int64_t size(int axis) const { return size_[axis]; }
  int64_t stride(int operand, int axis) const { return stride_[operand][axis]; }
  // Of the innermost axis; 1 where there is none.
  int64_t inner_stride(int operand) const { return rank_ == 0 ? 1 : stride_[operand][rank_ - 1]; }

 private:
  int rank_ = 0;
  bool small_ = true;
  int64_t count_ = 1;
  int64_t size_[kMaxAxes] = {};
  Divider divider_[kMaxAxes];
  int64_t stride_[kOperands][kMaxAxes] = {};
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_INDEX_MAP_H_
