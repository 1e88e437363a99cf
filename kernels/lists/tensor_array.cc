// SPDX-License-Identifier: Apache-2.0
#include "kernels/lists/tensor_array.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"

namespace millrace {
namespace {

// An index may come from a peer; each slot costs memory before anything is written.
constexpr int64_t kMaxSlots = int64_t{1} << 24;

}  // namespace

Status TensorArrayResource::CheckCount(int64_t size) {
  if (size < 0) return errors::InvalidArgument("Size should be >= 0.");
  if (size <= kMaxSlots) return OkStatus();
  return errors::ResourceExhausted("a TensorArray of ", size, " elements; at most ", kMaxSlots,
                                   " are possible");
}

TensorArrayResource::TensorArrayResource(Options options, int64_t size)
    : options_(std::move(options)), slots_(size), marked_(size) {}

Status TensorArrayResource::CheckOpen() const {
  if (!closed_) return OkStatus();
  return errors::InvalidArgument("TensorArray ", options_.name, " has already been closed.");
}

StatusOr<int64_t> TensorArrayResource::Size() const {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  return static_cast<int64_t>(slots_.size());
}

StatusOr<int64_t> TensorArrayResource::ConcatSize() const {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  const auto size = static_cast<int64_t>(slots_.size());
  return options_.add_up_writes ? std::min(marked_, size) : size;
}

Status TensorArrayResource::CheckSplit(int64_t count) const {
  MutexLock lock(&mu_);
  const auto size = static_cast<int64_t>(slots_.size());
  if (options_.dynamic_size || size == count) return OkStatus();
  return errors::InvalidArgument("TensorArray's size is not equal to the size of lengths (", size,
                                 " vs. ", count, "), and the TensorArray is not marked as ",
                                 "dynamically resizeable");
}

PartialShape TensorArrayResource::ElementShape() const {
  MutexLock lock(&mu_);
  return options_.element_shape;
}

Status TensorArrayResource::MergeElementShape(const PartialShape& shape) {
  MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(options_.element_shape, options_.element_shape.MergeWith(shape));
  return OkStatus();
}

Status TensorArrayResource::Write(Allocator* allocator, int64_t index, const Tensor& value) {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  return WriteLocked(allocator, index, value);
}

Status TensorArrayResource::WriteMany(Allocator* allocator, const std::vector<int64_t>* indices,
                                      const std::vector<Tensor>& values) {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int64_t index = indices == nullptr ? static_cast<int64_t>(i) : (*indices)[i];
    MR_RETURN_IF_ERROR(WriteLocked(allocator, index, values[i]));
  }
  if (!options_.add_up_writes) marked_ = static_cast<int64_t>(slots_.size());
  return OkStatus();
}

Status TensorArrayResource::WriteLocked(Allocator* allocator, int64_t index, const Tensor& value) {
  const auto size = static_cast<int64_t>(slots_.size());
  if (index < 0 || (index >= size && !options_.dynamic_size)) {
    return errors::InvalidArgument("TensorArray ", options_.name, ": Tried to write to index ",
                                   index, " but array is not resizeable and size is: ", size);
  }
  if (value.dtype() != options_.dtype) {
    return errors::InvalidArgument(
        "TensorArray ", options_.name, ": Could not write to TensorArray index ", index,
        " because TensorArray dtype is ", DataTypeName(options_.dtype),
        " but Op is trying to write dtype ", DataTypeName(value.dtype()), ".");
  }
  if (!options_.element_shape.IsCompatibleWith(value.shape())) {
    return errors::InvalidArgument(
        "TensorArray ", options_.name, ": Could not write to TensorArray index ", index,
        " because the value shape is ", value.shape().DebugString(),
        " which is incompatible with the TensorArray's inferred element shape: ",
        options_.element_shape.DebugString(), " (consider setting infer_shape=False).");
  }
  if (index >= size) {
    MR_RETURN_IF_ERROR(CheckCount(index + 1));
    slots_.resize(index + 1);
  }
  if (options_.identical_element_shapes) options_.element_shape = value.shape();
  Slot& slot = slots_[index];
  if (slot.read) {
    return errors::InvalidArgument("TensorArray ", options_.name,
                                   ": Could not write to TensorArray index ", index,
                                   " because it has already been read.");
  }
  if (slot.written && !options_.add_up_writes) {
    return errors::InvalidArgument("TensorArray ", options_.name,
                                   ": Could not write to TensorArray index ", index,
                                   " because it has already been written to.");
  }
  if (slot.written && slot.value.IsInitialized()) {
    if (!(slot.value.shape() == value.shape())) {
      return errors::InvalidArgument(
          "TensorArray ", options_.name, ": Could not aggregate to TensorArray index ", index,
          " because the existing shape is ", slot.value.shape().DebugString(),
          " but the new input shape ", "is ", value.shape().DebugString(), ".");
    }
    MR_ASSIGN_OR_RETURN(slot.value, AddTensors(allocator, slot.value, value));
  } else {
    slot.value = value;
  }
  slot.shape = value.shape();
  slot.written = true;
  return OkStatus();
}

