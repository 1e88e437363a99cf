// SPDX-License-Identifier: Apache-2.0
// The edges at one side of a node.
#ifndef GRAPH_EDGE_LIST_H_
#define GRAPH_EDGE_LIST_H_

#include <algorithm>
#include <cstdint>
#include <span>

namespace millrace {

struct Edge;

// A vector of pointers that holds two of them without an allocation: most nodes have no more,
// and a graph has two lists for each of its nodes. Not synchronised.
class EdgeList {
 public:
  EdgeList() = default;
  EdgeList(const EdgeList& other) { Assign(other.view()); }
  EdgeList& operator=(const EdgeList& other) {
    if (this != &other) Assign(other.view());
    return *this;
  }
  ~EdgeList() { Free(); }

  std::span<Edge* const> view() const { return {data(), size_}; }
  std::span<Edge*> view() { return {data(), size_}; }
  bool empty() const { return size_ == 0; }

  // Before the edge that is at this place now.
  void Insert(std::size_t at, Edge* edge) {
    if (size_ == capacity_) Grow();
    Edge** const edges = data();
    std::copy_backward(edges + at, edges + size_, edges + size_ + 1);
    edges[at] = edge;
    ++size_;
  }
  void Add(Edge* edge) { Insert(size_, edge); }
  // The last one is looked for first: edges are mostly taken away in reverse order.
  void Remove(const Edge* edge) {
    Edge** const edges = data();
    for (std::size_t i = size_; i-- > 0;) {
      if (edges[i] != edge) continue;
      std::copy(edges + i + 1, edges + size_, edges + i);
      --size_;
      return;
    }
  }

 private:
  static constexpr uint32_t kInline = 2;

  Edge** data() { return capacity_ > kInline ? heap_ : inline_; }
  Edge* const* data() const { return capacity_ > kInline ? heap_ : inline_; }
  void Free() {
    if (capacity_ > kInline) delete[] heap_;
  }
  void Grow() {
    Edge** const larger = new Edge*[capacity_ * 2];
    std::copy(data(), data() + size_, larger);
    Free();
    heap_ = larger;
    capacity_ *= 2;
  }
  void Assign(std::span<Edge* const> edges) {
    Free();
    size_ = static_cast<uint32_t>(edges.size());
    capacity_ = std::max(kInline, size_);
    if (capacity_ > kInline) heap_ = new Edge*[capacity_];
    std::copy(edges.begin(), edges.end(), data());
  }

  union {
    Edge* inline_[kInline] = {nullptr, nullptr};
    Edge** heap_;
  };
  uint32_t size_ = 0, capacity_ = kInline;
};

}  // namespace millrace

#endif  // GRAPH_EDGE_LIST_H_
