// SPDX-License-Identifier: Apache-2.0
// Rows of rows, by their indices.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/ragged/ragged_kernels.h"
#include "kernels/ragged/splits.h"

namespace millrace {
namespace {

// Sizes of outputs grow with indices and with rows, and may go beyond what any memory holds.
Status AddTo(int64_t* total, int64_t more) {
  if (!__builtin_add_overflow(*total, more, total)) return OkStatus();
  return errors::InvalidArgument("RaggedGather would give more than 2^63 values");
}

class RaggedGatherKernel : public Kernel {
 public:
  explicit RaggedGatherKernel(KernelConstruction& c)
      : Kernel(c), split_type_(c.attr<DataType>("Tsplits")) {}

  Status Compute(KernelContext& ctx) override {
    const int depth = ctx.num_inputs() - 2;
    const Tensor &values = ctx.input(depth), &indices = ctx.input(depth + 1);
    if (depth < 1) return errors::InvalidArgument("params_nested_splits must be non empty");
    if (ctx.input(0).rank() == 0) {
      return errors::InvalidArgument("Split tensors must not be scalars");
    }
    MR_ASSIGN_OR_RETURN(const Splits rows, ReadIndices(indices, ctx.input(0).dim(0) - 1));
    if (values.rank() == 0) return errors::InvalidArgument("params.rank must be nonzero");
    if (ctx.num_outputs() != indices.rank() + depth) {
      return errors::InvalidArgument("OUTPUT_RAGGED_RANK must be ", indices.rank() + depth - 1,
                                     ", not ", ctx.num_outputs() - 1);
    }
    std::vector<Splits> splits;
    for (int i = 0; i < depth; ++i) {
      splits.push_back(ReadSplits(ctx.input(i)));
      const int64_t end = i + 1 < depth ? ctx.input(i + 1).num_elements() - 1 : values.dim(0);
      MR_RETURN_IF_ERROR(CheckSplits(splits.back(), end));
    }
    MR_RETURN_IF_ERROR(WriteIndexSplits(ctx, indices.shape()));
    for (int i = 0; i < depth; ++i) {
      MR_RETURN_IF_ERROR(WriteSplits(ctx, indices.rank() - 1 + i, splits, i, rows));
    }
    return WriteValues(ctx, values, splits, rows);
  }

 private:
  // The rows that an index stands for at some level.
  static std::pair<int64_t, int64_t> RangeAt(const std::vector<Splits>& splits, int level,
                                             int64_t row) {
    int64_t begin = row, end = row + 1;
    for (int i = 0; i < level; ++i) {
      begin = splits[static_cast<std::size_t>(i)][static_cast<std::size_t>(begin)];
      end = splits[static_cast<std::size_t>(i)][static_cast<std::size_t>(end)];
    }
    return {begin, end};
  }

  static StatusOr<Splits> ReadIndices(const Tensor& indices, int64_t rows) {
    Splits read = ReadSplits(indices);
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i] >= 0 && read[i] < rows) continue;
      std::string where;
      int64_t rest = static_cast<int64_t>(i), stride = indices.num_elements();
      for (int axis = 0; axis < indices.rank(); ++axis) {
        stride /= indices.dim(axis);
        where += StrCat(axis == 0 ? "[" : ",", rest / stride);
        rest %= stride;
      }
      if (!where.empty()) where += "]";
      return errors::InvalidArgument("indices", where, " = ", read[i], " is not in [0, ", rows,
                                     ")");
    }
    return read;
  }

  static Status CheckSplits(const Splits& splits, int64_t end) {
    if (splits.empty()) return errors::InvalidArgument("Ragged splits may not be empty");
    if (splits.front() < 0) return errors::InvalidArgument("Ragged splits must be non-negative");
    if (splits.back() > end) {
      return errors::InvalidArgument("Ragged splits must not point past values");
    }
    if (std::is_sorted(splits.begin(), splits.end())) return OkStatus();
    return errors::InvalidArgument("Ragged splits must be sorted");
  }

  // All axes of the indices but the last are rows of equal lengths.
  Status WriteIndexSplits(KernelContext& ctx, const Shape& indices) const {
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < indices.rank(); ++axis) {
      const int64_t length = indices.dim(axis + 1);
      int64_t last;
      if (__builtin_mul_overflow(rows, indices.dim(axis), &rows) ||
          __builtin_mul_overflow(rows, length, &last)) {
        return errors::InvalidArgument("indices have too many rows: ", indices.DebugString());
      }
      MR_RETURN_IF_ERROR(CheckFits(split_type_, std::span<const int64_t>(&last, 1)));
      int64_t count = rows;
      MR_RETURN_IF_ERROR(AddTo(&count, 1));
      MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(axis, Shape({count})));
      DispatchType(IndexTypes(), split_type_, [&]<typename T>() {
        for (int64_t i = 0; i <= rows; ++i) out->data<T>()[i] = static_cast<T>(i * length);
      });
    }
    return OkStatus();
  }

  Status WriteSplits(KernelContext& ctx, int output, const std::vector<Splits>& splits, int level,
                     const Splits& rows) const {
    if (output < 0) return OkStatus();
    const Splits& from = splits[static_cast<std::size_t>(level)];
    int64_t count = 1, last = 0;
    for (const int64_t row : rows) {
      const auto [begin, end] = RangeAt(splits, level, row);
      MR_RETURN_IF_ERROR(AddTo(&count, end - begin));
      MR_RETURN_IF_ERROR(AddTo(
          &last, from[static_cast<std::size_t>(end)] - from[static_cast<std::size_t>(begin)]));
    }
    MR_RETURN_IF_ERROR(CheckFits(split_type_, std::span<const int64_t>(&last, 1)));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(output, Shape({count})));
    DispatchType(IndexTypes(), split_type_, [&]<typename T>() {
      T* to = out->data<T>();
      int64_t at = 0;
      *to++ = 0;
      for (const int64_t row : rows) {
        const auto [begin, end] = RangeAt(splits, level, row);
        for (int64_t i = begin; i < end; ++i) {
          at += from[static_cast<std::size_t>(i + 1)] - from[static_cast<std::size_t>(i)];
          *to++ = static_cast<T>(at);
        }
      }
    });
    return OkStatus();
  }

  static Status WriteValues(KernelContext& ctx, const Tensor& values,
                            const std::vector<Splits>& splits, const Splits& rows) {
    const int depth = static_cast<int>(splits.size());
    int64_t count = 0;
    for (const int64_t row : rows) {
      const auto [begin, end] = RangeAt(splits, depth, row);
      MR_RETURN_IF_ERROR(AddTo(&count, end - begin));
    }
    Dims dims(values.shape().dims().begin(), values.shape().dims().end());
    dims[0] = count;
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(ctx.num_outputs() - 1, shape));
    if (out->num_elements() == 0) return OkStatus();
    const int64_t width = values.num_elements() / values.dim(0);
    int64_t at = 0;
    for (const int64_t row : rows) {
      const auto [begin, end] = RangeAt(splits, depth, row);
      if (begin == end) continue;
      CopyRange(values, begin * width, out, at * width, (end - begin) * width);
      at += end - begin;
    }
    return OkStatus();
  }

  const DataType split_type_;
};

}  // namespace

void RegisterRaggedGatherKernels(KernelRegistry& r) {
  r.Register(KernelDef("RaggedGather").Types("Tvalues", RaggedValueTypes()),
             &MakeKernel<RaggedGatherKernel>);
}

}  // namespace millrace
