// SPDX-License-Identifier: Apache-2.0
// SparseMatMul: dense matrices of which many elements may be zero. That they are said to be is a
// hint; rows of a left operand that is said to be sparse are gone through element by element, and
// what is zero is left out, everything else is an ordinary product.
#include "kernels/linear_algebra/sparse_matmul.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/gemm.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// A tensor as floats: itself, or a copy.
StatusOr<Tensor> Floats(KernelContext& ctx, const Tensor& t) {
  if (t.dtype() == kFloat) return t;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, t.shape()));
  const BFloat16* const from = t.data<BFloat16>();
  float* const to = wide.data<float>();
  for (int64_t i = 0; i < t.num_elements(); ++i) to[i] = static_cast<float>(from[i]);
  return wide;
}

class SparseMatMulKernel : public Kernel {
 public:
  explicit SparseMatMulKernel(KernelConstruction& c)
      : Kernel(c),
        transpose_a_(c.attr<bool>("transpose_a")),
        transpose_b_(c.attr<bool>("transpose_b")),
        sparse_(c.attr<bool>("a_is_sparse")) {}

  Status Compute(KernelContext& ctx) override {
    if (ctx.input(0).rank() != 2) return errors::InvalidArgument("a is not a matrix");
    if (ctx.input(1).rank() != 2) return errors::InvalidArgument("b is not a matrix");
    const Shape &as = ctx.input(0).shape(), &bs = ctx.input(1).shape();
    const int64_t m = as.dim(transpose_a_ ? 1 : 0), k = as.dim(transpose_a_ ? 0 : 1);
    const int64_t n = bs.dim(transpose_b_ ? 0 : 1);
    if (bs.dim(transpose_b_ ? 1 : 0) != k) {
      return errors::InvalidArgument("Matrix size incompatible: a: ", as.DebugString(),
                                     ", b: ", bs.DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(Dims{m, n}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    if (k == 0) {
      std::fill_n(out->data<float>(), shape.num_elements(), 0.0f);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(const Tensor wide_a, Floats(ctx, ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const Tensor wide_b, Floats(ctx, ctx.input(1)));
    const MatrixView<float> a = transpose_a_ ? MatrixView<float>{wide_a.data<float>(), 1, m}
                                             : MatrixView<float>{wide_a.data<float>(), k, 1};
    const MatrixView<float> b = transpose_b_ ? MatrixView<float>{wide_b.data<float>(), 1, k}
                                             : MatrixView<float>{wide_b.data<float>(), n, 1};
    if (sparse_ && !transpose_b_) {
      SkipZeros(ctx, m, n, k, a, b.data, out->data<float>());
      return OkStatus();
    }
    Gemm<float>(m, n, k, a, b, out->data<float>(), n, false,
                [&ctx](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> body) {
                  ctx.ParallelFor(count, cost, body);
                });
    return OkStatus();
  }

 private:
  static void SkipZeros(KernelContext& ctx, int64_t m, int64_t n, int64_t k, MatrixView<float> a,
                        const float* b, float* out) {
    // As if one element of four were not zero.
    const double cost = 0.1 * static_cast<double>(n) * static_cast<double>(k);
    ctx.ParallelFor(m, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* const row = out + i * n;
        std::fill_n(row, n, 0.0f);
        for (int64_t q = 0; q < k; ++q) {
          const float by = a.data[i * a.row_stride + q * a.col_stride];
          if (by == 0) continue;
          for (int64_t j = 0; j < n; ++j) row[j] += by * b[q * n + j];
        }
      }
    });
  }

  const bool transpose_a_, transpose_b_, sparse_;
};

}  // namespace

void RegisterSparseMatMulKernels(KernelRegistry& registry) {
  for (const DataType a : {kFloat, kBfloat16}) {
    for (const DataType b : {kFloat, kBfloat16}) {
      registry.Register(KernelDef("SparseMatMul").Types("Ta", {a}).Types("Tb", {b}),
                        &MakeKernel<SparseMatMulKernel>);
    }
  }
}

}  // namespace millrace
