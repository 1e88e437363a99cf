// SPDX-License-Identifier: Apache-2.0
// Diagonals of matrices: taken out, put in, or made into matrices; bands around them.
#include <algorithm>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

Status CannotMove(DataType dtype) {
  return errors::Unimplemented("elements of type ", DataTypeName(dtype), " cannot be copied");
}

int64_t Product(std::span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t d : dims) product *= d;
  return product;
}

// The diagonals `lower` to `upper` of rows x columns matrices, and where their elements lie in
// a packed tensor [batch, upper - lower + 1, length]: the uppermost first, short ones moved to
// the left or to the right.
struct Diagonals {
  int64_t lower = 0, upper = 0, rows = 0, columns = 0;
  bool super_left = false, sub_left = true;

  int64_t count() const { return upper - lower + 1; }
  int64_t LengthOf(int64_t d) const {
    return std::min(rows + std::min<int64_t>(d, 0), columns - std::max<int64_t>(d, 0));
  }
  int64_t length() const {
    return std::min(rows + std::min<int64_t>(upper, 0), columns - std::max<int64_t>(lower, 0));
  }
  // Calls f(packed offset, matrix offset) for every element of one matrix.
  template <typename F>
  void ForEach(F&& f) const {
    for (int64_t d = upper; d >= lower; --d) {
      const int64_t n = LengthOf(d);
      const bool left = (d >= 0 && super_left) || (d <= 0 && sub_left);
      const int64_t packed = (upper - d) * length() + (left ? 0 : length() - n);
      const int64_t first = std::max<int64_t>(0, -d) * columns + std::max<int64_t>(0, d);
      for (int64_t i = 0; i < n; ++i) f(packed + i, first + i * (columns + 1));
    }
  }
};

class MatrixDiagonalKernel : public Kernel {
 public:
  explicit MatrixDiagonalKernel(KernelConstruction& c) : Kernel(c) {
    // The first two forms know no other alignment.
    const auto align = c.attrs().GetOr<std::string>("align", "LEFT_LEFT");
    super_left_ = align == "LEFT_LEFT" || align == "LEFT_RIGHT";
    sub_left_ = align == "LEFT_LEFT" || align == "RIGHT_LEFT";
  }

 protected:
  // An output full of the padding value, input i; of zeros where the op has none.
  static StatusOr<Tensor*> PaddedOutput(KernelContext& ctx, const Shape& shape, int i) {
    if (i >= ctx.num_inputs()) {
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
      if (!FillZero(ctx, out->dtype(), out->raw_data(), shape.num_elements())) {
        return CannotMove(out->dtype());
      }
      return out;
    }
    const Tensor& padding = ctx.input(i);
    if (padding.num_elements() != 1) {
      return errors::InvalidArgument("padding_value must be a scalar");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!FillWith(ctx, padding.dtype(), padding.raw_data(), out->raw_data(),
                  shape.num_elements())) {
      return CannotMove(padding.dtype());
    }
    return out;
  }

  // Input i; the main diagonal where the op has none.
  StatusOr<Diagonals> ReadK(const KernelContext& ctx, int i) const {
    Dims values = {0};
    if (i < ctx.num_inputs()) {
      MR_ASSIGN_OR_RETURN(values, IntVector(ctx.input(i), "k"));
    }
    if (values.empty() || values.size() > 2) {
      return errors::InvalidArgument("k must have one or two elements, got ", values.size());
    }
    Diagonals d;
    d.lower = values[0];
    d.upper = values.back();
    if (d.lower > d.upper) {
      return errors::InvalidArgument(
          "lower_diag_index must not be larger than upper_diag_index: ", d.lower, " > ", d.upper);
    }
    d.super_left = super_left_;
    d.sub_left = sub_left_;
    return d;
  }
  static Status CheckRange(const Diagonals& d) {
    for (const int64_t k : {d.lower, d.upper}) {
      if ((k <= -d.rows || k >= d.columns) && k != 0) {
        return errors::InvalidArgument("diagonal index ", k, " is out of the range of matrices of ",
                                       d.rows, " rows and ", d.columns, " columns");
      }
    }
    return OkStatus();
  }

 private:
  bool super_left_, sub_left_;
};

