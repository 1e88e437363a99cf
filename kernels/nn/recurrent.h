// SPDX-License-Identifier: Apache-2.0
// Cells of recurrent networks whose steps are one kernel each, or one for a whole sequence.
#ifndef KERNELS_NN_RECURRENT_H_
#define KERNELS_NN_RECURRENT_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/gemm.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"

namespace millrace {

// One size that an operand must have, and what it is called in errors.
struct WantedSize {
  int64_t size;
  std::string_view what;
};
// InvalidArgument unless the operand has these sizes.
inline Status CheckOperand(const Tensor& t, std::string_view name,
                           std::initializer_list<WantedSize> wanted) {
  const int rank = static_cast<int>(wanted.size());
  if (t.rank() != rank) {
    return errors::InvalidArgument(name, " must be rank ", rank, " but is rank ", t.rank(), " (",
                                   name, " must be ", rank, "D)");
  }
  int axis = 0;
  for (const WantedSize& w : wanted) {
    if (t.dim(axis) != w.size) {
      // Weights have a dim_size, states have dims, as clients know these texts.
      const bool weights = name.starts_with('w') || name.starts_with('b');
      return errors::InvalidArgument(name, weights ? ".dim_size(" : ".dims(", axis, ") != ", w.what,
                                     ": ", t.dim(axis), " vs. ", w.size);
    }
    ++axis;
  }
  return OkStatus();
}

// c[m, n] += a[m, k] * b[k, n].
inline void AddProduct(KernelContext& ctx, int64_t m, int64_t n, int64_t k, MatrixView<float> a,
                       MatrixView<float> b, float* c, int64_t c_stride) {
  if (m == 0 || n == 0 || k == 0) return;
  Gemm<float>(m, n, k, a, b, c, c_stride, true,
              [&ctx](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> body) {
                ctx.ParallelFor(count, cost, body);
              });
}

// A tensor as floats: itself, or a copy of halves.
inline StatusOr<Tensor> AsFloats(KernelContext& ctx, const Tensor& t) {
  if (t.dtype() == kFloat) return t;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, t.shape()));
  const Half* const from = t.data<Half>();
  for (int64_t i = 0; i < t.num_elements(); ++i)
    wide.data<float>()[i] = static_cast<float>(from[i]);
  return wide;
}

// Outputs that are computed as floats: themselves, or temporaries that become halves.
class FloatOutput {
 public:
  // `ctx` outlives it.
  Status Allocate(KernelContext& ctx, int i, const Shape& shape) {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, shape));
    out_ = *out;
    floats_ = out_;
    if (out_.dtype() == kFloat) return OkStatus();
    MR_ASSIGN_OR_RETURN(floats_, ctx.AllocateTemp(kFloat, shape));
    return OkStatus();
  }
  float* data() { return floats_.data<float>(); }
  int64_t size() const { return floats_.num_elements(); }
  // Once all floats are there.
  void Finish() {
    if (out_.dtype() == kFloat) return;
    for (int64_t i = 0; i < size(); ++i) out_.data<Half>()[i] = Half(data()[i]);
  }

 private:
  Tensor out_, floats_;
};

void RegisterLstmKernels(KernelRegistry& registry);
void RegisterGruKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_NN_RECURRENT_H_
