#include "kernels/lists/tensor_array.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/host_kernels.h"

namespace millrace {
namespace {

// An index may come from a peer; each slot costs memory before anything is written.
constexpr int64_t kMaxSlots = int64_t{1} << 24;

Status CheckSize(int64_t size) {
  if (size < 0) return errors::InvalidArgument("Size should be >= 0.");
  if (size <= kMaxSlots) return OkStatus();
  return errors::ResourceExhausted("a TensorArray of ", size, " elements; at most ", kMaxSlots,
                                   " are possible");
}

}  // namespace

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
    MR_RETURN_IF_ERROR(CheckSize(index + 1));
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

StatusOr<RefPtr<TensorArrayResource>> TensorArrayResource::MakeGradient(std::string name) {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckOpen());
  options_.dynamic_size = false;
  Options options = options_;
  options.name = std::move(name);
  // What was added up in several writes comes back to each of them.
  options.clear_after_read = !options_.add_up_writes;
  options.add_up_writes = true;
  auto gradient =
      MakeRef<TensorArrayResource>(std::move(options), static_cast<int64_t>(slots_.size()));
  MutexLock other(&gradient->mu_);
  gradient->marked_ = marked_;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].written) continue;
    gradient->slots_[i].shape = slots_[i].shape;
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

namespace {

// A float scalar that orders the uses of an array.
Tensor Flow() {
  static const auto* const flow = new Tensor(Tensor::Scalar<float>(0));
  return *flow;
}

class TensorArrayKernel : public Kernel {
 public:
  explicit TensorArrayKernel(KernelConstruction& c) : Kernel(c) {
    options_.dtype = c.attr<DataType>("dtype");
    options_.element_shape = c.attr<PartialShape>("element_shape");
    options_.dynamic_size = c.attr<bool>("dynamic_size");
    options_.clear_after_read = c.attr<bool>("clear_after_read");
    options_.identical_element_shapes = c.attr<bool>("identical_element_shapes");
    options_.name = c.attr<std::string>("tensor_array_name");
    if (options_.name.empty()) options_.name = name();
  }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t size, IntScalar(ctx.input(0), "TensorArray size"));
    MR_RETURN_IF_ERROR(CheckSize(size));
    // Errors name the array by a number too: a loop may make many of one name.
    static std::atomic<uint64_t> next{0};
    TensorArrayResource::Options options = options_;
    options.name = StrCat(options_.name, "_", next.fetch_add(1, std::memory_order_relaxed));
    MR_ASSIGN_OR_RETURN(Tensor handle,
                        AddStepResource(ctx, StrCat("_tensor_arrays/", options_.name),
                                        MakeRef<TensorArrayResource>(std::move(options), size)));
    ctx.SetOutput(0, std::move(handle));
    ctx.SetOutput(1, Flow());
    return OkStatus();
  }

 private:
  TensorArrayResource::Options options_;
};

class TensorArrayGradKernel : public Kernel {
 public:
  explicit TensorArrayGradKernel(KernelConstruction& c)
      : Kernel(c), source_(c.attr<std::string>("source")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    const std::string name = StrCat(ctx.input(0).scalar<ResourceHandle>().name, "@", source_);
    MR_RETURN_IF_ERROR(
        ctx.resources()
            ->LookupOrCreate<TensorArrayResource>(ctx.env().step_container, name,
                                                  [&] { return array->MakeGradient(StrCat(name)); })
            .status());
    ctx.SetOutput(0, StepHandle<TensorArrayResource>(ctx, name));
    ctx.SetOutput(1, ctx.input(1));
    return OkStatus();
  }

 private:
  const std::string source_;
};

class TensorArrayWriteKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(1), "TensorArray index"));
    MR_RETURN_IF_ERROR(array->Write(ctx.allocator(), index, ctx.locked_input(2)));
    ctx.SetOutput(0, ctx.input(3));
    return OkStatus();
  }
};

Status CheckType(const TensorArrayResource& array, DataType dtype) {
  if (array.dtype() == dtype) return OkStatus();
  return errors::InvalidArgument("TensorArray dtype is ", DataTypeName(array.dtype()),
                                 " but Op requested dtype ", DataTypeName(dtype), ".");
}

