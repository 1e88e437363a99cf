// SPDX-License-Identifier: Apache-2.0
// MatMul and BatchMatMul. float and double go to the blocked product of gemm.h, 16-bit
// floats through float copies of their operands, everything else through plain loops.
#include <algorithm>
#include <complex>
#include <string>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/gemm.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/linear_algebra/matmul_plan.h"
#include "kernels/nn/epilogue.h"

namespace millrace {
namespace {

// One product c[m, n] = op(a) * op(b), where op may transpose (and conjugate).
struct Product {
  int64_t m, n, k;
  bool transpose_a, transpose_b, conjugate_a, conjugate_b;

  template <typename T>
  MatrixView<T> ViewA(const T* a) const {
    return transpose_a ? MatrixView<T>{a, 1, m} : MatrixView<T>{a, k, 1};
  }
  template <typename T>
  MatrixView<T> ViewB(const T* b) const {
    return transpose_b ? MatrixView<T>{b, 1, k} : MatrixView<T>{b, n, 1};
  }
};

void RunHere(int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> body) { body(0, n); }

template <typename T>
T Conjugated(T value, bool conjugate) {
  if constexpr (kIsComplex<T>) {
    return conjugate ? std::conj(value) : value;
  } else {
    return value;
  }
}

// Integers wrap around, as TensorFlow's do.
template <typename T>
T MultiplyAdd(T sum, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(static_cast<U>(sum) + static_cast<U>(a) * static_cast<U>(b));
  } else {
    return sum + a * b;
  }
}

template <typename T>
void PlainProduct(const Product& p, const T* a, const T* b, T* c, ParallelRunner parallel) {
  const MatrixView<T> va = p.ViewA(a), vb = p.ViewB(b);
  parallel(p.m, static_cast<double>(p.n * p.k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = c + i * p.n;
      std::fill_n(row, p.n, T());
      for (int64_t q = 0; q < p.k; ++q) {
        const T x = Conjugated(va.data[i * va.row_stride + q * va.col_stride], p.conjugate_a);
        const T* y = vb.data + q * vb.row_stride;
        for (int64_t j = 0; j < p.n; ++j) {
          row[j] = MultiplyAdd(row[j], x, Conjugated(y[j * vb.col_stride], p.conjugate_b));
        }
      }
    }
  });
}

template <typename T>
void Multiply(const Product& p, const T* a, const T* b, T* c, ParallelRunner parallel) {
  if constexpr (std::is_floating_point_v<T>) {
    Gemm<T>(p.m, p.n, p.k, p.ViewA(a), p.ViewB(b), c, p.n, false, parallel);
  } else {
    PlainProduct(p, a, b, c, parallel);
  }
}

// A batch of products; batch i reads a + a_offsets(i) and b + b_offsets(i).
struct Batch {
  Product product;
  const BroadcastPlan* plan;  // over the batch axes; null for a single product
};

template <typename T>
void MultiplyBatch(KernelContext& ctx, const Batch& batch, const T* a, const T* b, T* c) {
  const Product& p = batch.product;
  const auto parallel = [&ctx](int64_t n, double cost,
                               absl::FunctionRef<void(int64_t, int64_t)> body) {
    ctx.ParallelFor(n, cost, body);
  };
  if (batch.plan == nullptr) return Multiply(p, a, b, c, parallel);
  const BroadcastPlan& plan = *batch.plan;
  const int64_t count = plan.out.num_elements();
  const int64_t a_size = p.m * p.k, b_size = p.k * p.n, c_size = p.m * p.n;
  const double flops = static_cast<double>(c_size) * static_cast<double>(p.k);
  // Few large products are shared out one by one, many small ones between threads.
  const bool split_inside = count < 4 && flops > 1e6;
  const auto run = [&](int64_t begin, int64_t end, ParallelRunner inner) {
    const int64_t a_step = plan.dims.back().a_stride, b_step = plan.dims.back().b_stride;
    plan.ForEachRun(begin, end, [&](int64_t ai, int64_t bi, int64_t out, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        Multiply(p, a + (ai + i * a_step) * a_size, b + (bi + i * b_step) * b_size,
                 c + (out + i) * c_size, inner);
      }
      return true;
    });
  };
  if (count == 0) return;
  if (split_inside) return run(0, count, parallel);
  ctx.ParallelFor(count, flops / 20, [&](int64_t begin, int64_t end) { run(begin, end, RunHere); });
}

