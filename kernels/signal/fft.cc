// SPDX-License-Identifier: Apache-2.0
// FFT, RFFT and their inverses over one, two and three axes. Of real numbers the transform has n /
// 2
// + 1 numbers of its own along the last axis; the rest are their conjugates.
#include "kernels/signal/fft.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/signal/fourier.h"

namespace millrace {
namespace {

// Columns that are read together, so that their memory is gone through in order, as long as they
// stay in a cache.
int64_t ColumnsOf(int64_t n, int64_t inner) {
  constexpr int64_t kMost = 8, kNumbers = 1 << 15;
  return std::min(inner, std::clamp<int64_t>(kNumbers / n, 1, kMost));
}

double CostOf(int64_t n) {
  return 2.0 * static_cast<double>(n) * std::log2(static_cast<double>(n) + 1);
}

// Transforms, in place, along an axis of `n` numbers that lie `inner` apart.
template <typename T>
void TransformAxis(KernelContext& ctx, std::complex<T>* data, int64_t outer, int64_t n,
                   int64_t inner, bool inverse) {
  const FourierPlan<T> plan(n);
  const T factor = inverse ? T(1) / static_cast<T>(n) : T(1);
  const int64_t columns = ColumnsOf(n, inner), blocks = (inner + columns - 1) / columns;
  ctx.ParallelFor(outer * blocks, CostOf(n) * static_cast<double>(columns),
                  [&](int64_t begin, int64_t end) {
                    std::vector<std::complex<T>> block_of(static_cast<std::size_t>(n * columns));
                    std::vector<std::complex<T>> work(static_cast<std::size_t>(plan.work_size()));
                    for (int64_t block = begin; block < end; ++block) {
                      const int64_t first = block % blocks * columns;
                      const int64_t count = std::min(columns, inner - first);
                      std::complex<T>* const at = data + block / blocks * n * inner + first;
                      for (int64_t j = 0; j < n; ++j) {
                        for (int64_t c = 0; c < count; ++c) block_of[c * n + j] = at[j * inner + c];
                      }
                      for (int64_t c = 0; c < count; ++c) {
                        plan.Transform(block_of.data() + c * n, work.data(), inverse);
                      }
                      for (int64_t j = 0; j < n; ++j) {
                        for (int64_t c = 0; c < count; ++c) {
                          at[j * inner + c] = block_of[c * n + j] * factor;
                        }
                      }
                    }
                  });
}

// The axes of `shape` from `first` to before `end`, one after the other.
template <typename T>
void TransformAxes(KernelContext& ctx, std::complex<T>* data, const Shape& shape, int first,
                   int end, bool inverse) {
  for (int axis = end - 1; axis >= first; --axis) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= shape.dim(i);
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape.dim(i);
    if (shape.dim(axis) > 1) TransformAxis(ctx, data, outer, shape.dim(axis), inner, inverse);
  }
}

// Rows of a tensor of shape `from`, as many along each axis as `to` has, which is not more: calls
// copy(row of `from`, row of `to`), rows being what lies along the last axis.
template <typename Copy>
void ForRows(const Shape& from, const Shape& to, const Copy& copy) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < to.rank(); ++i) rows *= to.dim(i);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, source = 0, weight = 1;
    for (int i = to.rank() - 2; i >= 0; --i) {
      source += rest % to.dim(i) * weight;
      rest /= to.dim(i);
      weight *= from.dim(i);
    }
    copy(source, row);
  }
}

class FftKernel : public Kernel {
 public:
  explicit FftKernel(KernelConstruction& c) : Kernel(c) {
    const std::string& name = c.def().name();
    inverse_ = name.starts_with("I");
    real_ = name.find("RFFT") != std::string::npos;
    rank_ = name.ends_with("3D") ? 3 : name.ends_with("2D") ? 2 : 1;
    const DataType in = c.input_types()[0], out = c.output_types()[0];
    const DataType numbers = inverse_ ? in : out, reals = inverse_ ? out : in;
    if (real_ && (numbers == kComplex64) != (reals == kFloat)) {
      c.SetError(errors::InvalidArgument("Wrong types for ", inverse_ ? "backward" : "forward",
                                         " real FFT: in=", static_cast<int>(in),
                                         " out=", static_cast<int>(out)));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < rank_) {
      return errors::InvalidArgument("Input must have rank of at least ", rank_,
                                     " but got: ", in.shape().DebugString());
    }
    const bool wide = in.dtype() == kDouble || in.dtype() == kComplex128;
    if (real_) return wide ? Real<double>(ctx) : Real<float>(ctx);
    return wide ? Complex<double>(ctx) : Complex<float>(ctx);
  }

 private:
  template <typename T>
  Status Complex(KernelContext& ctx) const {
    const Tensor in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    auto* const data = out->data<std::complex<T>>();
    std::copy_n(in.data<std::complex<T>>(), in.num_elements(), data);
    TransformAxes(ctx, data, in.shape(), in.rank() - rank_, in.rank(), inverse_);
    return OkStatus();
  }

