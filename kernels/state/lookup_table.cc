// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/lookup_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

bool EndsWith(const Shape& shape, const Shape& tail) {
  return shape.rank() >= tail.rank() &&
         std::equal(tail.dims().begin(), tail.dims().end(), shape.dims().end() - tail.rank());
}

Shape WithoutTail(const Shape& shape, int tail) {
  return Shape(shape.dims().first(shape.rank() - tail));
}

Shape Join(const Shape& a, const Shape& b) {
  Dims dims(a.dims().begin(), a.dims().end());
  dims.insert(dims.end(), b.dims().begin(), b.dims().end());
  return Shape(dims);
}

}  // namespace

Status LookupTable::CheckKeys(const Tensor& keys, int64_t* count) const {
  if (keys.dtype() != options_.key_dtype) {
    return errors::InvalidArgument("Key must be type ", DataTypeName(options_.key_dtype),
                                   " but got ", DataTypeName(keys.dtype()));
  }
  if (!EndsWith(keys.shape(), options_.key_shape)) {
    return errors::InvalidArgument("Input key shape ", keys.shape().DebugString(),
                                   " must end with the table's key shape ",
                                   options_.key_shape.DebugString());
  }
  const int64_t width = options_.key_shape.num_elements();
  *count = width == 0 ? 0 : keys.num_elements() / width;
  // A dense table takes a list of keys, not a matrix of them.
  const int64_t listed = keys.rank() == 0 ? 1 : keys.dim(0);
  if (IsDense() && *count != listed) {
    return errors::InvalidArgument("Expected key shape ",
                                   Join(Shape({listed}), options_.key_shape).DebugString(), " got ",
                                   keys.shape().DebugString());
  }
  return OkStatus();
}

const Tensor* LookupTable::ReservedKey(std::string_view key) const {
  const int64_t width = options_.key_shape.num_elements();
  std::string scratch;
  for (const Tensor* reserved : {&options_.empty_key, &options_.deleted_key}) {
    if (reserved->IsInitialized() && key == KeyAt(*reserved, 0, width, &scratch)) return reserved;
  }
  return nullptr;
}

Status LookupTable::CheckNotReserved(std::string_view key) const {
  const Tensor* const reserved = ReservedKey(key);
  if (reserved == nullptr) return OkStatus();
  return errors::InvalidArgument("Using the ",
                                 reserved == &options_.empty_key ? "empty" : "deleted",
                                 "_key as a table key is not allowed");
}

void LookupTable::GrowLocked(int64_t more) {
  if (!IsDense()) return;
  const auto fits = [this](int64_t entries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return static_cast<double>(entries) <= static_cast<double>(buckets_) * options_.max_load;
  };
  if (fits(size_ + more)) return;
  while (!fits(size_ + more)) buckets_ *= 2;
  removed_.clear();  // what grows is put together anew
}

Status LookupTable::CheckPair(const Tensor& keys, const Tensor& values, int64_t* count) const {
  MR_RETURN_IF_ERROR(CheckKeys(keys, count));
  if (values.dtype() != options_.value_dtype) {
    return errors::InvalidArgument("Value must be type ", DataTypeName(options_.value_dtype),
                                   " but got ", DataTypeName(values.dtype()));
  }
  const Shape expected =
      Join(WithoutTail(keys.shape(), options_.key_shape.rank()), options_.value_shape);
  if (!(values.shape() == expected)) {
    return errors::InvalidArgument("Expected shape ", expected.DebugString(), " for value, got ",
                                   values.shape().DebugString());
  }
  return OkStatus();
}

std::string_view LookupTable::KeyAt(const Tensor& keys, int64_t row, int64_t width,
                                    std::string* scratch) {
  if (keys.dtype() != kString) {
    const std::size_t size = DataTypeSize(keys.dtype()) * width;
    return {static_cast<const char*>(keys.raw_data()) + row * size, size};
  }
  const std::string* text = keys.data<std::string>() + row * width;
  if (width == 1) return *text;
  scratch->clear();
  for (int64_t i = 0; i < width; ++i) {  // lengths keep neighbours apart
    const uint64_t length = text[i].size();
    scratch->append(reinterpret_cast<const char*>(&length), sizeof(length));
    scratch->append(text[i]);
  }
  return *scratch;
}