// A copy in float of what has 16 bits.
template <typename T>
StatusOr<Tensor> Widened(KernelContext& ctx, const Tensor& in) {
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, in.shape()));
  const T* const from = in.data<T>();
  float* const to = wide.data<float>();
  for (int64_t i = 0; i < in.num_elements(); ++i) to[i] = static_cast<float>(from[i]);
  return wide;
}

template <typename T>
void Narrow(const float* in, int64_t n, T* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = T(in[i]);
}

template <typename T>
Status RunBatch(KernelContext& ctx, const Batch& batch, const Tensor& a, const Tensor& b,
                Tensor* c) {
  if constexpr (kIsSmallFloat<T>) {
    MR_ASSIGN_OR_RETURN(const Tensor wide_a, Widened<T>(ctx, a));
    MR_ASSIGN_OR_RETURN(const Tensor wide_b, Widened<T>(ctx, b));
    MR_ASSIGN_OR_RETURN(Tensor wide_c, ctx.AllocateTemp(kFloat, c->shape()));
    MultiplyBatch<float>(ctx, batch, wide_a.data<float>(), wide_b.data<float>(),
                         wide_c.data<float>());
    Narrow(wide_c.data<float>(), c->num_elements(), c->data<T>());
  } else {
    MultiplyBatch<T>(ctx, batch, a.data<T>(), b.data<T>(), c->data<T>());
  }
  return OkStatus();
}

Status RunTyped(KernelContext& ctx, const Batch& batch, const Tensor& a, const Tensor& b,
                Tensor* c) {
  if (c->num_elements() == 0) return OkStatus();  // of whatever many products
  Status status;
  const bool known = DispatchType(NumberTypes(), a.dtype(),
                                  [&]<typename T>() { status = RunBatch<T>(ctx, batch, a, b, c); });
  // Made only when needed: a status with a text takes memory.
  if (!known) return errors::Unimplemented("no matrix product of ", DataTypeName(a.dtype()));
  return status;
}

class MatMulKernel : public Kernel {
 public:
  explicit MatMulKernel(KernelConstruction& c)
      : Kernel(c),
        transpose_a_(c.attr<bool>("transpose_a")),
        transpose_b_(c.attr<bool>("transpose_b")) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Product product, ReadProduct(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * c, ctx.AllocateOutput(0, Shape({product.m, product.n})));
    return RunTyped(ctx, {product, nullptr}, ctx.input(0), ctx.input(1), c);
  }

 protected:
  StatusOr<Product> ReadProduct(KernelContext& ctx) const {
    MR_ASSIGN_OR_RETURN(
        const ProductSizes sizes,
        PlanMatMul(ctx.input(0).shape(), ctx.input(1).shape(), transpose_a_, transpose_b_));
    return Product{sizes.m, sizes.n, sizes.k, transpose_a_, transpose_b_, false, false};
  }

 private:
  const bool transpose_a_, transpose_b_;
};

// With a bias, and perhaps an activation (graph/rewrite/fuse_products.cc). 16-bit floats are
// rounded where the nodes rounded them: after the product, the bias and the activation.
class FusedMatMulKernel : public MatMulKernel {
 public:
  explicit FusedMatMulKernel(KernelConstruction& c) : MatMulKernel(c), epilogue_(c) {}

  Status Compute(KernelContext& ctx) override {
    StatusOr<Product> product = ReadProduct(ctx);
    if (!product.ok()) return epilogue_.OfProduct(std::move(product).status());
    MR_RETURN_IF_ERROR(epilogue_.Check(ctx.input(2), product->n));
    MR_ASSIGN_OR_RETURN(Tensor * c, ctx.AllocateOutput(0, Shape({product->m, product->n})));
    Status status;
    DispatchType(FloatTypes(), c->dtype(),
                 [&]<typename T>() { status = Run<T>(ctx, *product, c); });
    return status;
  }

