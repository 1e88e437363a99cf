// SPDX-License-Identifier: Apache-2.0
// The sizes of a shape, or other numbers of which there is one for each dimension.
#ifndef MILLRACE_DIMS_H_
#define MILLRACE_DIMS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace millrace {

// A vector of int64 as std::vector is, up to four without an allocation. Indices are not checked.
class Dims {
 public:
  using value_type = int64_t;             // of an element
  using iterator = int64_t*;              // ends with the next change of the size
  using const_iterator = const int64_t*;  // the same, to read

  // No elements.
  Dims() = default;
  // `size` elements of one value.
  explicit Dims(std::size_t size, int64_t value = 0) { assign(size, value); }
  // The elements of a list: Dims({2, 3}).
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.end()) {}
  // Copies of the elements of a range.
  template <std::forward_iterator Iterator>
  Dims(Iterator first, Iterator last) {
    assign(first, last);
  }
  // A copy.
  Dims(const Dims& other) : Dims(other.begin(), other.end()) {}
  // Takes the elements of `other`, which has none then.
  Dims(Dims&& other) noexcept { Take(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this == &other) return *this;
    Free();
    Take(other);
    return *this;
  }
  ~Dims() { Free(); }

  // The number of elements.
  std::size_t size() const { return size_; }
  // Whether there are none.
  bool empty() const { return size_ == 0; }
  // The number of elements that fit without an allocation; four at least.
  std::size_t capacity() const { return capacity_; }
  // The first element.
  int64_t* data() { return IsInline() ? inline_ : heap_; }
  // The first element, to read.
  const int64_t* data() const { return IsInline() ? inline_ : heap_; }
  // Iterators over the elements, as a standard container has them.
  int64_t* begin() { return data(); }
  // Behind the last element.
  int64_t* end() { return data() + size_; }
  // The first element, to read.
  const int64_t* begin() const { return data(); }
  // Behind the last element, to read.
  const int64_t* end() const { return data() + size_; }
  // The last element, backwards.
  auto rbegin() { return std::reverse_iterator(end()); }
  // Before the first element, backwards.
  auto rend() { return std::reverse_iterator(begin()); }
  // The last element, backwards, to read.
  auto rbegin() const { return std::reverse_iterator(end()); }
  // Before the first element, backwards, to read.
  auto rend() const { return std::reverse_iterator(begin()); }
  int64_t& operator[](std::size_t i) { return data()[i]; }
  int64_t operator[](std::size_t i) const { return data()[i]; }
  // The first element, which must exist.
  int64_t& front() { return *begin(); }
  // The first element, which must exist.
  int64_t front() const { return *begin(); }
  // The last element, which must exist.
  int64_t& back() { return end()[-1]; }
  // The last element, which must exist.
  int64_t back() const { return end()[-1]; }

  // Makes room for so many elements.
  void reserve(std::size_t capacity) {
    if (capacity > capacity_) Grow(capacity);
  }
  // Removes all elements and keeps the room.
  void clear() { size_ = 0; }
  // Appends an element.
  void push_back(int64_t value) {
    if (size_ == capacity_) Grow(size_ + 1);
    data()[size_++] = value;
  }
  // Removes the last element, which must exist.
  void pop_back() { --size_; }
  // Removes from the end, or appends elements of `value`.
  void resize(std::size_t size, int64_t value = 0) {
    reserve(size);
    if (size > size_) std::fill(end(), data() + size, value);
    size_ = static_cast<uint32_t>(size);
  }
  // `size` elements of one value instead of all that there are.
  void assign(std::size_t size, int64_t value) {
    clear();
    resize(size, value);
  }
  // Copies of a range, which is not in this vector, instead of all that there are.
  template <std::forward_iterator Iterator>
  void assign(Iterator first, Iterator last) {
    const auto size = static_cast<std::size_t>(std::distance(first, last));
    reserve(size);
    std::copy(first, last, data());
    size_ = static_cast<uint32_t>(size);
  }
  // The elements of a list instead of all that there are.
  void assign(std::initializer_list<int64_t> values) { assign(values.begin(), values.end()); }

  // Inserts before `at`, and returns where the new element stands.
  int64_t* insert(const int64_t* at, int64_t value) { return insert(at, 1, value); }
  // Inserts `count` elements of one value before `at`; returns the first of them.
  int64_t* insert(const int64_t* at, std::size_t count, int64_t value) {
    int64_t* const gap = MakeGap(at, count);
    std::fill_n(gap, count, value);
    return gap;
  }
  // Inserts copies of a range, which is not in this vector, before `at`; returns the first of them.
  template <std::forward_iterator Iterator>
  int64_t* insert(const int64_t* at, Iterator first, Iterator last) {
    int64_t* const gap = MakeGap(at, static_cast<std::size_t>(std::distance(first, last)));
    std::copy(first, last, gap);
    return gap;
  }
  // Removes one element; returns what follows it.
  int64_t* erase(const int64_t* at) { return erase(at, at + 1); }
  // Removes [first, last); returns what follows.
  int64_t* erase(const int64_t* first, const int64_t* last) {
    int64_t* const to = data() + (first - data());
    std::copy(last, static_cast<const int64_t*>(end()), to);
    size_ -= static_cast<uint32_t>(last - first);
    return to;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const Dims& a, const Dims& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr uint32_t kInline = 4;

  bool IsInline() const { return capacity_ == kInline; }
  void Grow(std::size_t least) {
    const std::size_t capacity = std::max<std::size_t>(least, std::size_t{2} * capacity_);
    auto* const moved = new int64_t[capacity];
    std::copy(begin(), end(), moved);
    Free();
    heap_ = moved;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  int64_t* MakeGap(const int64_t* at, std::size_t count) {
    const auto index = at - data();
    const std::size_t old = size_;
    resize(old + count);
    std::move_backward(begin() + index, begin() + old, end());
    return begin() + index;
  }
  void Free() {
    if (!IsInline()) delete[] heap_;
  }
  // What `other` has; this one has nothing to free.
  void Take(Dims& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInline);
    if (IsInline()) {
      std::copy_n(other.inline_, size_, inline_);
    } else {
      heap_ = other.heap_;
    }
  }

  uint32_t size_ = 0, capacity_ = kInline;
  union {
    int64_t inline_[kInline];
    int64_t* heap_;
  };
};

}  // namespace millrace

#endif  // MILLRACE_DIMS_H_
