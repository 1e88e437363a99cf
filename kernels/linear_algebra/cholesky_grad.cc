// SPDX-License-Identifier: Apache-2.0
// CholeskyGrad: from the gradient of a factor L of A = L L^T to that of A (Murray, "Differentiation
// of the Cholesky decomposition", 2016): the symmetric part of L^-T P(L^T dL) L^-1, where P keeps
// the lower triangle and halves the diagonal. Of both inputs only the lower triangle is read.
#include "kernels/linear_algebra/cholesky_grad.h"

#include <cstdint>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// One matrix of n x n. `p` is working memory of n x n.
template <typename T>
void Backward(int64_t n, const T* l, const T* grad, T* p, T* out) {
  // p = P(L^T dL).
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) p[i * n + j] = 0;
  }
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = 0; i <= k; ++i) {
      const T by = l[k * n + i];
      for (int64_t j = 0; j <= i; ++j) p[i * n + j] += by * grad[k * n + j];
    }
  }
  for (int64_t i = 0; i < n; ++i) p[i * n + i] /= 2;
  // p = L^-T p: rows from the last one up.
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t k = i + 1; k < n; ++k) {
      const T by = l[k * n + i];
      for (int64_t j = 0; j < n; ++j) p[i * n + j] -= by * p[k * n + j];
    }
    for (int64_t j = 0; j < n; ++j) p[i * n + j] /= l[i * n + i];
  }
  // p = p L^-1: columns from the last one on, in each row.
  for (int64_t i = 0; i < n; ++i) {
    T* const row = p + i * n;
    for (int64_t j = n - 1; j >= 0; --j) {
      row[j] /= l[j * n + j];
      for (int64_t k = 0; k < j; ++k) row[k] -= row[j] * l[j * n + k];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) out[i * n + j] = (p[i * n + j] + p[j * n + i]) / 2;
  }
}

template <typename T>
class CholeskyGradKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &l = ctx.input(0), &grad = ctx.input(1);
    for (int i = 0; i < 2; ++i) {
      if (ctx.input(i).rank() >= 2) continue;
      return errors::InvalidArgument("Input tensor ", i, " must have rank >= 2");
    }
    if (l.shape() != grad.shape()) {
      return errors::InvalidArgument("Inputs (L and grad) must have the same shape, got ",
                                     l.shape().DebugString(), " and ", grad.shape().DebugString());
    }
    const int64_t n = l.dim(l.rank() - 1);
    if (l.dim(l.rank() - 2) != n) {
      return errors::InvalidArgument("Inputs must be a square matrices, got shape ",
                                     l.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, l.shape()));
    if (out->num_elements() == 0) return OkStatus();
    const double cost = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    ctx.ParallelFor(l.num_elements() / (n * n), cost, [&](int64_t begin, int64_t end) {
      std::vector<T> work(static_cast<std::size_t>(n * n));
      for (int64_t at = begin * n * n; at < end * n * n; at += n * n) {
        Backward(n, l.data<T>() + at, grad.data<T>() + at, work.data(), out->data<T>() + at);
      }
    });
    return OkStatus();
  }
};

}  // namespace

void RegisterCholeskyGradKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("CholeskyGrad").Type<float>("T"),
                    &MakeKernel<CholeskyGradKernel<float>>);
  registry.Register(KernelDef("CholeskyGrad").Type<double>("T"),
                    &MakeKernel<CholeskyGradKernel<double>>);
}

}  // namespace millrace
