// SPDX-License-Identifier: Apache-2.0
// Arrays of tensors that live for one step: each element is written once and, unless told
// otherwise, read once.
#ifndef KERNELS_LISTS_TENSOR_ARRAY_H_
#define KERNELS_LISTS_TENSOR_ARRAY_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/resource_manager.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Thread-safe. Errors are InvalidArgument with TensorFlow's words.
class TensorArrayResource : public Resource {
 public:
  struct Options {
    std::string name;
    DataType dtype = kFloat;
    PartialShape element_shape;
    bool dynamic_size = false;
    bool clear_after_read = true;
    bool identical_element_shapes = false;
    bool add_up_writes = false;  // an array of gradients: later writes are added
  };
  TensorArrayResource(Options options, int64_t size);
  // InvalidArgument, ResourceExhausted if there can be no array of this size.
  static Status CheckCount(int64_t size);

  DataType dtype() const { return options_.dtype; }
  StatusOr<int64_t> Size() const;
  // The elements that a concatenation takes: all, or, of gradients, those that were marked.
  StatusOr<int64_t> ConcatSize() const;
  // InvalidArgument if `count` rows cannot be all the elements.
  Status CheckSplit(int64_t count) const;
  // What is known of the elements, also from those that were written.
  PartialShape ElementShape() const;
  // Narrows it; InvalidArgument if that contradicts what is known.
  Status MergeElementShape(const PartialShape& shape);

  Status Write(Allocator* allocator, int64_t index, const Tensor& value);
  // Elements [0, values.size()) at `indices`, or at 0, 1, ... if that is null. Marks the elements
  // that there are then as what a gradient of this array gives back: those that are added later
  // are no part of what was taken apart.
  Status WriteMany(Allocator* allocator, const std::vector<int64_t>* indices,
                   const std::vector<Tensor>& values);
  StatusOr<Tensor> Read(Allocator* allocator, int64_t index);
  StatusOr<std::vector<Tensor>> ReadMany(Allocator* allocator, std::span<const int64_t> indices);

  // An array for the gradients of this one: of its size, which is fixed from now on, with
  // zeros where this one has been written. `outer` are sizes in front of those of each element.
  StatusOr<RefPtr<TensorArrayResource>> MakeGradient(std::string name,
                                                     std::span<const int64_t> outer = {});
  void Close();

  std::string DebugString() const override;

 private:
  struct Slot {
    Tensor value;  // not initialised: zeros of `shape` if written
    Shape shape;
    bool written = false, read = false, cleared = false;
  };

  Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status WriteLocked(Allocator* allocator, int64_t index, const Tensor& value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<Tensor> ReadLocked(Allocator* allocator, int64_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<Tensor> Zeros(Allocator* allocator, const Slot& slot, int64_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Options options_;  // element_shape and dynamic_size change, under the lock
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  int64_t marked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_LISTS_TENSOR_ARRAY_H_
