// SPDX-License-Identifier: Apache-2.0
// Lists of tensors that are values: an op on a list gives another list. What functional loops
// keep for their way back.
#ifndef KERNELS_LISTS_TENSOR_LIST_H_
#define KERNELS_LISTS_TENSOR_LIST_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/common/nesting.h"
#include "kernels/common/variant.h"
#include "millrace/shape.h"
#include "millrace/tensor.h"

namespace millrace {

// Tensors by index. Those that were never set take no memory: how many there are may be a number of
// somebody else's. Not synchronised.
class ListElements {
 public:
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Element `i`, which is within the list; one that is not set has no buffer and no type.
  const Tensor& operator[](int64_t i) const {
    static const Tensor* const not_set = new Tensor;
    if (i < static_cast<int64_t>(near_.size())) return near_[i];
    const auto it = far_.find(i);
    return it == far_.end() ? *not_set : it->second;
  }
  const Tensor& back() const { return (*this)[size_ - 1]; }
  void Set(int64_t i, Tensor value) {
    if (value.dtype() == kVariant) nesting_ = std::max(nesting_, NestingWithin(value));
    const auto dense = static_cast<int64_t>(near_.size());
    if (i < dense) {
      near_[i] = std::move(value);
    } else if (i < 2 * dense + kNear) {
      Reach(i + 1);
      near_[i] = std::move(value);
    } else {
      far_[i] = std::move(value);
    }
  }
  void push_back(Tensor value) { Set(size_++, std::move(value)); }
  void pop_back() { resize(size_ - 1); }
  void resize(int64_t n) {
    if (n < static_cast<int64_t>(near_.size())) near_.resize(n);
    if (n < size_ && !far_.empty()) {
      absl::erase_if(far_, [n](const auto& entry) { return entry.first >= n; });
    }
    size_ = n;
    if (n == 0) nesting_ = 0;
  }
  // The greatest of all elements that were there since the list was last empty.
  int nesting() const { return nesting_; }
  // Calls f(i, element) for all that are set, those far from the beginning last and in any order;
  // ends with the first error.
  template <typename F>
  Status ForEachSet(F&& f) const {
    for (std::size_t i = 0; i < near_.size(); ++i) {
      if (!near_[i].IsInitialized()) continue;
      if (Status status = f(static_cast<int64_t>(i), near_[i]); !status.ok()) return status;
    }
    for (const auto& [i, t] : far_) {
      if (Status status = f(i, t); !status.ok()) return status;
    }
    return OkStatus();
  }

 private:
  static constexpr int64_t kNear = 1024;  // how far behind the dense ones an element joins them

  // Makes [0, n) dense.
  void Reach(int64_t n) {
    const auto before = static_cast<int64_t>(near_.size());
    near_.resize(n);
    for (int64_t i = before; i < n && !far_.empty(); ++i) {
      const auto it = far_.find(i);
      if (it == far_.end()) continue;
      near_[i] = std::move(it->second);
      far_.erase(it);
    }
  }

  int64_t size_ = 0;
  int nesting_ = 0;
  std::vector<Tensor> near_;                  // the first ones, at most size_
  absl::flat_hash_map<int64_t, Tensor> far_;  // of the others, those that are set
};

// The content of a variant. An element without a buffer and of type kInvalid has not been set:
// it reads as zeros.
struct TensorList : public RefCounted, public HoldsObjects {
  DataType dtype = DataType::kInvalid;
  PartialShape element_shape;
  int64_t max_num_elements = -1;  // negative: no limit
  ListElements elements;

  RefPtr<TensorList> Copy() const;
  int nesting() const override { return elements.nesting() + 1; }
};

}  // namespace millrace

#endif  // KERNELS_LISTS_TENSOR_LIST_H_
