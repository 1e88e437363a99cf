// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sparse tensors. Indices are in lexicographic order, as every producer of sparse
// tensors gives them; where the order matters and is broken, the result is not specified, as in
// TensorFlow, but nothing outside of the tensors is touched.
#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/sparse/sparse_input.h"

namespace millrace {
namespace {

std::string Text(const Dims& dims) { return StrCat("[", StrJoin(dims, ","), "]"); }

std::strong_ordering CompareRows(const int64_t* a, const int64_t* b, int rank) {
  return std::lexicographical_compare_three_way(a, a + rank, b, b + rank);
}

Status CheckSameShape(const SparseInput& a, const SparseInput& b) {
  if (a.shape == b.shape) return OkStatus();
  return errors::InvalidArgument("operands' shapes do not match: ", Text(a.shape), " and ",
                                 Text(b.shape));
}

// Calls f(row of a or -1, row of b or -1) for every index that either has, in order.
template <typename F>
void ForEachOfEither(const SparseInput& a, const SparseInput& b, F&& f) {
  int64_t i = 0, j = 0;
  while (i < a.count || j < b.count) {
    auto order = std::strong_ordering::equal;
    if (j == b.count) {
      order = std::strong_ordering::less;
    } else if (i == a.count) {
      order = std::strong_ordering::greater;
    } else {
      order = CompareRows(a.row(i), b.row(j), a.rank);
    }
    f(order <= 0 ? i : -1, order >= 0 ? j : -1);
    i += order <= 0;
    j += order >= 0;
  }
}

// Rows that were kept, as outputs 0 and 1.
template <typename T>
Status SetRows(KernelContext& ctx, const std::vector<const int64_t*>& rows, int rank,
               const std::vector<T>& values) {
  const auto count = static_cast<int64_t>(rows.size());
  MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({count, rank})));
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(1, Shape({count})));
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(rows[i], rank, indices->data<int64_t>() + i * rank);
    out->data<T>()[i] = values[i];
  }
  return OkStatus();
}

// a + b, without sums of two values that are smaller than the threshold.
class SparseAddKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput a, ReadSparseWithin(ctx, 0, 1, 2));
    MR_ASSIGN_OR_RETURN(const SparseInput b, ReadSparseWithin(ctx, 3, 4, 5));
    MR_RETURN_IF_ERROR(CheckSameShape(a, b));
    const Tensor& threshold = ctx.input(6);
    if (threshold.rank() != 0) {
      return errors::InvalidArgument("The magnitude threshold must be a scalar: got shape ",
                                     threshold.shape().DebugString());
    }
    double least = 0;
    DispatchType(RealTypes(), threshold.dtype(), [&]<typename R>() {
      least = static_cast<double>(static_cast<ComputeType<R>>(threshold.scalar<R>()));
    });
    Status status;
    DispatchType(NumberTypes(), a.values.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      std::vector<const int64_t*> rows;
      std::vector<T> sums;
      ForEachOfEither(a, b, [&](int64_t i, int64_t j) {
        C sum(0);
        if (i >= 0) sum = static_cast<C>(a.values.data<T>()[i]);
        if (j >= 0) sum = static_cast<C>(sum + static_cast<C>(b.values.data<T>()[j]));
        if (i >= 0 && j >= 0 && !(Magnitude(sum) >= least)) return;
        rows.push_back(i >= 0 ? a.row(i) : b.row(j));
        sums.push_back(static_cast<T>(sum));
      });
      status = SetRows(ctx, rows, a.rank, sums);
    });
    MR_RETURN_IF_ERROR(status);
    ctx.SetOutput(2, ctx.input(2));
    return OkStatus();
  }

 private:
  template <typename C>
  static double Magnitude(C x) {
    if constexpr (std::is_unsigned_v<C>) {
      return static_cast<double>(x);
    } else {
      return static_cast<double>(std::abs(x));
    }
  }
};

