// SPDX-License-Identifier: Apache-2.0
// Factors and inverses of small dense matrices, and products with sparse ones.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

using MatrixTypes = TypeList<float, double, Half, Complex64, Complex128>;

template <typename C>
C Conjugate(C value) {
  if constexpr (kIsComplex<C>) {
    return std::conj(value);
  } else {
    return value;
  }
}

// Reads n x n elements of a tensor into what is calculated in, and back.
template <typename T>
std::vector<ComputeType<T>> Load(const T* from, int64_t count) {
  return {from, from + count};
}
template <typename T>
void Store(const std::vector<ComputeType<T>>& from, T* to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<T>(from[i]);
}

// In place: the lower factor, zeros above. False if the matrix is not positive definite.
template <typename C>
bool Factor(std::vector<C>* matrix, int64_t n) {
  C* a = matrix->data();
  for (int64_t j = 0; j < n; ++j) {
    C pivot = a[j * n + j];
    for (int64_t k = 0; k < j; ++k) pivot -= a[j * n + k] * Conjugate(a[j * n + k]);
    if (!(std::real(pivot) > 0)) return false;
    const C root = std::sqrt(std::real(pivot));
    a[j * n + j] = root;
    for (int64_t i = j + 1; i < n; ++i) {
      C sum = a[i * n + j];
      for (int64_t k = 0; k < j; ++k) sum -= a[i * n + k] * Conjugate(a[j * n + k]);
      a[i * n + j] = sum / root;
    }
    for (int64_t i = 0; i < j; ++i) a[i * n + j] = C(0);
  }
  return true;
}

// In place, by elimination with row pivots. False if the matrix is singular.
template <typename C>
bool Invert(std::vector<C>* matrix, int64_t n) {
  C* a = matrix->data();
  std::vector<C> inverse(n * n, C(0));
  for (int64_t i = 0; i < n; ++i) inverse[i * n + i] = C(1);
  for (int64_t j = 0; j < n; ++j) {
    int64_t best = j;
    for (int64_t i = j + 1; i < n; ++i) {
      if (std::abs(a[i * n + j]) > std::abs(a[best * n + j])) best = i;
    }
    if (std::abs(a[best * n + j]) == 0) return false;
    for (int64_t k = 0; best != j && k < n; ++k) {
      std::swap(a[best * n + k], a[j * n + k]);
      std::swap(inverse[best * n + k], inverse[j * n + k]);
    }
    const C pivot = a[j * n + j];
    for (int64_t k = 0; k < n; ++k) {
      a[j * n + k] /= pivot;
      inverse[j * n + k] /= pivot;
    }
    for (int64_t i = 0; i < n; ++i) {
      const C by = a[i * n + j];
      if (i == j || by == C(0)) continue;
      for (int64_t k = 0; k < n; ++k) {
        a[i * n + k] -= by * a[j * n + k];
        inverse[i * n + k] -= by * inverse[j * n + k];
      }
    }
  }
  *matrix = std::move(inverse);
  return true;
}

// Cholesky and MatrixInverse, for each matrix of a batch.
class MatrixKernel : public Kernel {
 public:
  explicit MatrixKernel(KernelConstruction& c)
      : Kernel(c),
        factor_(c.def().name() == "Cholesky"),
        adjoint_(c.attrs().GetOr<bool>("adjoint", false)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < 2 || in.dim(in.rank() - 1) != in.dim(in.rank() - 2)) {
      return errors::InvalidArgument("Input matrix must be square, got shape ",
                                     in.shape().DebugString());
    }
    const int64_t n = in.dim(in.rank() - 1);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    bool good = true;
    DispatchType(MatrixTypes(), in.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      for (int64_t at = 0; good && at < in.num_elements(); at += n * n) {
        std::vector<C> matrix = Load(in.data<T>() + at, n * n);
        for (int64_t i = 0; adjoint_ && i < n; ++i) {
          for (int64_t k = 0; k <= i; ++k) {
            const C a = matrix[i * n + k];
            matrix[i * n + k] = Conjugate(matrix[k * n + i]);
            matrix[k * n + i] = Conjugate(a);
          }
        }
        if (factor_) {
          FactorOrNan(&matrix, n);
        } else {
          good = Invert(&matrix, n);
        }
        Store<T>(matrix, out->data<T>() + at);
      }
    });
    return good ? OkStatus() : errors::InvalidArgument("Input is not invertible.");
  }

 private:
  // A matrix that has no factor gets NaN, as TensorFlow gives it: the others of the batch count.
  template <typename C>
  static void FactorOrNan(std::vector<C>* matrix, int64_t n) {
    if (Factor(matrix, n)) return;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        (*matrix)[i * n + k] = k > i ? C(0) : C(std::numeric_limits<double>::quiet_NaN());
      }
    }
  }

  const bool factor_, adjoint_;
};