// Inputs: matrices, k, padding value.
class MatrixDiagPartKernel : public MatrixDiagonalKernel {
 public:
  using MatrixDiagonalKernel::MatrixDiagonalKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < 2) {
      return errors::InvalidArgument("input must be at least 2-dim, received shape: ",
                                     in.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Diagonals d, ReadK(ctx, 1));
    d.rows = in.dim(in.rank() - 2);
    d.columns = in.dim(in.rank() - 1);
    MR_RETURN_IF_ERROR(CheckRange(d));
    Shape shape(in.shape().dims().first(in.rank() - 2));
    const int64_t batch = shape.num_elements();
    if (d.count() > 1) shape.AddDim(d.count());
    shape.AddDim(d.length());
    MR_ASSIGN_OR_RETURN(Tensor * out, PaddedOutput(ctx, shape, 2));
    if (out->num_elements() == 0) return OkStatus();  // of as many matrices as may be
    DispatchMovable(in.dtype(), [&]<typename T>() {
      const T* from = static_cast<const T*>(in.raw_data());
      T* to = static_cast<T*>(out->raw_data());
      for (int64_t b = 0; b < batch; ++b) {
        d.ForEach([&](int64_t packed, int64_t at) { to[packed] = from[at]; });
        from += d.rows * d.columns;
        to += d.count() * d.length();
      }
    });
    return OkStatus();
  }
};

// Inputs: diagonals, k, rows, columns, padding value.
class MatrixDiagKernel : public MatrixDiagonalKernel {
 public:
  using MatrixDiagonalKernel::MatrixDiagonalKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Diagonals d, ReadK(ctx, 1));
    d.rows = d.columns = -1;
    if (ctx.num_inputs() > 1) {
      MR_ASSIGN_OR_RETURN(d.rows, IntScalar(ctx.input(2), "num_rows"));
      MR_ASSIGN_OR_RETURN(d.columns, IntScalar(ctx.input(3), "num_cols"));
    }
    const int packed_rank = d.count() > 1 ? 2 : 1;
    if (in.rank() < packed_rank || (packed_rank == 2 && in.dim(in.rank() - 2) != d.count())) {
      return errors::InvalidArgument("diagonal of shape ", in.shape().DebugString(),
                                     " does not hold ", d.count(), " diagonals");
    }
    MR_RETURN_IF_ERROR(ChooseSize(in.dim(in.rank() - 1), &d));
    Shape shape(in.shape().dims().first(in.rank() - packed_rank));
    const int64_t batch = shape.num_elements();
    shape.AddDim(d.rows);
    shape.AddDim(d.columns);
    MR_ASSIGN_OR_RETURN(Tensor * out, PaddedOutput(ctx, shape, 4));
    if (out->num_elements() == 0) return OkStatus();  // of as many matrices as may be
    DispatchMovable(in.dtype(), [&]<typename T>() {
      const T* from = static_cast<const T*>(in.raw_data());
      T* to = static_cast<T*>(out->raw_data());
      for (int64_t b = 0; b < batch; ++b) {
        d.ForEach([&](int64_t packed, int64_t at) { to[at] = from[packed]; });
        from += d.count() * d.length();
        to += d.rows * d.columns;
      }
    });
    return OkStatus();
  }

 private:
  // Sizes of -1 are chosen: the smallest that hold diagonals of `length`, both if neither is
  // given for a square.
  static Status ChooseSize(int64_t length, Diagonals* d) {
    const int64_t least_rows = length - std::min<int64_t>(d->upper, 0);
    const int64_t least_columns = length + std::max<int64_t>(d->lower, 0);
    if (d->rows == -1 && d->columns == -1) {
      d->rows = d->columns = std::max(least_rows, least_columns);
    } else if (d->rows == -1) {
      d->rows = least_rows;
    } else if (d->columns == -1) {
      d->columns = least_columns;
    }
    if (d->rows < least_rows) {
      return errors::InvalidArgument("The number of rows is too small: ", d->rows);
    }
    if (d->columns < least_columns) {
      return errors::InvalidArgument("The number of columns is too small: ", d->columns);
    }
    if (d->rows != least_rows && d->columns != least_columns) {
      return errors::InvalidArgument("The number of rows or columns is not consistent with the ",
                                     "specified d_lower, d_upper, and diagonal.");
    }
    return CheckRange(*d);
  }
};

// Inputs: matrices, diagonals, k.
class MatrixSetDiagKernel : public MatrixDiagonalKernel {
 public:
  using MatrixDiagonalKernel::MatrixDiagonalKernel;
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const Tensor diagonal = ctx.input(1);
    if (shape.rank() < 2) {
      return errors::InvalidArgument("input must be at least 2-dim, received shape: ",
                                     shape.DebugString());
    }
    MR_ASSIGN_OR_RETURN(Diagonals d, ReadK(ctx, 2));
    d.rows = shape.dim(shape.rank() - 2);
    d.columns = shape.dim(shape.rank() - 1);
    MR_RETURN_IF_ERROR(CheckRange(d));
    Shape want(shape.dims().first(shape.rank() - 2));
    const int64_t batch = want.num_elements();
    if (d.count() > 1) want.AddDim(d.count());
    want.AddDim(d.length());
    if (!(diagonal.shape() == want)) {
      return errors::InvalidArgument("diagonal must have shape ", want.DebugString(), ", got ",
                                     diagonal.shape().DebugString());
    }
    const DataType dtype = ctx.input(0).dtype();
    const void* source = ctx.input(0).raw_data();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    if (out->num_elements() == 0) return OkStatus();
    const bool moved = DispatchMovable(dtype, [&]<typename T>() {
      T* to = static_cast<T*>(out->raw_data());
      if (to != source) std::copy_n(static_cast<const T*>(source), shape.num_elements(), to);
      const T* from = static_cast<const T*>(diagonal.raw_data());
      for (int64_t b = 0; b < batch; ++b) {
        d.ForEach([&](int64_t packed, int64_t at) { to[at] = from[packed]; });
        from += d.count() * d.length();
        to += d.rows * d.columns;
      }
    });
    return moved ? OkStatus() : CannotMove(dtype);
  }
};