// The gradient of every summand is that of its sum, if the sum was kept.
class SparseAddGradKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &sums = ctx.input(3);
    if (sums.rank() != 2 || grads.rank() != 1 || grads.dim(0) != sums.dim(0)) {
      return errors::InvalidArgument(
          "# elements in backprop_val_grad and # rows in sum_indices do "
          "not match: ",
          grads.shape().DebugString(), " and ", sums.shape().DebugString());
    }
    if (sums.dim(1) > INT32_MAX) {
      return errors::InvalidArgument("sum_indices have too many columns: ",
                                     sums.shape().DebugString());
    }
    const int rank = static_cast<int>(sums.dim(1));
    for (int side = 0; side < 2; ++side) {
      const Tensor& indices = ctx.input(1 + side);
      if (indices.rank() != 2 || indices.dim(1) != rank) {
        return errors::InvalidArgument("indices of shape ", indices.shape().DebugString(),
                                       " do not have the columns of the sum's, ", rank);
      }
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(side, Shape({indices.dim(0)})));
      ClearRange(out, 0, indices.dim(0));
      int64_t at = 0;
      for (int64_t i = 0; i < indices.dim(0); ++i) {
        const int64_t* row = indices.data<int64_t>() + i * rank;
        while (at < sums.dim(0) && CompareRows(sums.data<int64_t>() + at * rank, row, rank) < 0) {
          ++at;
        }
        if (at < sums.dim(0) && CompareRows(sums.data<int64_t>() + at * rank, row, rank) == 0) {
          CopyRange(grads, at, out, i, 1);
        }
      }
    }
    return OkStatus();
  }
};

// The larger or smaller of two sparse tensors, in which what is missing is zero.
template <bool kMaximum>
class SparseExtremeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput a, ReadSparseWithin(ctx, 0, 1, 2));
    MR_ASSIGN_OR_RETURN(const SparseInput b, ReadSparseWithin(ctx, 3, 4, 5));
    MR_RETURN_IF_ERROR(CheckSameShape(a, b));
    Status status;
    DispatchType(RealTypes(), a.values.dtype(), [&]<typename T>() {
      std::vector<const int64_t*> rows;
      std::vector<T> values;
      ForEachOfEither(a, b, [&](int64_t i, int64_t j) {
        const T x = i >= 0 ? a.values.data<T>()[i] : T(0);
        const T y = j >= 0 ? b.values.data<T>()[j] : T(0);
        rows.push_back(i >= 0 ? a.row(i) : b.row(j));
        values.push_back((kMaximum ? x < y : y < x) ? y : x);
      });
      status = SetRows(ctx, rows, a.rank, values);
    });
    return status;
  }
};

// Rows in a new order and place: outputs of an op that moves sparse tensors.
Status GiveMoved(KernelContext& ctx, int indices_at, int values_at, int shape_at,
                 const std::vector<int64_t>& indices, const std::vector<int64_t>& from,
                 const std::vector<const Tensor*>& values, const Dims& shape) {
  const auto count = static_cast<int64_t>(from.size());
  const auto rank = static_cast<int64_t>(shape.size());
  MR_ASSIGN_OR_RETURN(Tensor * rows, ctx.AllocateOutput(indices_at, Shape({count, rank})));
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(values_at, Shape({count})));
  std::copy(indices.begin(), indices.end(), rows->data<int64_t>());
  for (int64_t i = 0; i < count; ++i) CopyRange(*values[i], from[i], out, i, 1);
  ctx.SetOutput(shape_at, IndexTensor(kInt64, shape));
  return OkStatus();
}