class TensorArrayReadKernel : public Kernel {
 public:
  explicit TensorArrayReadKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("dtype")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    MR_RETURN_IF_ERROR(CheckType(*array, dtype_));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(1), "TensorArray index"));
    MR_ASSIGN_OR_RETURN(Tensor value, array->Read(ctx.allocator(), index));
    ctx.SetOutput(0, std::move(value));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class TensorArrayGatherKernel : public Kernel {
 public:
  explicit TensorArrayGatherKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("dtype")),
        element_shape_(c.attr<PartialShape>("element_shape")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    MR_RETURN_IF_ERROR(CheckType(*array, dtype_));
    MR_RETURN_IF_ERROR(array->MergeElementShape(element_shape_));
    MR_ASSIGN_OR_RETURN(const Dims indices,
                        IntVector(ctx.input(1), "TensorArray indices", /*vector_only=*/true));
    if (indices.empty()) {
      const auto shape = array->ElementShape().AsShape();
      if (!shape) {
        return errors::Unimplemented("TensorArray has size zero, but element shape ",
                                     array->ElementShape().DebugString(),
                                     " is not fully defined. Currently only static shapes are "
                                     "supported when packing zero-size TensorArrays.");
      }
      MR_ASSIGN_OR_RETURN(Tensor empty, StackTensors(ctx.allocator(), dtype_, *shape, {}));
      ctx.SetOutput(0, std::move(empty));
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        array->ReadMany(ctx.allocator(), indices));
    const Shape& element = values[0].shape();
    for (std::size_t i = 1; i < values.size(); ++i) {
      if (values[i].shape() == element) continue;
      return errors::InvalidArgument(
          "TensorArray has inconsistent shapes.  Index 0 has shape: ", element.DebugString(),
          " but index ", i, " has shape: ", values[i].shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor whole, StackTensors(ctx.allocator(), dtype_, element, values));
    ctx.SetOutput(0, std::move(whole));
    return OkStatus();
  }

 private:
  const DataType dtype_;
  const PartialShape element_shape_;
};

class TensorArrayScatterKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    MR_ASSIGN_OR_RETURN(const Dims at,
                        IntVector(ctx.input(1), "TensorArray indices", /*vector_only=*/true));
    const Tensor value = ctx.locked_input(2);
    if (value.rank() < 1 || value.dim(0) != static_cast<int64_t>(at.size())) {
      return errors::InvalidArgument("Expected len(indices) == values.shape[0], but saw: ",
                                     at.size(), " vs. ", value.shape().DebugString());
    }
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < value.dim(0); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor row, CopyOfRow(ctx.allocator(), value, i));
      rows.push_back(std::move(row));
    }
    const std::vector<int64_t> indices(at.begin(), at.end());
    MR_RETURN_IF_ERROR(array->WriteMany(ctx.allocator(), &indices, rows));
    ctx.SetOutput(0, ctx.input(3));
    return OkStatus();
  }
};

class TensorArrayConcatKernel : public Kernel {
 public:
  explicit TensorArrayConcatKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("dtype")),
        rest_(c.attr<PartialShape>("element_shape_except0")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    MR_RETURN_IF_ERROR(CheckType(*array, dtype_));
    MR_ASSIGN_OR_RETURN(const int64_t size, array->ConcatSize());
    std::vector<int64_t> indices(size);
    for (int64_t i = 0; i < size; ++i) indices[i] = i;
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        array->ReadMany(ctx.allocator(), indices));
    MR_ASSIGN_OR_RETURN(Shape shape, ConcatShape(values));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    MR_ASSIGN_OR_RETURN(Tensor * lengths, ctx.AllocateOutput(1, Shape({size})));
    int64_t at = 0;
    for (int64_t i = 0; i < size; ++i) {
      CopyRange(values[i], 0, out, at, values[i].num_elements());
      at += values[i].num_elements();
      lengths->data<int64_t>()[i] = values[i].dim(0);
    }
    return OkStatus();
  }

 private:
  StatusOr<Shape> ConcatShape(const std::vector<Tensor>& values) const {
    if (values.empty()) {
      const auto rest = rest_.AsShape();
      if (!rest) {
        return errors::Unimplemented("TensorArray has size zero, but element_shape_except0 ",
                                     rest_.DebugString(),
                                     " is not fully defined. Currently only "
                                     "static shapes are supported when concatenating zero-size "
                                     "TensorArrays.");
      }
      Dims dims = {0};
      dims.insert(dims.end(), rest->dims().begin(), rest->dims().end());
      return MakeShape(dims);
    }
    int64_t rows = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Shape& shape = values[i].shape();
      if (shape.rank() < 1) {
        return errors::InvalidArgument("Concat saw a scalar shape at index ", i,
                                       " but requires at least vectors.  Did you mean to call "
                                       "pack?");
      }
      const Shape tail(shape.dims().subspan(1));
      if (!(tail == Shape(values[0].shape().dims().subspan(1))) || !rest_.IsCompatibleWith(tail)) {
        return errors::InvalidArgument(
            "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: ",
            Shape(values[0].shape().dims().subspan(1)).DebugString(), " but index ", i,
            " has (excepting dimension 0) shape: ", tail.DebugString());
      }
      if (__builtin_add_overflow(rows, shape.dim(0), &rows)) {
        return errors::InvalidArgument("the elements of the TensorArray have too many rows");
      }
    }
    Dims dims(values[0].shape().dims().begin(), values[0].shape().dims().end());
    dims[0] = rows;
    return MakeShape(dims);
  }

  const DataType dtype_;
  const PartialShape rest_;
};

class TensorArraySplitKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    const Tensor value = ctx.locked_input(1);
    if (ctx.input(2).rank() != 1) {
      return errors::InvalidArgument("Expected lengths to be a vector, received shape: ",
                                     ctx.input(2).shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Dims lengths, IntVector(ctx.input(2), "TensorArray lengths"));
    if (value.rank() < 1) {
      return errors::InvalidArgument("Expected value to be at least a vector, but received shape: ",
                                     value.shape().DebugString());
    }
    int64_t sum = 0;
    for (const int64_t n : lengths) {
      if (n < 0 || n > value.dim(0)) {
        return errors::InvalidArgument("Expected lengths within [0, ", value.dim(0), "], got ", n);
      }
      if (n > value.dim(0) - sum) {
        return errors::InvalidArgument(
            "Expected sum of lengths to be equal to values.shape[0], ",
            "but they exceed it; value's shape is: ", value.shape().DebugString());
      }
      sum += n;
    }
    if (sum != value.dim(0)) {
      return errors::InvalidArgument(
          "Expected sum of lengths to be equal to values.shape[0], but "
          "sum of lengths is ",
          sum, " and value's shape is: ", value.shape().DebugString());
    }
    MR_RETURN_IF_ERROR(array->CheckSplit(static_cast<int64_t>(lengths.size())));
    std::vector<Tensor> parts;
    int64_t at = 0;
    for (const int64_t n : lengths) {
      parts.push_back(value.Slice(at, at + n).Clone());
      at += n;
    }
    MR_RETURN_IF_ERROR(array->WriteMany(ctx.allocator(), nullptr, parts));
    ctx.SetOutput(0, ctx.input(3));
    return OkStatus();
  }
};

class TensorArraySizeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t size, array->Size());
    ctx.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(size)));
    return OkStatus();
  }
};

class TensorArrayCloseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array,
                        LookupHandle<TensorArrayResource>(ctx, 0));
    array->Close();
    return OkStatus();
  }
};

}  // namespace

void RegisterTensorArrayKernels(KernelRegistry& r) {
  RegisterCpu<TensorArrayKernel>(r, "TensorArrayV3");
  RegisterCpu<TensorArrayGradKernel>(r, "TensorArrayGradV3");
  RegisterCpu<TensorArrayWriteKernel>(r, "TensorArrayWriteV3");
  RegisterCpu<TensorArrayReadKernel>(r, "TensorArrayReadV3");
  RegisterCpu<TensorArrayGatherKernel>(r, "TensorArrayGatherV3");
  RegisterCpu<TensorArrayScatterKernel>(r, "TensorArrayScatterV3");
  RegisterCpu<TensorArrayConcatKernel>(r, "TensorArrayConcatV3");
  RegisterCpu<TensorArraySplitKernel>(r, "TensorArraySplitV3");
  RegisterCpu<TensorArraySizeKernel>(r, "TensorArraySizeV3");
  RegisterCpu<TensorArrayCloseKernel>(r, "TensorArrayCloseV3");
}

}  // namespace millrace