class SparseDenseMatMulKernel : public Kernel {
 public:
  explicit SparseDenseMatMulKernel(KernelConstruction& c)
      : Kernel(c), adjoint_a_(c.attr<bool>("adjoint_a")), adjoint_b_(c.attr<bool>("adjoint_b")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(1), &b = ctx.input(3);
    MR_ASSIGN_OR_RETURN(const Dims shape, IntVector(ctx.input(2), "a_shape", true));
    if (shape.size() != 2 || b.rank() != 2 || indices.rank() != 2 || indices.dim(1) != 2 ||
        values.rank() != 1 || values.dim(0) != indices.dim(0)) {
      return errors::InvalidArgument("a sparse matrix and a dense one are needed, got indices ",
                                     indices.shape().DebugString(), ", values ",
                                     values.shape().DebugString(), ", b ", b.shape().DebugString());
    }
    const int64_t rows = shape[adjoint_a_ ? 1 : 0], inner = shape[adjoint_a_ ? 0 : 1];
    const int64_t columns = b.dim(adjoint_b_ ? 0 : 1);
    if (inner != b.dim(adjoint_b_ ? 1 : 0)) {
      return errors::InvalidArgument("Cannot multiply A and B because inner dimension does not ",
                                     "match: ", inner, " vs. ", b.dim(adjoint_b_ ? 1 : 0));
    }
    MR_ASSIGN_OR_RETURN(const Shape out_shape, MakeShape(Dims{rows, columns}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, out_shape));
    int64_t bad = -1;
    DispatchType(SparseTypes(), b.dtype(), [&]<typename T>() {
      bad = Run<T>(indices, values, b, rows, inner, columns, out);
    });
    if (bad < 0) return OkStatus();
    return errors::InvalidArgument("index ", bad, " of a_indices is out of bounds of [", shape[0],
                                   ",", shape[1], "]");
  }

  using SparseTypes = TypeList<float, double, int32_t, Complex64, Complex128, BFloat16, Half>;

 private:
  static int64_t IndexAt(const Tensor& t, int64_t i) {
    return t.dtype() == kInt32 ? t.data<int32_t>()[i] : t.data<int64_t>()[i];
  }