class SparseConcatKernel : public Kernel {
 public:
  explicit SparseConcatKernel(KernelConstruction& c)
      : Kernel(c),
        axis_(c.attr<int64_t>("concat_dim")),
        n_(static_cast<int>(c.attr<int64_t>("N"))) {}
  Status Compute(KernelContext& ctx) override {
    std::vector<SparseInput> parts;
    for (int i = 0; i < n_; ++i) {
      MR_ASSIGN_OR_RETURN(SparseInput part, ReadSparseWithin(ctx, i, n_ + i, 2 * n_ + i));
      parts.push_back(std::move(part));
    }
    const int rank = parts[0].rank;
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_, rank, "Concat dimension"));
    Dims shape = parts[0].shape;
    struct Row {
      std::vector<int64_t> index;
      int part;
      int64_t at;
    };
    std::vector<Row> rows;
    int64_t offset = 0;
    for (int p = 0; p < n_; ++p) {
      const SparseInput& part = parts[p];
      for (int k = 0; k < rank; ++k) {
        if (part.rank != rank || (k != axis && part.shape[k] != shape[k])) {
          return errors::InvalidArgument(
              "Input shapes must match: expected ", shape[k], " for dimension ", k, " but got ",
              part.rank == rank ? part.shape[k] : -1, " at position ", p);
        }
      }
      for (int64_t i = 0; i < part.count; ++i) {
        rows.push_back({{part.row(i), part.row(i) + rank}, p, i});
        rows.back().index[axis] += offset;
      }
      if (__builtin_add_overflow(offset, part.shape[axis], &offset)) {
        return errors::InvalidArgument("the concatenated dimension is too large");
      }
    }
    shape[axis] = offset;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.index < b.index; });
    std::vector<int64_t> indices, from;
    std::vector<const Tensor*> values;
    for (const Row& row : rows) {
      indices.insert(indices.end(), row.index.begin(), row.index.end());
      from.push_back(row.at);
      values.push_back(&parts[row.part].values);
    }
    return GiveMoved(ctx, 0, 1, 2, indices, from, values, shape);
  }

 private:
  const int64_t axis_;
  const int n_;
};

// The rows within [start, start + size), counted from start, as outputs of one part.
Status GivePart(KernelContext& ctx, const SparseInput& in, const Dims& start, const Dims& size,
                int indices_at, int values_at, int shape_at) {
  std::vector<int64_t> indices, from;
  for (int64_t i = 0; i < in.count; ++i) {
    bool inside = true;
    for (int k = 0; inside && k < in.rank; ++k) {
      const int64_t at = in.row(i)[k];
      inside = at >= start[k] && at - start[k] < size[k];
    }
    if (!inside) continue;
    for (int k = 0; k < in.rank; ++k) indices.push_back(in.row(i)[k] - start[k]);
    from.push_back(i);
  }
  const std::vector<const Tensor*> values(from.size(), &in.values);
  return GiveMoved(ctx, indices_at, values_at, shape_at, indices, from, values, size);
}

class SparseSliceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparseWithin(ctx, 0, 1, 2));
    MR_ASSIGN_OR_RETURN(const Dims start, IntVector(ctx.input(3), "start", true));
    MR_ASSIGN_OR_RETURN(Dims size, IntVector(ctx.input(4), "size", true));
    if (static_cast<int>(start.size()) != in.rank || static_cast<int>(size.size()) != in.rank) {
      return errors::InvalidArgument("Expected start and size to be vectors of length ", in.rank,
                                     ", got ", start.size(), " and ", size.size());
    }
    for (int k = 0; k < in.rank; ++k) {
      if (start[k] < 0 || size[k] < 0) {
        return errors::InvalidArgument("start and size must not be negative, got ", start[k],
                                       " and ", size[k], " in dimension ", k);
      }
      size[k] = std::clamp<int64_t>(in.shape[k] - start[k], 0, size[k]);
    }
    return GivePart(ctx, in, start, size, 0, 1, 2);
  }
};

// The first parts are one larger where the dimension does not divide.
class SparseSplitKernel : public Kernel {
 public:
  explicit SparseSplitKernel(KernelConstruction& c)
      : Kernel(c), parts_(static_cast<int>(c.attr<int64_t>("num_split"))) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparseWithin(ctx, 1, 2, 3));
    MR_ASSIGN_OR_RETURN(const int64_t given, IntScalar(ctx.input(0), "axis"));
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank, "Input axis"));
    if (parts_ < 1 || parts_ > in.shape[axis]) {
      return errors::InvalidArgument("Input num_split should be between 1 and the splitting ",
                                     "dimension size (", in.shape[axis], "), got ", parts_);
    }
    Dims start(in.shape.size(), 0), size = in.shape;
    const int64_t least = in.shape[axis] / parts_, larger = in.shape[axis] % parts_;
    for (int i = 0; i < parts_; ++i) {
      size[axis] = least + (i < larger ? 1 : 0);
      MR_RETURN_IF_ERROR(GivePart(ctx, in, start, size, i, parts_ + i, 2 * parts_ + i));
      start[axis] += size[axis];
    }
    return OkStatus();
  }

 private:
  const int parts_;
};

