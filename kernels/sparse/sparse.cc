// SPDX-License-Identifier: Apache-2.0
// Sparse tensors as three tensors: rows of indices, values, and the dense shape.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/sparse/sparse_input.h"

namespace millrace {
namespace {

// In the order of the indices; equal ones stay as they were.
class SparseReorderKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparse(ctx, 0, 1, 2));
    std::vector<int64_t> order(static_cast<std::size_t>(in.count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&in](int64_t a, int64_t b) {
      return std::lexicographical_compare(in.row(a), in.row(a) + in.rank, in.row(b),
                                          in.row(b) + in.rank);
    });
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, in.indices.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, in.values.shape()));
    for (int64_t i = 0; i < in.count; ++i) {
      const int64_t from = order[static_cast<std::size_t>(i)];
      std::copy_n(in.row(from), in.rank, indices->data<int64_t>() + i * in.rank);
      CopyRange(in.values, from, values, i, 1);
    }
    return OkStatus();
  }
};

class SparseReshapeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckInputs(in, ctx.input(1), ctx.input(2)));
    MR_ASSIGN_OR_RETURN(const Dims dense, IntVector(ctx.input(1), "input_shape", true));
    MR_ASSIGN_OR_RETURN(Dims target, IntVector(ctx.input(2), "new_shape", true));
    int64_t elements = 1;
    for (const int64_t size : dense) {
      if (size < 0) {
        return errors::InvalidArgument("Expected shape dimensions to be non-negative, got ", size);
      }
      MR_RETURN_IF_ERROR(Multiply(size, &elements));
    }
    MR_RETURN_IF_ERROR(Complete(dense, elements, &target));
    ctx.SetOutput(1, IndexTensor(kInt64, target));
    if (target == dense) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    const int64_t count = in.dim(0);
    if (count > 0 && elements == 0) {
      return errors::InvalidArgument("Input tensor has ", count,
                                     " non zero elements but input shape (", Text(dense),
                                     ") or output shape (", Text(target), ") is empty");
    }
    const auto rank = static_cast<int64_t>(target.size());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({count, rank})));
    if (count > 0) Move(in.data<int64_t>(), count, dense, target, out->data<int64_t>());
    return OkStatus();
  }

 private:
  static Status CheckInputs(const Tensor& in, const Tensor& dense, const Tensor& target) {
    if (in.rank() != 2) return errors::InvalidArgument("Input must be a matrix.");
    if (dense.rank() != 1) return errors::InvalidArgument("Input shape must be a vector.");
    if (in.dim(1) != dense.dim(0)) {
      return errors::InvalidArgument("Input tensor rank must match input shape length.");
    }
    if (target.rank() != 1) {
      return errors::InvalidArgument("Target shape should be a vector but received shape ",
                                     target.shape().DebugString());
    }
    return OkStatus();
  }

  static Status Multiply(int64_t size, int64_t* product) {
    const int64_t before = *product;
    if (!__builtin_mul_overflow(before, size, product)) return OkStatus();
    return errors::InvalidArgument("Encountered overflow when multiplying ", before, " with ", size,
                                   ", result: -1");
  }

  static std::string Text(const Dims& dims) { return StrCat("[", StrJoin(dims, ","), "]"); }

  // Finds the size that is -1.
  static Status Complete(const Dims& dense, int64_t elements, Dims* target) {
    int64_t product = 1;
    int unknown = -1;
    for (int i = 0; i < static_cast<int>(target->size()); ++i) {
      int64_t& size = (*target)[i];
      if (size == -1) {
        if (unknown >= 0) {
          return errors::InvalidArgument("only one output dimension may be -1, not both ", unknown,
                                         " and ", i);
        }
        unknown = i;
        size = 1;
      } else if (size < 0) {
        return errors::InvalidArgument("size ", i, " must be non-negative, not ", size);
      }
      MR_RETURN_IF_ERROR(Multiply(size, &product));
    }
    const std::string shapes =
        StrCat(". input_shape=", Text(dense), " output_shape=", Text(*target));
    if (unknown >= 0) {
      if (product == 0) {
        return errors::InvalidArgument("reshape cannot infer the missing input size for an empty ",
                                       "tensor unless all specified input sizes are non-zero");
      }
      if (elements % product != 0) {
        return errors::InvalidArgument("Input to reshape is a SparseTensor with ", elements,
                                       " dense values, but the requested shape requires a ",
                                       "multiple of ", product, shapes);
      }
      (*target)[unknown] = elements / product;
    } else if (product != elements) {
      return errors::InvalidArgument("Input to reshape is a tensor with ", elements,
                                     " dense values, but the requested shape has ", product,
                                     shapes);
    }
    return OkStatus();
  }

  // Indices need not lie within the shape: TensorFlow computes with any, and overflows.
  static void Move(const int64_t* from, int64_t count, const Dims& dense, const Dims& target,
                   int64_t* to) {
    const Dims strides = RowMajorStrides(target);
    for (int64_t i = 0; i < count; ++i) {
      uint64_t sum = 0;
      for (const int64_t size : dense) {
        sum = sum * static_cast<uint64_t>(size) + static_cast<uint64_t>(*from++);
      }
      auto rest = static_cast<int64_t>(sum);
      for (const int64_t stride : strides) {
        *to++ = rest / stride;
        rest %= stride;
      }
    }
  }
};