StatusOr<Tensor> TensorArrayResource::Read(Allocator* allocator, int64_t index) {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  return ReadLocked(allocator, index);
}

StatusOr<std::vector<Tensor>> TensorArrayResource::ReadMany(Allocator* allocator,
                                                            std::span<const int64_t> indices) {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  std::vector<Tensor> values;
  values.reserve(indices.size());
  for (const int64_t index : indices) {
    MR_ASSIGN_OR_RETURN(Tensor value, ReadLocked(allocator, index));
    values.push_back(std::move(value));
  }
  return values;
}

StatusOr<Tensor> TensorArrayResource::ReadLocked(Allocator* allocator, int64_t index) {
  const auto size = static_cast<int64_t>(slots_.size());
  if (index < 0 || index >= size) {
    return errors::InvalidArgument("Tried to read from index ", index,
                                   " but array size is: ", size);
  }
  Slot& slot = slots_[index];
  if (slot.cleared) {
    return errors::InvalidArgument("TensorArray ", options_.name, ": Could not read index ", index,
                                   " twice because it was cleared after a previous read "
                                   "(perhaps try setting clear_after_read = false?).");
  }
  Tensor value = slot.value;
  if (!value.IsInitialized()) {
    MR_ASSIGN_OR_RETURN(value, Zeros(allocator, slot, index));
  }
  slot.read = true;
  if (options_.clear_after_read) {
    slot.value = Tensor();
    slot.cleared = true;
  } else if (!slot.value.IsInitialized()) {
    slot.value = value;
  }
  return value;
}

StatusOr<Tensor> TensorArrayResource::Zeros(Allocator* allocator, const Slot& slot,
                                            int64_t index) const {
  if (slot.written) return ZeroTensor(allocator, options_.dtype, slot.shape);
  if (const auto shape = options_.element_shape.AsShape()) {
    return ZeroTensor(allocator, options_.dtype, *shape);
  }
  return errors::InvalidArgument(
      "TensorArray ", options_.name, ": Could not read from TensorArray index ", index,
      ".  Furthermore, the element shape is not fully defined: ",
      options_.element_shape.DebugString(),
      ".  It is possible you are working with a resizeable TensorArray and stop_gradients is not "
      "allowing the gradients to be written.  If you set the full element_shape property on the "
      "forward TensorArray, the proper all-zeros tensor will be returned instead of incurring "
      "this error.");
}

namespace {

PartialShape InFrontOf(const PartialShape& shape, std::span<const int64_t> outer) {
  if (!shape.has_rank()) return shape;
  Dims dims(outer.begin(), outer.end());
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return PartialShape(std::span<const int64_t>(dims.data(), dims.size()));
}

}  // namespace

StatusOr<RefPtr<TensorArrayResource>> TensorArrayResource::MakeGradient(
    std::string name, std::span<const int64_t> outer) {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  options_.dynamic_size = false;
  Options options = options_;
  options.name = std::move(name);
  options.element_shape = InFrontOf(options_.element_shape, outer);
  // What was added up in several writes comes back to each of them.
  options.clear_after_read = !options_.add_up_writes;
  options.add_up_writes = true;
  auto gradient =
      MakeRef<TensorArrayResource>(std::move(options), static_cast<int64_t>(slots_.size()));
  MutexLock other(&gradient->mu_);
  gradient->marked_ = marked_;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].written) continue;
    Dims dims(outer.begin(), outer.end());
    dims.insert(dims.end(), slots_[i].shape.dims().begin(), slots_[i].shape.dims().end());
    MR_ASSIGN_OR_RETURN(gradient->slots_[i].shape, MakeShape({dims.data(), dims.size()}));
    gradient->slots_[i].written = true;
  }
  return gradient;
}

void TensorArrayResource::Close() {
  MutexLock lock(&mu_);
  slots_.clear();
  closed_ = true;
}

std::string TensorArrayResource::DebugString() const {
  MutexLock lock(&mu_);
  return StrCat("TensorArray ", options_.name, " of ", slots_.size(), " elements");
}

}  // namespace millrace