  // The number of an index that is out of range, -1 if all are good.
  template <typename T>
  int64_t Run(const Tensor& indices, const Tensor& values, const Tensor& b, int64_t rows,
              int64_t inner, int64_t columns, Tensor* out) const {
    using C = ComputeType<T>;
    std::vector<C> sums(rows * columns, C(0));
    const int64_t stride = b.dim(1);
    for (int64_t i = 0; i < values.dim(0); ++i) {
      const int64_t row = IndexAt(indices, 2 * i + (adjoint_a_ ? 1 : 0));
      const int64_t k = IndexAt(indices, 2 * i + (adjoint_a_ ? 0 : 1));
      if (row < 0 || row >= rows || k < 0 || k >= inner) return i;
      C a = static_cast<C>(values.data<T>()[i]);
      if (adjoint_a_) a = Conjugate(a);
      for (int64_t j = 0; j < columns; ++j) {
        const C x = adjoint_b_ ? Conjugate(static_cast<C>(b.data<T>()[j * stride + k]))
                               : static_cast<C>(b.data<T>()[k * stride + j]);
        sums[row * columns + j] += a * x;
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) out->data<T>()[i] = static_cast<T>(sums[i]);
    return -1;
  }

  const bool adjoint_a_, adjoint_b_;
};

// In place: rows below the diagonal are multiples of pivots, as in an LU factorisation, with
// rows exchanged. The sign of the exchanges; 0 if the matrix is singular. `sides` (n x m) are
// exchanged and eliminated alike.
template <typename C>
int Eliminate(std::vector<C>* matrix, int64_t n, std::vector<C>* sides, int64_t m) {
  C* a = matrix->data();
  int sign = 1;
  for (int64_t j = 0; j < n; ++j) {
    int64_t best = j;
    for (int64_t i = j + 1; i < n; ++i) {
      if (std::abs(a[i * n + j]) > std::abs(a[best * n + j])) best = i;
    }
    if (std::abs(a[best * n + j]) == 0) return 0;
    if (best != j) {
      sign = -sign;
      std::swap_ranges(a + best * n, a + best * n + n, a + j * n);
      for (int64_t k = 0; k < m; ++k) std::swap((*sides)[best * m + k], (*sides)[j * m + k]);
    }
    for (int64_t i = j + 1; i < n; ++i) {
      const C by = a[i * n + j] / a[j * n + j];
      if (by == C(0)) continue;
      for (int64_t k = j; k < n; ++k) a[i * n + k] -= by * a[j * n + k];
      for (int64_t k = 0; k < m; ++k) (*sides)[i * m + k] -= by * (*sides)[j * m + k];
    }
  }
  return sign;
}

// In place: solves triangular * x = sides for x, n x m. A zero on the diagonal gives infinities.
template <typename C>
void Substitute(const std::vector<C>& a, int64_t n, bool lower, std::vector<C>* sides, int64_t m) {
  C* x = sides->data();
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = lower ? step : n - 1 - step;
    const int64_t begin = lower ? 0 : i + 1, end = lower ? i : n;
    for (int64_t k = begin; k < end; ++k) {
      const C by = a[i * n + k];
      for (int64_t j = 0; j < m; ++j) x[i * m + j] -= by * x[k * m + j];
    }
    for (int64_t j = 0; j < m; ++j) x[i * m + j] /= a[i * n + i];
  }
}

template <typename C>
void Adjoin(std::vector<C>* matrix, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k <= i; ++k) {
      const C a = (*matrix)[i * n + k];
      (*matrix)[i * n + k] = Conjugate((*matrix)[k * n + i]);
      (*matrix)[k * n + i] = Conjugate(a);
    }
  }
}

// MatrixDeterminant, and LogMatrixDeterminant: sign and logarithm.
class DeterminantKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < 2 || in.dim(in.rank() - 1) != in.dim(in.rank() - 2)) {
      return errors::InvalidArgument("Input matrix must be square, got shape ",
                                     in.shape().DebugString());
    }
    const int64_t n = in.dim(in.rank() - 1);
    const Shape shape(in.shape().dims().first(static_cast<std::size_t>(in.rank() - 2)));
    std::vector<Tensor*> out;
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * one, ctx.AllocateOutput(i, shape));
      out.push_back(one);
    }
    DispatchType(MatrixTypes(), in.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      std::vector<C> none;
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        std::vector<C> matrix = Load(in.data<T>() + i * n * n, n * n);
        C sign = C(static_cast<float>(Eliminate(&matrix, n, &none, 0)));
        C product = sign, log(0);
        for (int64_t k = 0; k < n; ++k) {
          const C pivot = matrix[k * n + k];
          const auto size = std::abs(pivot);
          product *= pivot;
          if (size != 0) sign *= pivot / C(size);
          log += C(std::log(size));
        }
        if (sign == C(0)) {
          product = C(0);
          log = C(-std::numeric_limits<decltype(std::abs(C()))>::infinity());
        }
        out[0]->data<T>()[i] = static_cast<T>(out.size() == 2 ? sign : product);
        if (out.size() == 2) out[1]->data<T>()[i] = static_cast<T>(log);
      }
    });
    return OkStatus();
  }
};