// Over the last dimension, of what is there.
class SparseSoftmaxKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparseWithin(ctx, 0, 1, 2));
    if (in.rank < 2) {
      return errors::InvalidArgument("Input should have rank >= 2, but received shape of ", in.rank,
                                     " dimensions");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.values.shape()));
    DispatchType(TypeList<Half, float, double>(), in.values.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      const T* values = in.values.data<T>();
      for (int64_t begin = 0, end; begin < in.count; begin = end) {
        C largest = static_cast<C>(values[begin]), sum = 0;
        for (end = begin + 1;
             end < in.count && std::equal(in.row(begin), in.row(begin) + in.rank - 1, in.row(end));
             ++end) {
          largest = std::max(largest, static_cast<C>(values[end]));
        }
        for (int64_t i = begin; i < end; ++i) sum += std::exp(static_cast<C>(values[i]) - largest);
        for (int64_t i = begin; i < end; ++i) {
          out->data<T>()[i] = static_cast<T>(std::exp(static_cast<C>(values[i]) - largest) / sum);
        }
      }
    });
    return OkStatus();
  }
};

// SparseReduceSum and SparseReduceMax, to a dense tensor.
template <bool kMaximum>
class SparseReduceKernel : public Kernel {
 public:
  explicit SparseReduceKernel(KernelConstruction& c)
      : Kernel(c), keeps_(c.attr<bool>("keep_dims")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparseWithin(ctx, 0, 1, 2));
    // As TensorFlow: what is left of a tensor that cannot be may still take all memory.
    MR_RETURN_IF_ERROR(MakeShape(in.shape).status());
    MR_ASSIGN_OR_RETURN(const Dims axes, IntVector(ctx.input(3), "reduction_axes"));
    std::vector<bool> goes(static_cast<std::size_t>(in.rank), false);
    for (const int64_t given : axes) {
      MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank, "reduction dimension"));
      goes[axis] = true;
    }
    Dims dims;
    std::vector<int64_t> strides(goes.size(), 0);
    int64_t size = 1;
    for (int k = in.rank; k-- > 0;) {
      if (goes[k]) continue;
      strides[k] = size;
      if (__builtin_mul_overflow(size, in.shape[k], &size)) {
        return errors::InvalidArgument("the reduced shape has too many elements");
      }
    }
    for (int k = 0; k < in.rank; ++k) {
      if (!goes[k]) dims.push_back(in.shape[k]);
      if (goes[k] && keeps_) dims.push_back(1);
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    using Types = std::conditional_t<kMaximum, RealTypes, NumberTypes>;
    DispatchType(Types(), in.values.dtype(), [&]<typename T>() {
      std::fill_n(out->data<T>(), shape.num_elements(), T(0));
      std::vector<bool> seen(static_cast<std::size_t>(shape.num_elements()), false);  // as `out`
      for (int64_t i = 0; i < in.count; ++i) {
        int64_t at = 0;
        for (int k = 0; k < in.rank; ++k) at += in.row(i)[k] * strides[k];
        Join(in.values.data<T>()[i], seen[at], out->data<T>() + at);
        seen[at] = true;
      }
    });
    return OkStatus();
  }

 private:
  template <typename T>
  static void Join(T value, bool seen, T* to) {
    using C = ComputeType<T>;
    if constexpr (kMaximum) {
      if (!seen || static_cast<C>(*to) < static_cast<C>(value)) *to = value;
    } else {
      *to = static_cast<T>(static_cast<C>(*to) + static_cast<C>(value));
    }
  }

  const bool keeps_;
};