void LookupTable::SetRow(const Tensor& from, int64_t at, int64_t width, int64_t row,
                         Column* column) {
  if (from.dtype() == kString) {
    column->strings.resize(std::max<std::size_t>(column->strings.size(), (row + 1) * width));
    std::copy_n(from.data<std::string>() + at * width, width,
                column->strings.begin() + row * width);
    return;
  }
  const std::size_t size = DataTypeSize(from.dtype()) * width;
  column->bytes.resize(std::max(column->bytes.size(), (row + 1) * size));
  std::memcpy(column->bytes.data() + row * size,
              static_cast<const char*>(from.raw_data()) + at * size, size);
}

void LookupTable::GetRow(const Column& column, int64_t row, int64_t width, Tensor* to, int64_t at) {
  if (to->dtype() == kString) {
    std::copy_n(column.strings.begin() + row * width, width, to->data<std::string>() + at * width);
    return;
  }
  const std::size_t size = DataTypeSize(to->dtype()) * width;
  std::memcpy(static_cast<char*>(to->raw_data()) + at * size, column.bytes.data() + row * size,
              size);
}

void LookupTable::MoveRow(int64_t from, int64_t to, int64_t width, std::size_t size,
                          Column* column) {
  if (!column->strings.empty()) {
    if (from != to) {
      std::move(column->strings.begin() + from * width,
                column->strings.begin() + (from + 1) * width, column->strings.begin() + to * width);
    }
    column->strings.resize(from * width);
  } else {
    size *= width;
    if (from != to) {
      std::memcpy(column->bytes.data() + to * size, column->bytes.data() + from * size, size);
    }
    column->bytes.resize(from * size);
  }
}

bool LookupTable::SameRow(const Tensor& values, int64_t at, int64_t row) const {
  const int64_t width = options_.value_shape.num_elements();
  if (values.dtype() == kString) {
    return std::equal(values_.strings.begin() + row * width,
                      values_.strings.begin() + (row + 1) * width,
                      values.data<std::string>() + at * width);
  }
  const std::size_t size = DataTypeSize(values.dtype()) * width;
  return std::memcmp(values_.bytes.data() + row * size,
                     static_cast<const char*>(values.raw_data()) + at * size, size) == 0;
}