  // The shape of the real numbers, from the lengths in input 1.
  StatusOr<Shape> RealShape(KernelContext& ctx) const {
    const Shape& shape = ctx.input(0).shape();
    const Tensor& length = ctx.input(1);
    if (length.rank() != 1 || length.dim(0) != rank_) {
      return errors::InvalidArgument("fft_length must have shape [", rank_, "]");
    }
    Dims dims(shape.dims().begin(), shape.dims().end());
    for (int i = 0; i < rank_; ++i) {
      const int64_t size = length.data<int32_t>()[i];
      if (size < 0) {
        return errors::InvalidArgument("fft_length[", i, "] must >= 0, but got: ", size);
      }
      const int axis = shape.rank() - rank_ + i;
      const int64_t least = inverse_ && i == rank_ - 1 ? size / 2 + 1 : size;
      if (shape.dim(axis) < least) {
        return errors::InvalidArgument("Input dimension ", axis, " must have length of at least ",
                                       least, " but got: ", shape.dim(axis));
      }
      dims[axis] = size;
    }
    return MakeShape({dims.data(), dims.size()});
  }

  template <typename T>
  Status Real(KernelContext& ctx) const {
    using C = std::complex<T>;
    const Tensor in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape reals, RealShape(ctx));
    const int last = reals.rank() - 1, first = reals.rank() - rank_;
    const int64_t n = reals.dim(last);
    Shape half = reals;
    if (n != 0) half.SetDim(last, n / 2 + 1);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, inverse_ ? reals : half));
    if (out->num_elements() == 0) return OkStatus();
    if (in.num_elements() == 0) {
      std::memset(out->raw_data(), 0, out->num_bytes());
      return OkStatus();
    }
    if (inverse_) {
      MR_ASSIGN_OR_RETURN(Tensor spectrum, ctx.AllocateTemp(in.dtype(), half));
      C* const data = spectrum.data<C>();
      ForRows(in.shape(), half, [&](int64_t from, int64_t to) {
        std::copy_n(in.data<C>() + from * in.dim(last), n / 2 + 1, data + to * (n / 2 + 1));
      });
      TransformAxes(ctx, data, half, first, last, true);
      BackwardRows(ctx, data, reals.num_elements() / n, n, out->data<T>());
      return OkStatus();
    }
    C* const data = out->data<C>();
    ForwardRows(ctx, in, reals, n, data);
    TransformAxes(ctx, data, half, first, last, false);
    return OkStatus();
  }

  template <typename T>
  static void ForwardRows(KernelContext& ctx, const Tensor& in, const Shape& reals, int64_t n,
                          std::complex<T>* out) {
    const int64_t stride = in.dim(in.rank() - 1), rows = reals.num_elements() / n;
    std::vector<int64_t> sources(static_cast<std::size_t>(rows));
    ForRows(in.shape(), reals, [&](int64_t from, int64_t to) { sources[to] = from; });
    const FourierPlan<T> plan(n);
    ctx.ParallelFor(rows, CostOf(n), [&](int64_t begin, int64_t end) {
      std::vector<std::complex<T>> row(static_cast<std::size_t>(n));
      std::vector<std::complex<T>> work(static_cast<std::size_t>(plan.work_size()));
      for (int64_t r = begin; r < end; ++r) {
        std::copy_n(in.data<T>() + sources[r] * stride, n, row.data());
        plan.Transform(row.data(), work.data(), false);
        std::copy_n(row.data(), n / 2 + 1, out + r * (n / 2 + 1));
      }
    });
  }

  template <typename T>
  static void BackwardRows(KernelContext& ctx, const std::complex<T>* in, int64_t rows, int64_t n,
                           T* out) {
    const FourierPlan<T> plan(n);
    ctx.ParallelFor(rows, CostOf(n), [&](int64_t begin, int64_t end) {
      std::vector<std::complex<T>> row(static_cast<std::size_t>(n));
      std::vector<std::complex<T>> work(static_cast<std::size_t>(plan.work_size()));
      for (int64_t r = begin; r < end; ++r) {
        const std::complex<T>* const half = in + r * (n / 2 + 1);
        row[0] = half[0].real();  // whose imaginary part real numbers do not have
        for (int64_t k = 1; k <= n / 2; ++k) {
          row[k] = half[k];
          row[n - k] = std::conj(half[k]);
        }
        if (n % 2 == 0) row[n / 2] = half[n / 2].real();
        plan.Transform(row.data(), work.data(), true);
        for (int64_t j = 0; j < n; ++j) out[r * n + j] = row[j].real() / static_cast<T>(n);
      }
    });
  }

  bool inverse_, real_;
  int rank_;
};

}  // namespace

void RegisterFftKernels(KernelRegistry& registry) {
  for (const char* op : {"FFT", "IFFT", "RFFT", "IRFFT"}) {
    for (const char* rank : {"", "2D", "3D"}) {
      registry.Register(KernelDef(std::string(op) + rank), &MakeKernel<FftKernel>);
    }
  }
}

}  // namespace millrace