// Rows without a value get one, in column 0.
class SparseFillEmptyRowsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput in, ReadSparse(ctx, 0, 1, 2));
    const Tensor& filler = ctx.input(3);
    if (filler.rank() != 0) {
      return errors::InvalidArgument("default_value must be a scalar, saw: ",
                                     filler.shape().DebugString());
    }
    if (in.rank == 0) return errors::InvalidArgument("Dense shape cannot be empty.");
    const int64_t rows = in.shape[0];
    if (rows < 0 || (rows == 0 && in.count != 0)) {
      return errors::InvalidArgument("Received SparseTensor with dense_shape[0] = ", rows,
                                     " but indices.shape[0] = ", in.count);
    }
    MR_ASSIGN_OR_RETURN(Tensor * is_empty, ctx.AllocateOutput(2, Shape({rows})));
    MR_ASSIGN_OR_RETURN(Tensor * where, ctx.AllocateOutput(3, Shape({in.count})));
    // Where the next value of each row goes.
    MR_ASSIGN_OR_RETURN(Tensor places, ctx.AllocateTemp(kInt64, Shape({rows + 1})));
    const std::span<int64_t> next = places.flat<int64_t>();
    std::fill(next.begin(), next.end(), 0);
    for (int64_t i = 0; i < in.count; ++i) {
      const int64_t row = in.row(i)[0];
      if (row < 0 || row >= rows) {
        return errors::InvalidArgument("indices(", i, ", 0) is invalid: ", row, " >= ", rows);
      }
      ++next[static_cast<std::size_t>(row) + 1];
    }
    for (int64_t row = 0; row < rows; ++row) {
      int64_t& held = next[static_cast<std::size_t>(row) + 1];
      is_empty->data<bool>()[row] = held == 0;
      held = std::max<int64_t>(held, 1) + next[static_cast<std::size_t>(row)];
    }
    const int64_t count = next.back();
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({count, in.rank})));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({count})));
    for (int64_t row = 0; row < rows; ++row) {
      if (!is_empty->data<bool>()[row]) continue;
      const int64_t at = next[static_cast<std::size_t>(row)];
      int64_t* to = indices->data<int64_t>() + at * in.rank;
      std::fill_n(to, in.rank, 0);
      to[0] = row;
      CopyRange(filler, 0, values, at, 1);
    }
    for (int64_t i = 0; i < in.count; ++i) {
      const int64_t at = next[static_cast<std::size_t>(in.row(i)[0])]++;
      std::copy_n(in.row(i), in.rank, indices->data<int64_t>() + at * in.rank);
      CopyRange(in.values, i, values, at, 1);
      where->data<int64_t>()[i] = at;
    }
    return OkStatus();
  }
};

class SparseFillEmptyRowsGradKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& grads = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Dims where, IntVector(ctx.input(0), "reverse_index_map", true));
    if (grads.rank() != 1) {
      return errors::InvalidArgument("grad_values must be a vector, saw: ",
                                     grads.shape().DebugString());
    }
    const auto count = static_cast<int64_t>(where.size());
    MR_ASSIGN_OR_RETURN(Tensor * of_values, ctx.AllocateOutput(0, Shape({count})));
    std::vector<bool> used(static_cast<std::size_t>(grads.num_elements()), false);
    for (int64_t i = 0; i < count; ++i) {
      if (where[i] < 0 || where[i] >= grads.num_elements()) {
        return errors::InvalidArgument("Elements in reverse index must be in [0, ",
                                       grads.num_elements(), ") but got ", where[i]);
      }
      used[static_cast<std::size_t>(where[i])] = true;
      CopyRange(grads, where[i], of_values, i, 1);
    }
    MR_ASSIGN_OR_RETURN(Tensor * of_filler, ctx.AllocateOutput(1, Shape()));
    const bool known = DispatchType(NumberTypes(), grads.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      C sum(0);
      for (std::size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) sum = static_cast<C>(sum + static_cast<C>(grads.data<T>()[i]));
      }
      of_filler->data<T>()[0] = static_cast<T>(sum);
    });
    if (known) return OkStatus();
    return errors::Unimplemented(def().name(), " of ", DataTypeName(grads.dtype()));
  }
};

}  // namespace

void RegisterSparseKernels(KernelRegistry& r) {
  RegisterCpu<SparseReorderKernel>(r, "SparseReorder");
  RegisterCpu<SparseReshapeKernel>(r, "SparseReshape");
  RegisterCpu<SparseFillEmptyRowsKernel>(r, "SparseFillEmptyRows");
  r.Register(KernelDef("SparseFillEmptyRowsGrad").Types("T", DataTypesOf(NumberTypes())),
             MakeKernel<SparseFillEmptyRowsGradKernel>);
}

}  // namespace millrace
