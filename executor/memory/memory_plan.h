// SPDX-License-Identifier: Apache-2.0
// Where buffers go in one block of memory, so that those that are there at the same time do not
// overlap and the block is small.
#ifndef EXECUTOR_MEMORY_MEMORY_PLAN_H_
#define EXECUTOR_MEMORY_MEMORY_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// When a buffer was there: from `begin` until before `end`, in any unit that grows.
struct LiveRange {
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;
};

// The most that is there at one time: no plan for these ranges can do with less.
int64_t LiveRangeBound(std::span<const LiveRange> ranges);

// Which of n buffers must not overlap. Symmetric.
class Conflicts {
 public:
  Conflicts() = default;
  explicit Conflicts(int n) : n_(n), words_((n + 63) / 64), bits_(std::size_t(n) * words_) {}

  int size() const { return n_; }
  void Add(int a, int b) {
    Set(a, b);
    Set(b, a);
  }
  bool Between(int a, int b) const { return (row(a)[b / 64] >> (b % 64) & 1) != 0; }
  // A bit for each buffer.
  std::span<const uint64_t> row(int a) const {
    return {bits_.data() + std::size_t(a) * words_, std::size_t(words_)};
  }

 private:
  void Set(int a, int b) { bits_[std::size_t(a) * words_ + b / 64] |= uint64_t{1} << (b % 64); }

  int n_ = 0, words_ = 0;
  std::vector<uint64_t> bits_;
};

struct Offsets {
  std::vector<int64_t> offsets;  // multiples of kTensorAlignment
  int64_t bytes = 0;             // of the block
};

// Buffers one after the other go where they fit best among those that they conflict with: into
// the smallest gap, else behind them. The order is by size, the largest first (Pisarchyk and Lee,
// "Efficient Memory Management for Deep Neural Net Inference", 2020); because that is not always
// best, by how many conflicts they have and by number as well, and the smallest block is taken.
// Time grows with the square of the number of buffers.
Offsets PlanOffsets(std::span<const int64_t> bytes, const Conflicts& conflicts);

}  // namespace millrace

#endif  // EXECUTOR_MEMORY_MEMORY_PLAN_H_