// MatrixSolve, and MatrixTriangularSolve, whose batches are broadcast.
class SolveKernel : public Kernel {
 public:
  explicit SolveKernel(KernelConstruction& c)
      : Kernel(c),
        triangular_(c.def().name() == "MatrixTriangularSolve"),
        lower_(c.attrs().GetOr<bool>("lower", true)),
        adjoint_(c.attrs().GetOr<bool>("adjoint", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &a = ctx.input(0), &b = ctx.input(1);
    if (a.rank() < 2 || a.dim(a.rank() - 1) != a.dim(a.rank() - 2)) {
      return errors::InvalidArgument("Input matrix must be square, got shape ",
                                     a.shape().DebugString());
    }
    const int64_t n = a.dim(a.rank() - 1);
    if (b.rank() < 2 || b.dim(b.rank() - 2) != n) {
      return errors::InvalidArgument("Input matrix and right-hand side must have the same number ",
                                     "of rows, got ", n, " and shape ", b.shape().DebugString());
    }
    const Shape batch_a(a.shape().dims().first(static_cast<std::size_t>(a.rank() - 2)));
    const Shape batch_b(b.shape().dims().first(static_cast<std::size_t>(b.rank() - 2)));
    if (!triangular_ && !(batch_a == batch_b)) {
      return errors::InvalidArgument("All input tensors must have the same outer dimensions, got ",
                                     a.shape().DebugString(), " and ", b.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const BroadcastPlan plan, MakeBroadcastPlan(batch_a, batch_b));
    const int64_t m = b.dim(b.rank() - 1);
    Shape shape = plan.out;
    shape.AddDim(n);
    shape.AddDim(m);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return OkStatus();  // there may be any number of batches
    bool good = true;
    DispatchType(JoinTypes<MatrixTypes, TypeList<BFloat16>>(), a.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      const auto solve = [&](int64_t at_a, int64_t at_b, int64_t to) {
        std::vector<C> matrix = Load(a.data<T>() + at_a * n * n, n * n);
        std::vector<C> sides = Load(b.data<T>() + at_b * n * m, n * m);
        if (triangular_) Clear(lower_, n, &matrix);
        if (adjoint_) Adjoin(&matrix, n);
        good = triangular_ || Eliminate(&matrix, n, &sides, m) != 0;
        if (good) Substitute(matrix, n, triangular_ && lower_ != adjoint_, &sides, m);
        Store(sides, out->data<T>() + to * n * m);
        return good;
      };
      plan.ForEachRun(0, plan.out.num_elements(),
                      [&](int64_t at_a, int64_t at_b, int64_t to, int64_t count) {
                        const auto& last = plan.dims.back();
                        for (int64_t i = 0; i < count && good; ++i) {
                          solve(at_a + i * last.a_stride, at_b + i * last.b_stride, to + i);
                        }
                        return good;
                      });
    });
    return good ? OkStatus() : errors::InvalidArgument("Input matrix is not invertible.");
  }

 private:
  // What lies on the other side of the diagonal does not count.
  template <typename C>
  static void Clear(bool lower, int64_t n, std::vector<C>* matrix) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = lower ? i + 1 : 0; k < (lower ? n : i); ++k) (*matrix)[i * n + k] = C(0);
    }
  }

  const bool triangular_, lower_, adjoint_;
};

}  // namespace

void RegisterLinearAlgebraKernels(KernelRegistry& r) {
  for (const char* op : {"Cholesky", "MatrixInverse"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(MatrixTypes())), MakeKernel<MatrixKernel>);
  }
  for (const char* op : {"MatrixDeterminant", "LogMatrixDeterminant"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(MatrixTypes())), MakeKernel<DeterminantKernel>);
  }
  r.Register(KernelDef("MatrixSolve").Types("T", DataTypesOf(MatrixTypes())),
             MakeKernel<SolveKernel>);
  r.Register(KernelDef("MatrixTriangularSolve")
                 .Types("T", DataTypesOf(JoinTypes<MatrixTypes, TypeList<BFloat16>>())),
             MakeKernel<SolveKernel>);
  r.Register(KernelDef("SparseTensorDenseMatMul")
                 .Types("T", DataTypesOf(SparseDenseMatMulKernel::SparseTypes())),
             MakeKernel<SparseDenseMatMulKernel>);
}

}  // namespace millrace
