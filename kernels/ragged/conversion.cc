// SPDX-License-Identifier: Apache-2.0
// Rows of different lengths as a sparse tensor, and what occurs in each how often.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/ragged/ragged_kernels.h"
#include "kernels/ragged/splits.h"

namespace millrace {
namespace {

class RaggedToSparseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const int depth = ctx.num_inputs() - 1;
    const Tensor& values = ctx.input(depth);
    if (depth < 1) return errors::InvalidArgument("rt_nested_splits must be non empty");
    if (values.rank() == 0) {
      return errors::InvalidArgument("rt_dense_values must have at least one dimension");
    }
    std::vector<Splits> splits;
    for (int i = 0; i < depth; ++i) {
      splits.push_back(ReadSplits(ctx.input(i)));
      MR_RETURN_IF_ERROR(Check(splits, i));
    }
    if (splits.back().back() != values.dim(0)) return WrongEnd();
    const int64_t count = values.num_elements(), rank = depth + values.rank();
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(Dims{count, rank}));
    MR_ASSIGN_OR_RETURN(Tensor* const indices, ctx.AllocateOutput(0, shape));
    if (count > 0) WriteIndices(splits, values.shape(), indices->data<int64_t>());
    MR_ASSIGN_OR_RETURN(Tensor flat, ctx.locked_input(depth).Reshaped(Shape({count})));
    ctx.SetOutput(1, std::move(flat));
    MR_ASSIGN_OR_RETURN(Tensor* const dense, ctx.AllocateOutput(2, Shape({rank})));
    int64_t* size = dense->data<int64_t>();
    *size++ = static_cast<int64_t>(splits[0].size()) - 1;
    for (const Splits& level : splits) {
      int64_t width = 0;
      for (std::size_t i = 1; i < level.size(); ++i) {
        width = std::max(width, level[i] - level[i - 1]);
      }
      *size++ = width;
    }
    for (int i = 1; i < values.rank(); ++i) *size++ = values.dim(i);
    return OkStatus();
  }

 private:
  static Status WrongEnd() {
    return errors::InvalidArgument(
        "Final value of ragged splits must match the length the corresponding ragged values.");
  }

  static Status Check(const std::vector<Splits>& splits, int i) {
    const Splits& level = splits[static_cast<std::size_t>(i)];
    if (level.empty()) return errors::InvalidArgument("ragged splits may not be empty.");
    if (level[0] != 0) return errors::InvalidArgument("First value of ragged splits must be 0.");
    for (std::size_t k = 1; k < level.size(); ++k) {
      if (level[k] >= level[k - 1]) continue;
      return errors::InvalidArgument("Ragged splits should be non decreasing, but we got ",
                                     level[k - 1], " followed by ", level[k]);
    }
    if (i == 0) return OkStatus();
    const int64_t rows = splits[static_cast<std::size_t>(i) - 1].back();
    return static_cast<int64_t>(level.size()) - 1 == rows ? OkStatus() : WrongEnd();
  }

  // For each value: where it is within its row, that row within its own, and so on.
  static void WriteIndices(const std::vector<Splits>& splits, const Shape& values, int64_t* to) {
    const std::size_t depth = splits.size();
    const int64_t inner = values.num_elements() / values.dim(0);
    std::vector<std::size_t> row(depth, 0);  // that holds the value, at each level
    for (int64_t v = 0; v < values.dim(0); ++v) {
      int64_t child = v;
      for (std::size_t level = depth; level-- > 0;) {
        while (splits[level][row[level] + 1] <= child) ++row[level];
        child = static_cast<int64_t>(row[level]);
      }
      for (int64_t k = 0; k < inner; ++k) {
        *to++ = child;
        for (std::size_t level = 0; level < depth; ++level) {
          const int64_t of = level + 1 < depth ? static_cast<int64_t>(row[level + 1]) : v;
          *to++ = of - splits[level][row[level]];
        }
        int64_t rest = k, stride = inner;
        for (int axis = 1; axis < values.rank(); ++axis) {
          stride /= values.dim(axis);
          *to++ = rest / stride;
          rest %= stride;
        }
      }
    }
  }
};

template <typename T, typename I>
class RaggedBincountKernel : public Kernel {
 public:
  explicit RaggedBincountKernel(KernelConstruction& c)
      : Kernel(c), binary_(c.attrs().GetOr<bool>("binary_output", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &values = ctx.input(1), &weights = ctx.input(3);
    if (ctx.input(2).rank() != 0) {
      return errors::InvalidArgument("Shape must be rank 0 but is rank ", ctx.input(2).rank());
    }
    const auto bins = static_cast<int64_t>(ctx.input(2).scalar<I>());
    if (bins < 0) {
      return errors::InvalidArgument("size (", bins, ") must be non-negative");
    }
    const Splits splits = ReadSplits(ctx.input(0));
    const int64_t count = values.num_elements();
    if (splits.empty()) return errors::InvalidArgument("Splits must be non-empty");
    if (splits.front() != 0) {
      return errors::InvalidArgument("Splits must start with 0, not with ", splits.front());
    }
    if (splits.back() != count) {
      return errors::InvalidArgument("Splits must end with the number of values, got ",
                                     splits.back(), " instead of ", count);
    }
    if (weights.num_elements() != 0 && weights.num_elements() != count) {
      return errors::InvalidArgument("there must be no weights, or as many as values: ", count,
                                     ", not ", weights.num_elements());
    }
    const auto rows = static_cast<int64_t>(splits.size()) - 1;
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(Dims{rows, bins}));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    T* const to = out->data<T>();
    std::fill_n(to, out->num_elements(), T(0));
    const I* const in = values.data<I>();
    const T* const weight = weights.num_elements() == 0 ? nullptr : weights.data<T>();
    std::size_t row = 0;
    for (int64_t i = 0; i < count; ++i) {
      while (i >= splits[row]) ++row;
      const auto bin = static_cast<int64_t>(in[i]);
      if (bin < 0) return errors::InvalidArgument("Input must be non-negative");
      if (bin >= bins) continue;
      T& at = to[static_cast<int64_t>(row - 1) * bins + bin];
      at = binary_ ? T(1) : static_cast<T>(at + (weight == nullptr ? T(1) : weight[i]));
    }
    return OkStatus();
  }

 private:
  const bool binary_;
};

template <typename... Ts>
void RegisterBincount(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("RaggedBincount").Type<Ts>("T").template Type<int32_t>("Tidx"),
              &MakeKernel<RaggedBincountKernel<Ts, int32_t>>),
   ...);
  (r.Register(KernelDef("RaggedBincount").Type<Ts>("T").template Type<int64_t>("Tidx"),
              &MakeKernel<RaggedBincountKernel<Ts, int64_t>>),
   ...);
}

}  // namespace

void RegisterRaggedConversionKernels(KernelRegistry& r) {
  RegisterCpu<RaggedToSparseKernel>(r, "RaggedTensorToSparse");
  RegisterBincount(r, TypeList<int32_t, int64_t, float, double>());
}

}  // namespace millrace