// Keeps what is at most num_lower below and num_upper above the diagonal; negative: all.
class MatrixBandPartKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    if (shape.rank() < 2) {
      return errors::InvalidArgument("input must be at least 2-dim, received shape: ",
                                     shape.DebugString());
    }
    const int64_t rows = shape.dim(shape.rank() - 2), columns = shape.dim(shape.rank() - 1);
    MR_ASSIGN_OR_RETURN(int64_t lower, IntScalar(ctx.input(1), "num_lower"));
    MR_ASSIGN_OR_RETURN(int64_t upper, IntScalar(ctx.input(2), "num_upper"));
    if (lower > rows) {
      return errors::InvalidArgument("num_lower must be negative or less or equal to number of ",
                                     "rows (", rows, ") got: ", lower);
    }
    if (upper > columns) {
      return errors::InvalidArgument("num_upper must be negative or less or equal to number of ",
                                     "columns (", columns, ") got: ", upper);
    }
    if (lower < 0) lower = rows;
    if (upper < 0) upper = columns;
    const DataType dtype = ctx.input(0).dtype();
    const void* source = ctx.input(0).raw_data();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    const int64_t all_rows = columns == 0 ? 0 : shape.num_elements() / columns;
    const bool moved = DispatchMovable(dtype, [&]<typename T>() {
      const T* from = static_cast<const T*>(source);
      T* to = static_cast<T*>(out->raw_data());
      ctx.ParallelFor(all_rows, static_cast<double>(columns), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t i = r % rows;
          for (int64_t j = 0; j < columns; ++j) {
            const bool kept = i - j <= lower && j - i <= upper;
            to[r * columns + j] = kept ? from[r * columns + j] : T();
          }
        }
      });
    });
    return moved ? OkStatus() : CannotMove(dtype);
  }
};

// Diag: a tensor of rank r on the diagonal of one of rank 2 r; DiagPart: back.
template <bool kPart>
class DiagKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const auto dims = in.shape().dims();
    Shape shape;
    if (kPart) {
      const int half = in.rank() / 2;
      if (in.rank() % 2 != 0) {  // a scalar is its own diagonal, as in TensorFlow
        return errors::InvalidArgument("The rank of the tensor should be even and positive, got ",
                                       "shape ", in.shape().DebugString());
      }
      for (int i = 0; i < half; ++i) {
        if (dims[i] != dims[i + half]) {
          return errors::InvalidArgument("Invalid shape ", in.shape().DebugString(),
                                         ": dimensions ", i, " and ", i + half, " do not match.");
        }
        shape.AddDim(dims[i]);
      }
    } else {
      if (in.rank() == 0) {
        return errors::InvalidArgument("Input must be at least rank 1, got 0");
      }
      Dims twice(dims.begin(), dims.end());
      twice.insert(twice.end(), dims.begin(), dims.end());
      MR_ASSIGN_OR_RETURN(shape, MakeShape({twice.data(), twice.size()}));
    }
    const int64_t n = kPart ? shape.num_elements() : Product(dims);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!kPart) FillZero(ctx, in.dtype(), out->raw_data(), shape.num_elements());
    const CopyDim along = kPart ? CopyDim{n, n + 1, 1} : CopyDim{n, 1, n + 1};
    if (!CopyStrided(ctx, in.dtype(), in.raw_data(), out->raw_data(), {along})) {
      return CannotMove(in.dtype());
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterDiagonalKernels(KernelRegistry& r) {
  for (const char* version : {"", "V2", "V3"}) {
    RegisterCpu<MatrixDiagPartKernel>(r, StrCat("MatrixDiagPart", version));
    RegisterCpu<MatrixDiagKernel>(r, StrCat("MatrixDiag", version));
    RegisterCpu<MatrixSetDiagKernel>(r, StrCat("MatrixSetDiag", version));
  }
  RegisterCpu<MatrixBandPartKernel>(r, "MatrixBandPart");
  RegisterCpu<DiagKernel<false>>(r, "Diag");
  RegisterCpu<DiagKernel<true>>(r, "DiagPart");
}

}  // namespace millrace
