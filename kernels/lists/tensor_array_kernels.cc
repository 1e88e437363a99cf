// SPDX-License-Identifier: Apache-2.0
// The ops on arrays of tensors: V3, whose handles are resources, and V2, whose are two strings.
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/host_kernels.h"
#include "kernels/lists/tensor_array.h"

namespace millrace {
namespace {

// A float scalar that orders the uses of an array.
Tensor Flow() {
  static const auto* const flow = new Tensor(Tensor::Scalar<float>(0));
  return *flow;
}

// The array that input 0 names. The ops V2 name it by two strings, which mean something within the
// step only.
StatusOr<RefPtr<TensorArrayResource>> FindArray(KernelContext& ctx) {
  const Tensor handle = ctx.locked_input(0);
  if (handle.dtype() != kString) return LookupHandle<TensorArrayResource>(ctx, 0);
  if (handle.num_elements() != 2) {
    return errors::InvalidArgument("TensorArray handle must be 2-element vector, but had shape: ",
                                   handle.shape().DebugString());
  }
  const auto text = handle.flat<std::string>();
  const std::string& container = ctx.env().step_container;
  StatusOr<RefPtr<TensorArrayResource>> found =
      ctx.resources()->Lookup<TensorArrayResource>(container, StrCat(text[0], text[1]));
  if (found.ok()) return found;
  return errors::NotFound("Container ", container,
                          " does not exist. (Could not find resource: ", container, "/", text[0],
                          text[1], "): the handle is of no TensorArray ", "that the step has made");
}

// A handle of the resource form, as the ops V2 give it.
Tensor TextHandle(const Tensor& handle) {
  return Tensor::FromValues<std::string>({"", handle.scalar<ResourceHandle>().name});
}

class TensorArrayKernel : public Kernel {
 public:
  explicit TensorArrayKernel(KernelConstruction& c)
      : Kernel(c), is_text_(BaseType(c.output_types()[0]) == kString) {
    options_.dtype = c.attr<DataType>("dtype");
    options_.element_shape = c.attr<PartialShape>("element_shape");
    options_.dynamic_size = c.attr<bool>("dynamic_size");
    options_.clear_after_read = c.attr<bool>("clear_after_read");
    options_.identical_element_shapes = c.attrs().GetOr<bool>("identical_element_shapes", false);
    options_.name = c.attr<std::string>("tensor_array_name");
    if (options_.name.empty()) options_.name = name();
  }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t size, IntScalar(ctx.input(0), "TensorArray size"));
    MR_RETURN_IF_ERROR(TensorArrayResource::CheckCount(size));
    // Errors name the array by a number too: a loop may make many of one name.
    static std::atomic<uint64_t> next{0};
    TensorArrayResource::Options options = options_;
    options.name = StrCat(options_.name, "_", next.fetch_add(1, std::memory_order_relaxed));
    MR_ASSIGN_OR_RETURN(Tensor handle,
                        AddStepResource(ctx, StrCat("_tensor_arrays/", options_.name),
                                        MakeRef<TensorArrayResource>(std::move(options), size)));
    ctx.SetOutput(0, is_text_ ? TextHandle(handle) : handle);
    if (!is_text_) ctx.SetOutput(1, Flow());
    return OkStatus();
  }

 private:
  const bool is_text_;
  TensorArrayResource::Options options_;
};

class TensorArrayGradKernel : public Kernel {
 public:
  explicit TensorArrayGradKernel(KernelConstruction& c)
      : Kernel(c), source_(c.attr<std::string>("source")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
    Dims outer;  // TensorArrayGradWithShape
    if (ctx.num_inputs() == 3) {
      MR_ASSIGN_OR_RETURN(outer, IntVector(ctx.input(2), "shape_to_prepend"));
      MR_RETURN_IF_ERROR(MakeShape({outer.data(), outer.size()}).status());
    }
    const bool is_text = ctx.input(0).dtype() == kString;
    const std::string name = StrCat(NameOf(ctx.locked_input(0)), "@", source_);
    MR_RETURN_IF_ERROR(
        ctx.resources()
            ->LookupOrCreate<TensorArrayResource>(
                ctx.env().step_container, name,
                [&] { return array->MakeGradient(name, {outer.data(), outer.size()}); })
            .status());
    const Tensor handle = StepHandle<TensorArrayResource>(ctx, name);
    ctx.SetOutput(0, is_text ? TextHandle(handle) : handle);
    if (!is_text) ctx.SetOutput(1, ctx.input(1));
    return OkStatus();
  }

 private:
  static std::string NameOf(const Tensor& handle) {
    if (handle.dtype() != kString) return handle.scalar<ResourceHandle>().name;
    const auto text = handle.flat<std::string>();
    return StrCat(text[0], text[1]);
  }

  const std::string source_;
};

class TensorArrayWriteKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
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
    MR_ASSIGN_OR_RETURN(const RefPtr<TensorArrayResource> array, FindArray(ctx));
    array->Close();
    return OkStatus();
  }
};

}  // namespace

void RegisterTensorArrayKernels(KernelRegistry& r) {
  for (const char* version : {"V2", "V3"}) {
    const auto add = [&](const char* op, KernelFactory factory) {
      r.Register(KernelDef(StrCat("TensorArray", op, version)), factory);
    };
    add("", MakeKernel<TensorArrayKernel>);
    add("Grad", MakeKernel<TensorArrayGradKernel>);
    add("Write", MakeKernel<TensorArrayWriteKernel>);
    add("Read", MakeKernel<TensorArrayReadKernel>);
    add("Gather", MakeKernel<TensorArrayGatherKernel>);
    add("Scatter", MakeKernel<TensorArrayScatterKernel>);
    add("Concat", MakeKernel<TensorArrayConcatKernel>);
    add("Split", MakeKernel<TensorArraySplitKernel>);
    add("Size", MakeKernel<TensorArraySizeKernel>);
    add("Close", MakeKernel<TensorArrayCloseKernel>);
  }
  RegisterCpu<TensorArrayGradKernel>(r, "TensorArrayGradWithShape");
}

}  // namespace millrace