// A sparse tensor with a dense one that is broadcast to it, where there are values.
template <char kOp>
class SparseDenseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparseWithin(ctx, 0, 1, 2));
    const Tensor& dense = ctx.input(3);
    const int missing = in.rank - dense.rank();
    std::vector<int64_t> strides(static_cast<std::size_t>(in.rank), 0);
    int64_t stride = 1;
    for (int k = dense.rank(); k-- > 0;) {
      if (missing < 0 || (dense.dim(k) != 1 && dense.dim(k) != in.shape[missing + k])) {
        return errors::InvalidArgument("SparseDenseBinaryOpShared broadcasts dense to sparse ",
                                       "only; got incompatible shapes: ", Text(in.shape), " vs. ",
                                       dense.shape().DebugString());
      }
      if (dense.dim(k) != 1) strides[missing + k] = stride;
      stride *= dense.dim(k);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.values.shape()));
    Status status;
    DispatchType(NumberTypes(), in.values.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      for (int64_t i = 0; i < in.count; ++i) {
        int64_t at = 0;
        for (int k = 0; k < in.rank; ++k) at += in.row(i)[k] * strides[k];
        const C a = static_cast<C>(in.values.data<T>()[i]), b = static_cast<C>(dense.data<T>()[at]);
        if constexpr (kOp == '/' && std::is_integral_v<C>) {
          if (b == C(0)) {
            status = errors::InvalidArgument("Integer division by zero");
            return;
          }
          if constexpr (std::is_signed_v<C>) {
            if (b == C(-1)) {  // the lowest number by -1 would trap
              out->data<T>()[i] = static_cast<T>(C(0) - a);
              continue;
            }
          }
        }
        out->data<T>()[i] = static_cast<T>(kOp == '*' ? a * b : kOp == '/' ? a / b : a + b);
      }
    });
    return status;
  }
};

class SparseTensorDenseAddKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput a, ReadSparseWithin(ctx, 0, 1, 2));
    const Tensor& b = ctx.input(3);
    if (!std::ranges::equal(a.shape, b.shape().dims())) {
      return errors::InvalidArgument("Dimensions of a and b must match: ", Text(a.shape), " vs ",
                                     b.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, b.shape()));
    CopyRange(b, 0, out, 0, b.num_elements());
    DispatchType(NumberTypes(), b.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      for (int64_t i = 0; i < a.count; ++i) {
        int64_t at = 0;
        for (int k = 0; k < a.rank; ++k) at = at * a.shape[k] + a.row(i)[k];
        T* to = out->data<T>() + at;
        *to = static_cast<T>(static_cast<C>(*to) + static_cast<C>(a.values.data<T>()[i]));
      }
    });
    return OkStatus();
  }
};

template <typename K, typename Types>
void RegisterNumbers(KernelRegistry& r, const char* op, Types types) {
  r.Register(KernelDef(op).Types("T", DataTypesOf(types)), MakeKernel<K>);
}

}  // namespace

void RegisterSparseMathKernels(KernelRegistry& r) {
  RegisterNumbers<SparseAddKernel>(r, "SparseAdd", NumberTypes());
  RegisterNumbers<SparseAddGradKernel>(r, "SparseAddGrad", NumberTypes());
  RegisterNumbers<SparseExtremeKernel<true>>(r, "SparseSparseMaximum", RealTypes());
  RegisterNumbers<SparseExtremeKernel<false>>(r, "SparseSparseMinimum", RealTypes());
  RegisterCpu<SparseConcatKernel>(r, "SparseConcat");
  RegisterCpu<SparseSliceKernel>(r, "SparseSlice");
  RegisterCpu<SparseSplitKernel>(r, "SparseSplit");
  RegisterNumbers<SparseSoftmaxKernel>(r, "SparseSoftmax", TypeList<Half, float, double>());
  RegisterNumbers<SparseReduceKernel<false>>(r, "SparseReduceSum", NumberTypes());
  RegisterNumbers<SparseReduceKernel<true>>(r, "SparseReduceMax", RealTypes());
  RegisterNumbers<SparseDenseKernel<'*'>>(r, "SparseDenseCwiseMul", NumberTypes());
  RegisterNumbers<SparseDenseKernel<'/'>>(r, "SparseDenseCwiseDiv", NumberTypes());
  RegisterNumbers<SparseDenseKernel<'+'>>(r, "SparseDenseCwiseAdd", NumberTypes());
  RegisterNumbers<SparseTensorDenseAddKernel>(r, "SparseTensorDenseAdd", NumberTypes());
}

}  // namespace millrace
