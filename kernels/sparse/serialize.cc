// SPDX-License-Identifier: Apache-2.0
// Sparse tensors packed into one tensor of three columns, indices, values and shape, each as a
// serialized TensorProto or as a variant: one row for each sparse tensor.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/message_text.h"
#include "kernels/common/nesting.h"
#include "kernels/common/variant.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/sparse/sparse_input.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr int kParts = 3;

// A tensor as the content of a variant.
struct PackedTensor : public RefCounted, public HoldsObjects {
  explicit PackedTensor(Tensor t) : tensor(std::move(t)), within(NestingWithin(tensor)) {}
  int nesting() const override { return within + 1; }

  const Tensor tensor;
  const int within;
};

Status Pack(const Tensor& part, int64_t at, Tensor* packed) {
  if (packed->dtype() == kVariant) {
    MR_RETURN_IF_ERROR(CheckNesting(part));
    packed->data<Variant>()[at] = Variant(MakeRef<PackedTensor>(part));
    return OkStatus();
  }
  if (IsMemcpyable(part.dtype())) MR_RETURN_IF_ERROR(CheckMessageBytes(part.num_bytes()));
  pb::TensorProto proto;
  TensorToProto(part, &proto);
  MR_ASSIGN_OR_RETURN(packed->data<std::string>()[at], MessageText(proto));
  return OkStatus();
}

StatusOr<Tensor> Unpack(const Tensor& packed, int64_t at) {
  if (packed.dtype() == kVariant) {
    const auto* const held = dynamic_cast<const PackedTensor*>(packed.data<Variant>()[at].get());
    if (held != nullptr) return held->tensor;
    return errors::InvalidArgument("element ", at, " is no part of a packed sparse tensor");
  }
  pb::TensorProto proto;
  if (!proto.ParseFromString(packed.data<std::string>()[at])) {
    return errors::InvalidArgument("Could not parse serialized proto");
  }
  return TensorFromProto(proto);
}

Status CheckParts(const KernelContext& ctx) {
  const char* const names[kParts] = {"indices", "values", "shape"};
  for (int i = 0; i < kParts; ++i) {
    const int rank = i == 0 ? 2 : 1;
    if (ctx.input(i).rank() == rank) continue;
    return errors::InvalidArgument("Input ", names[i], " should be a ",
                                   rank == 2 ? "matrix" : "vector", " but received shape ",
                                   ctx.input(i).shape().DebugString());
  }
  return OkStatus();
}

class SerializeSparseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckParts(ctx));
    MR_ASSIGN_OR_RETURN(Tensor* const packed, ctx.AllocateOutput(0, Shape({kParts})));
    for (int i = 0; i < kParts; ++i) MR_RETURN_IF_ERROR(Pack(ctx.input(i), i, packed));
    return OkStatus();
  }
};

// One row for each index of the first axis, with the sparse tensor of the others.
class SerializeManySparseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckParts(ctx));
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparseWithin(ctx, 0, 1, 2));
    if (in.rank <= 1) {
      return errors::InvalidArgument("Rank of input SparseTensor should be > 1, but saw rank: ",
                                     in.rank);
    }
    MR_RETURN_IF_ERROR(CheckOrder(in));
    const Shape rows({in.shape[0], kParts});
    MR_ASSIGN_OR_RETURN(Tensor* const packed, ctx.AllocateOutput(0, rows));
    const Tensor shape = IndexTensor(kInt64, std::span(in.shape).subspan(1));
    int64_t begin = 0;
    for (int64_t row = 0; row < in.shape[0]; ++row) {
      int64_t end = begin;
      while (end < in.count && in.row(end)[0] == row) ++end;
      MR_RETURN_IF_ERROR(PackRow(ctx, in, begin, end, row, packed));
      MR_RETURN_IF_ERROR(Pack(shape, row * kParts + 2, packed));
      begin = end;
    }
    return OkStatus();
  }

 private:
  static Status CheckOrder(const SparseInput& in) {
    for (int64_t i = 1; i < in.count; ++i) {
      const int64_t *const before = in.row(i - 1), *const after = in.row(i);
      if (std::lexicographical_compare(before, before + in.rank, after, after + in.rank)) continue;
      const bool twice = std::equal(before, before + in.rank, after);
      return errors::InvalidArgument(
          "indices[", i, "] = [", StrJoin(std::vector<int64_t>(after, after + in.rank), ","),
          twice ? "] is repeated" : "] is out of order",
          ". Many sparse ops require sorted indices: use ", "SparseReorder before");
    }
    return OkStatus();
  }

  static Status PackRow(const KernelContext& ctx, const SparseInput& in, int64_t begin, int64_t end,
                        int64_t row, Tensor* packed) {
    const int64_t count = end - begin;
    MR_ASSIGN_OR_RETURN(Tensor indices,
                        Tensor::Allocate(ctx.allocator(), kInt64, Shape({count, in.rank - 1})));
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(in.row(begin + i) + 1, in.rank - 1, indices.data<int64_t>() + i * (in.rank - 1));
    }
    MR_ASSIGN_OR_RETURN(Tensor values,
                        Tensor::Allocate(ctx.allocator(), in.values.dtype(), Shape({count})));
    CopyRange(in.values, begin, &values, 0, count);
    MR_RETURN_IF_ERROR(Pack(indices, row * kParts, packed));
    return Pack(values, row * kParts + 1, packed);
  }
};

// A sparse tensor that was packed.
struct Unpacked {
  Tensor indices, values;
  Dims shape;
};

