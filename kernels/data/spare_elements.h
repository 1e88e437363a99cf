// SPDX-License-Identifier: Apache-2.0
// Vectors of elements that have been given, so that those to come take no new memory, and the
// queues that they lie in. Of this folder alone.
#ifndef KERNELS_DATA_SPARE_ELEMENTS_H_
#define KERNELS_DATA_SPARE_ELEMENTS_H_

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/data/dataset.h"

namespace millrace {

// Used by one thread at a time.
class SpareElements {
 public:
  // An empty one, with the memory of one that was put back if there is any.
  DatasetElement Take() {
    DatasetElement taken;
    if (spare_.empty()) return taken;
    taken.swap(spare_.back());
    spare_.pop_back();
    return taken;
  }
  void PutBack(DatasetElement element) {
    if (element.capacity() == 0) return;
    element.clear();
    spare_.push_back(std::move(element));
  }

 private:
  std::vector<DatasetElement> spare_;
};

// A queue that keeps its memory: std::deque takes and frees some of it all the time.
template <typename T>
class RingBuffer {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // The i-th from the front.
  T& operator[](std::size_t i) { return slots_[(front_ + i) & (slots_.size() - 1)]; }
  T& front() { return slots_[front_]; }
  void push_back(T value) {
    if (size_ == slots_.size()) Grow();
    (*this)[size_] = std::move(value);
    ++size_;
  }
  // What is left in the slot is as a move has left it: to be moved from before.
  void pop_front() {
    front_ = (front_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void Grow() {
    std::vector<T> more(std::max<std::size_t>(8, 2 * size_));  // a power of two
    for (std::size_t i = 0; i < size_; ++i) more[i] = std::move((*this)[i]);
    slots_.swap(more);
    front_ = 0;
  }

  std::vector<T> slots_;
  std::size_t front_ = 0, size_ = 0;
};

}  // namespace millrace

#endif  // KERNELS_DATA_SPARE_ELEMENTS_H_