StatusOr<Tensor> LookupTable::Find(Allocator* allocator, const Tensor& keys,
                                   const Tensor& missing) const {
  int64_t count;
  MR_RETURN_IF_ERROR(CheckKeys(keys, &count));
  const int64_t width = options_.value_shape.num_elements();
  if (missing.dtype() != options_.value_dtype) {
    return errors::InvalidArgument("Default value must be type ",
                                   DataTypeName(options_.value_dtype), " but got ",
                                   DataTypeName(missing.dtype()));
  }
  const Shape shape =
      Join(WithoutTail(keys.shape(), options_.key_shape.rank()), options_.value_shape);
  const bool one_default = missing.shape() == options_.value_shape;
  if (!one_default && !(missing.shape() == shape)) {
    return errors::InvalidArgument("Expected shape ", options_.value_shape.DebugString(), " or ",
                                   shape.DebugString(), " for default value, got ",
                                   missing.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(Tensor out, Tensor::Allocate(allocator, options_.value_dtype, shape));
  const int64_t key_width = options_.key_shape.num_elements();
  std::string scratch;
  MutexLock lock(&mu_);
  if (options_.fixed && !initialized_) return errors::FailedPrecondition("Table not initialized.");
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view key = KeyAt(keys, i, key_width, &scratch);
    MR_RETURN_IF_ERROR(CheckNotReserved(key));
    const auto it = rows_.find(key);
    if (it != rows_.end()) {
      GetRow(values_, it->second, width, &out, i);
    } else {
      CopyRange(missing, one_default ? 0 : i * width, &out, i * width, width);
    }
  }
  return out;
}

Status LookupTable::InsertLocked(const Tensor& keys, const Tensor& values, int64_t count,
                                 bool unique) {
  const int64_t key_width = options_.key_shape.num_elements();
  const int64_t width = options_.value_shape.num_elements();
  std::string scratch;
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view key = KeyAt(keys, i, key_width, &scratch);
    MR_RETURN_IF_ERROR(CheckNotReserved(key));
    const auto [it, added] = rows_.try_emplace(std::string(key), size_);
    if (added) {
      removed_.erase(key);
      if (size_ + static_cast<int64_t>(removed_.size()) >= buckets_ && !removed_.empty()) {
        removed_.erase(removed_.begin());  // its bucket is taken
      }
      SetRow(keys, i, key_width, size_, &keys_);
      SetRow(values, i, width, size_, &values_);
      ++size_;
    } else if (!unique) {
      SetRow(values, i, width, it->second, &values_);
    } else if (!SameRow(values, i, it->second)) {
      // Bounded: as one value that the table holds.
      Tensor old(options_.value_dtype, options_.value_shape);
      GetRow(values_, it->second, width, &old, 0);
      return errors::FailedPrecondition(
          "HashTable has different value for same key. Key ",
          keys.dtype() == kString ? keys.data<std::string>()[i * key_width] : StrCat("number ", i),
          " has ", old.DebugString(1), " and trying to add another value");
    }
  }
  return OkStatus();
}

Status LookupTable::Insert(const Tensor& keys, const Tensor& values) {
  if (options_.fixed) {
    return errors::Unimplemented("Insert not supported by ", options_.kind, " implementations");
  }
  int64_t count;
  MR_RETURN_IF_ERROR(CheckPair(keys, values, &count));
  MutexLock lock(&mu_);
  GrowLocked(count);
  return InsertLocked(keys, values, count, /*unique=*/false);
}

Status LookupTable::Remove(const Tensor& keys) {
  if (options_.fixed) {
    return errors::Unimplemented("Remove not supported by ", options_.kind, " implementations");
  }
  int64_t count;
  MR_RETURN_IF_ERROR(CheckKeys(keys, &count));
  const int64_t key_width = options_.key_shape.num_elements();
  const int64_t width = options_.value_shape.num_elements();
  std::string scratch;
  MutexLock lock(&mu_);
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view key = KeyAt(keys, i, key_width, &scratch);
    MR_RETURN_IF_ERROR(CheckNotReserved(key));
    const auto it = rows_.find(key);
    if (it == rows_.end()) continue;
    const int64_t row = it->second, last = size_ - 1;
    if (IsDense()) {
      MR_ASSIGN_OR_RETURN(Tensor old, Tensor::Allocate(HostAllocator(), options_.value_dtype,
                                                       options_.value_shape));
      GetRow(values_, row, width, &old, 0);
      removed_.insert_or_assign(std::string(key), std::move(old));
    }
    rows_.erase(it);
    if (row != last) {  // the last row takes its place
      // Bounded: as one key that the table holds.
      Tensor moved(options_.key_dtype, options_.key_shape);
      GetRow(keys_, last, key_width, &moved, 0);
      rows_[std::string(KeyAt(moved, 0, key_width, &scratch))] = row;
    }
    MoveRow(last, row, key_width, DataTypeSize(options_.key_dtype), &keys_);
    MoveRow(last, row, width, DataTypeSize(options_.value_dtype), &values_);
    --size_;
  }
  return OkStatus();
}

void LookupTable::ClearLocked() {
  rows_.clear();
  keys_ = Column();
  values_ = Column();
  size_ = 0;
  buckets_ = options_.buckets;
  removed_.clear();
}