StatusOr<Unpacked> UnpackRow(const Tensor& packed, int64_t row, DataType dtype) {
  Unpacked one;
  MR_ASSIGN_OR_RETURN(one.indices, Unpack(packed, row * kParts));
  MR_ASSIGN_OR_RETURN(one.values, Unpack(packed, row * kParts + 1));
  MR_ASSIGN_OR_RETURN(const Tensor shape, Unpack(packed, row * kParts + 2));
  const auto of_row = [row](std::string_view what, const auto&... is) {
    return errors::InvalidArgument("SparseTensor[", row, "].", what, is...);
  };
  if (one.indices.dtype() != kInt64 || one.indices.rank() != 2) {
    return of_row("indices must be a matrix of int64, and are ", DataTypeName(one.indices.dtype()),
                  " of shape ", one.indices.shape().DebugString());
  }
  if (one.values.dtype() != dtype) {
    return errors::InvalidArgument("Requested SparseTensor of type ", DataTypeName(dtype),
                                   " but SparseTensor[", row,
                                   "].values.dtype() == ", DataTypeName(one.values.dtype()));
  }
  if (one.values.rank() != 1 || one.values.dim(0) != one.indices.dim(0)) {
    return of_row("values must be a vector with a value for each of the ", one.indices.dim(0),
                  " indices, and have shape ", one.values.shape().DebugString());
  }
  if (shape.dtype() != kInt64 || shape.rank() != 1 || shape.dim(0) != one.indices.dim(1)) {
    return of_row("shape must be a vector of ", one.indices.dim(1), " int64, and has shape ",
                  shape.shape().DebugString());
  }
  one.shape.assign(shape.data<int64_t>(), shape.data<int64_t>() + shape.dim(0));
  return one;
}

// DeserializeSparse and DeserializeManySparse: the axes before the last one are the first ones of
// the result, in which sparse tensors lie side by side, each with room for the largest.
class DeserializeSparseKernel : public Kernel {
 public:
  explicit DeserializeSparseKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("dtype")),
        many_(c.def().name() == "DeserializeManySparse") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& packed = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckShape(packed.shape()));
    std::vector<Unpacked> parts;
    int64_t count = 0;
    for (int64_t row = 0; row < packed.num_elements() / kParts; ++row) {
      MR_ASSIGN_OR_RETURN(parts.emplace_back(), UnpackRow(packed, row, dtype_));
      count += parts.back().values.dim(0);
      if (parts.back().shape.size() == parts[0].shape.size()) continue;
      return errors::InvalidArgument("Inconsistent shape across SparseTensors: rank prior to ",
                                     "SparseTensor[", row, "] was: ", parts[0].shape.size(),
                                     " but rank of SparseTensor[", row,
                                     "] is: ", parts.back().shape.size());
    }
    return Join(ctx, packed.shape(), parts, count);
  }

 private:
  Status CheckShape(const Shape& shape) const {
    if (shape.rank() < 1 || (many_ && shape.rank() != 2)) {
      return errors::InvalidArgument(
          many_ ? "Serialized sparse should be a matrix but received shape "
                : "Serialized sparse should have non-zero rank, and not shape ",
          shape.DebugString());
    }
    if (shape.dim(shape.rank() - 1) != kParts) {
      return errors::InvalidArgument("Serialized sparse should have ", kParts,
                                     " as the last dimension, and has shape ", shape.DebugString());
    }
    if (shape.num_elements() > 0) return OkStatus();
    return errors::InvalidArgument("Serialized sparse should have at least 1 serialized tensor, ",
                                   "but has a zero dimension ", shape.DebugString());
  }

  Status Join(KernelContext& ctx, const Shape& packed, const std::vector<Unpacked>& parts,
              int64_t count) const {
    const int outer = packed.rank() - 1;
    const auto inner = static_cast<int>(parts[0].shape.size());
    Dims dense;
    for (int i = 0; i < outer; ++i) dense.push_back(packed.dim(i));
    for (int i = 0; i < inner; ++i) {
      int64_t largest = 0;
      for (const Unpacked& part : parts) {
        largest = std::max(largest, part.shape[static_cast<std::size_t>(i)]);
      }
      dense.push_back(largest);
    }
    const int rank = outer + inner;
    MR_ASSIGN_OR_RETURN(Tensor* const indices, ctx.AllocateOutput(0, Shape({count, rank})));
    MR_ASSIGN_OR_RETURN(Tensor* const values, ctx.AllocateOutput(1, Shape({count})));
    int64_t at = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const Unpacked& part = parts[p];
      const int64_t rows = part.values.dim(0);
      for (int64_t i = 0; i < rows; ++i) {
        int64_t* const to = indices->data<int64_t>() + (at + i) * rank;
        auto flat = static_cast<int64_t>(p);
        for (int axis = outer - 1; axis >= 0; --axis) {
          to[axis] = flat % packed.dim(axis);
          flat /= packed.dim(axis);
        }
        std::copy_n(part.indices.data<int64_t>() + i * inner, inner, to + outer);
      }
      CopyRange(part.values, 0, values, at, rows);
      at += rows;
    }
    ctx.SetOutput(2, IndexTensor(kInt64, dense));
    return OkStatus();
  }

  const DataType dtype_;
  const bool many_;
};

}  // namespace

void RegisterPackedSparseKernels(KernelRegistry& r) {
  RegisterCpu<SerializeSparseKernel>(r, "SerializeSparse");
  RegisterCpu<SerializeManySparseKernel>(r, "SerializeManySparse");
  RegisterCpu<DeserializeSparseKernel>(r, "DeserializeSparse");
  RegisterCpu<DeserializeSparseKernel>(r, "DeserializeManySparse");
}

}  // namespace millrace