 private:
  template <typename T>
  Status Run(KernelContext& ctx, const Product& p, Tensor* to) const {
    T* const c = to->data<T>();
    const T* const bias = ctx.input(2).data<T>();
    if constexpr (kIsSmallFloat<T>) {
      MR_ASSIGN_OR_RETURN(const Tensor a, Widened<T>(ctx, ctx.input(0)));
      MR_ASSIGN_OR_RETURN(const Tensor b, Widened<T>(ctx, ctx.input(1)));
      MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, to->shape()));
      float* const product = wide.data<float>();
      Multiply(ctx, p, a.data<float>(), b.data<float>(), product,
               [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
                 const int64_t first = row * p.n + column;
                 for (int64_t i = 0, at = first; i < rows; ++i, at += p.n) {
                   Narrow(product + at, columns, c + at);
                 }
                 epilogue_.Apply(c + first, rows, columns, p.n, bias + column);
               });
    } else {
      Multiply(ctx, p, ctx.input(0).data<T>(), ctx.input(1).data<T>(), c,
               [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
                 epilogue_.Apply(c + row * p.n + column, rows, columns, p.n, bias + column);
               });
    }
    return OkStatus();
  }

  template <typename T>
  static void Multiply(KernelContext& ctx, const Product& p, const T* a, const T* b, T* c,
                       GemmEpilogue finish) {
    Gemm<T>(
        p.m, p.n, p.k, p.ViewA(a), p.ViewB(b), c, p.n, false,
        [&ctx](int64_t n, double cost, absl::FunctionRef<void(int64_t, int64_t)> body) {
          ctx.ParallelFor(n, cost, body);
        },
        &finish);
  }

  const Epilogue epilogue_;
};

class BatchMatMulKernel : public Kernel {
 public:
  explicit BatchMatMulKernel(KernelConstruction& c)
      : Kernel(c),
        adj_x_(c.attr<bool>("adj_x")),
        adj_y_(c.attr<bool>("adj_y")),
        broadcasts_(c.def().name() != "BatchMatMul") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& y = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const BatchProductSizes sizes,
                        PlanBatchMatMul(x.shape(), y.shape(), adj_x_, adj_y_, broadcasts_));
    const ProductSizes& each = sizes.each;
    const Batch batch{{each.m, each.n, each.k, adj_x_, adj_y_, adj_x_, adj_y_}, &sizes.batches};
    MR_ASSIGN_OR_RETURN(Tensor * c, ctx.AllocateOutput(0, sizes.out));
    MR_ASSIGN_OR_RETURN(const Tensor left, Converted(ctx, x, c->dtype()));
    MR_ASSIGN_OR_RETURN(const Tensor right, Converted(ctx, y, c->dtype()));
    return RunTyped(ctx, batch, left, right, c);
  }

 private:
  // An operand in the type of the product; bytes, which BatchMatMulV3 takes beside it, fit in all.
  static StatusOr<Tensor> Converted(KernelContext& ctx, const Tensor& operand, DataType type) {
    if (operand.dtype() == type) return operand;
    MR_ASSIGN_OR_RETURN(Tensor made, ctx.AllocateTemp(type, operand.shape()));
    DispatchType(TypeList<int8_t, uint8_t>(), operand.dtype(), [&]<typename From>() {
      DispatchType(TypeList<int32_t, BFloat16>(), type, [&]<typename To>() {
        const From* const from = operand.data<From>();
        To* const to = made.data<To>();
        for (int64_t i = 0; i < operand.num_elements(); ++i) {
          to[i] = static_cast<To>(static_cast<ComputeType<To>>(from[i]));
        }
      });
    });
    return made;
  }

  const bool adj_x_, adj_y_, broadcasts_;
};

}  // namespace

void RegisterMatMulKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("MatMul").Types("T", DataTypesOf(NumberTypes())),
                    MakeKernel<MatMulKernel>);
  registry.Register(KernelDef("_FusedMatMul").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<FusedMatMulKernel>);
  for (const char* op : {"BatchMatMul", "BatchMatMulV2"}) {
    registry.Register(KernelDef(op).Types("T", DataTypesOf(NumberTypes())),
                      MakeKernel<BatchMatMulKernel>);
  }
  const auto register_mixed = [&](DataType x, DataType y, DataType product) {
    registry.Register(
        KernelDef("BatchMatMulV3").Types("Ta", {x}).Types("Tb", {y}).Types("Tout", {product}),
        MakeKernel<BatchMatMulKernel>);
  };
  for (const DataType type :
       {kBfloat16, kFloat, kDouble, kInt16, kInt32, kInt64, kComplex64, kComplex128}) {
    register_mixed(type, type, type);
  }
  for (const DataType byte : {kInt8, kUint8}) {
    for (const DataType other : {kInt8, kUint8}) register_mixed(byte, other, kInt32);
    register_mixed(byte, kBfloat16, kBfloat16);
    register_mixed(kBfloat16, byte, kBfloat16);
  }
}

}  // namespace millrace