Status LookupTable::ImportBuckets(const Tensor& keys, const Tensor& values, int64_t count) {
  const int64_t key_width = options_.key_shape.num_elements();
  const int64_t width = options_.value_shape.num_elements();
  buckets_ = std::max<int64_t>(count, 1);
  std::string scratch;
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view key = KeyAt(keys, i, key_width, &scratch);
    const Tensor* const reserved = ReservedKey(key);
    if (reserved == &options_.empty_key) continue;
    if (reserved != nullptr) {
      MR_ASSIGN_OR_RETURN(Tensor old, Tensor::Allocate(HostAllocator(), options_.value_dtype,
                                                       options_.value_shape));
      CopyRange(values, i * width, &old, 0, width);
      removed_.try_emplace(StrCat("bucket ", i), std::move(old));
      continue;
    }
    const auto [it, added] = rows_.try_emplace(std::string(key), size_);
    if (added) SetRow(keys, i, key_width, size_++, &keys_);
    SetRow(values, i, width, it->second, &values_);
  }
  return OkStatus();
}

Status LookupTable::Import(const Tensor& keys, const Tensor& values) {
  if (options_.fixed && keys.num_elements() == 0) {
    return errors::InvalidArgument("keys and values cannot be empty tensors.");
  }
  if (options_.fixed) return Initialize(keys, values);
  int64_t count;
  MR_RETURN_IF_ERROR(CheckPair(keys, values, &count));
  MutexLock lock(&mu_);
  ClearLocked();
  if (IsDense()) return ImportBuckets(keys, values, count);
  return InsertLocked(keys, values, count, /*unique=*/false);
}

Status LookupTable::Export(Allocator* allocator, Tensor* keys, Tensor* values) const {
  MutexLock lock(&mu_);
  if (options_.fixed && !initialized_) return errors::Aborted("HashTable is not initialized.");
  const int64_t width = options_.value_shape.num_elements();
  const int64_t key_width = options_.key_shape.num_elements();
  const Shape rows({std::max(size_, buckets_)});
  MR_ASSIGN_OR_RETURN(
      *keys, Tensor::Allocate(allocator, options_.key_dtype, Join(rows, options_.key_shape)));
  MR_ASSIGN_OR_RETURN(
      *values, Tensor::Allocate(allocator, options_.value_dtype, Join(rows, options_.value_shape)));
  for (int64_t i = 0; i < size_; ++i) {
    GetRow(keys_, i, key_width, keys, i);
    GetRow(values_, i, width, values, i);
  }
  int64_t at = size_;
  for (auto it = removed_.begin(); it != removed_.end() && at < rows.dim(0); ++it, ++at) {
    CopyRange(options_.deleted_key, 0, keys, at * key_width, key_width);
    CopyRange(it->second, 0, values, at * width, width);
  }
  ClearRange(values, at * width, (rows.dim(0) - at) * width);
  for (; at < rows.dim(0); ++at) CopyRange(options_.empty_key, 0, keys, at * key_width, key_width);
  return OkStatus();
}

Status LookupTable::Initialize(const Tensor& keys, const Tensor& values) {
  int64_t count;
  MR_RETURN_IF_ERROR(CheckPair(keys, values, &count));
  MutexLock lock(&mu_);
  if (initialized_) {
    if (count == size_) return OkStatus();
    return errors::FailedPrecondition("Table was already initialized with different data.");
  }
  const Status status = InsertLocked(keys, values, count, /*unique=*/true);
  if (!status.ok()) {
    ClearLocked();
    return status;
  }
  initialized_ = true;
  return OkStatus();
}

bool LookupTable::initialized() const {
  MutexLock lock(&mu_);
  return !options_.fixed || initialized_;
}

int64_t LookupTable::size() const {
  MutexLock lock(&mu_);
  return size_;
}

std::string LookupTable::DebugString() const {
  return StrCat(options_.kind, " ", options_.name, ", ", size(), " entries");
}

}  // namespace millrace
