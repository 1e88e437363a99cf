// SPDX-License-Identifier: Apache-2.0
// GRU cells (Cho et al., 2014): GRUBlockCell and its gradient, one step each. The candidate sees
// the state as the reset gate leaves it.
#include <algorithm>

#include "kernels/common/float_math.h"
#include "kernels/nn/recurrent.h"

namespace millrace {
namespace {

struct GruSizes {
  int64_t batch = 0, inputs = 0, cells = 0;
  int64_t gates() const { return 2 * cells; }
  int64_t state() const { return batch * cells; }
  Shape StateShape() const { return {batch, cells}; }
};

StatusOr<GruSizes> CheckGru(KernelContext& ctx) {
  const Tensor &x = ctx.input(0), &h_prev = ctx.input(1);
  if (x.rank() != 2) return CheckOperand(x, "x", {{0, ""}, {0, ""}});
  if (h_prev.rank() != 2) return CheckOperand(h_prev, "h_prev", {{0, ""}, {0, ""}});
  const GruSizes s{x.dim(0), x.dim(1), h_prev.dim(1)};
  if (s.cells > INT32_MAX || s.inputs > INT32_MAX) {
    return errors::InvalidArgument("cells and inputs must be fewer than 2^31, got ", s.cells,
                                   " and ", s.inputs);
  }
  const WantedSize rows{s.inputs + s.cells, "input_size + cell_size"};
  MR_RETURN_IF_ERROR(
      CheckOperand(h_prev, "h_prev", {{s.batch, "batch_size"}, {s.cells, "cell_size"}}));
  MR_RETURN_IF_ERROR(CheckOperand(ctx.input(2), "w_ru", {rows, {s.gates(), "cell_size * 2"}}));
  MR_RETURN_IF_ERROR(CheckOperand(ctx.input(3), "w_c", {rows, {s.cells, "cell_size"}}));
  MR_RETURN_IF_ERROR(CheckOperand(ctx.input(4), "b_ru", {{s.gates(), "cell_size * 2"}}));
  MR_RETURN_IF_ERROR(CheckOperand(ctx.input(5), "b_c", {{s.cells, "cell_size"}}));
  return s;
}

// sums[batch, n] = [x, h] * w + bias.
void Combine(KernelContext& ctx, const GruSizes& s, const float* x, const float* h, const Tensor& w,
             const Tensor& bias, float* sums) {
  const int64_t n = w.dim(1);
  for (int64_t b = 0; b < s.batch; ++b) std::copy_n(bias.data<float>(), n, sums + b * n);
  const float* const weights = w.data<float>();
  AddProduct(ctx, s.batch, n, s.inputs, {x, s.inputs, 1}, {weights, n, 1}, sums, n);
  AddProduct(ctx, s.batch, n, s.cells, {h, s.cells, 1}, {weights + s.inputs * n, n, 1}, sums, n);
}

class GruBlockCellKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const GruSizes s, CheckGru(ctx));
    Tensor* out[4];
    for (int i = 0; i < 4; ++i) {
      MR_ASSIGN_OR_RETURN(out[i], ctx.AllocateOutput(i, s.StateShape()));
    }
    if (s.state() == 0) return OkStatus();
    float *const r = out[0]->data<float>(), *const u = out[1]->data<float>(),
                 *const c = out[2]->data<float>(), *const h = out[3]->data<float>();
    const float *const x = ctx.input(0).data<float>(), *const h_prev = ctx.input(1).data<float>();
    MR_ASSIGN_OR_RETURN(Tensor gates, ctx.AllocateTemp(kFloat, Shape({s.batch, s.gates()})));
    MR_ASSIGN_OR_RETURN(Tensor kept, ctx.AllocateTemp(kFloat, s.StateShape()));
    Combine(ctx, s, x, h_prev, ctx.input(2), ctx.input(4), gates.data<float>());
    for (int64_t b = 0; b < s.batch; ++b) {
      const float* const row = gates.data<float>() + b * s.gates();
      for (int64_t k = 0; k < s.cells; ++k) {
        const int64_t at = b * s.cells + k;
        r[at] = float_math::Sigmoid(row[k]);
        u[at] = float_math::Sigmoid(row[s.cells + k]);
        kept.data<float>()[at] = h_prev[at] * r[at];
      }
    }
    Combine(ctx, s, x, kept.data<float>(), ctx.input(3), ctx.input(5), c);
    for (int64_t at = 0; at < s.state(); ++at) {
      c[at] = float_math::Tanh(c[at]);
      h[at] = u[at] * h_prev[at] + (1 - u[at]) * c[at];
    }
    return OkStatus();
  }
};

class GruBlockCellGradKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const GruSizes s, CheckGru(ctx));
    constexpr std::string_view kNames[] = {"r", "u", "c", "d_h"};
    for (int i = 0; i < 4; ++i) {
      MR_RETURN_IF_ERROR(CheckOperand(ctx.input(6 + i), kNames[i],
                                      {{s.batch, "batch_size"}, {s.cells, "cell_size"}}));
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, ctx.input(0).shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dh, ctx.AllocateOutput(1, s.StateShape()));
    MR_ASSIGN_OR_RETURN(Tensor * dc, ctx.AllocateOutput(2, s.StateShape()));
    MR_ASSIGN_OR_RETURN(Tensor * dru, ctx.AllocateOutput(3, Shape({s.batch, s.gates()})));
    std::fill_n(dx->data<float>(), dx->num_elements(), 0.0f);
    if (s.state() == 0) return OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor kept, ctx.AllocateTemp(kFloat, s.StateShape()));
    std::fill_n(kept.data<float>(), s.state(), 0.0f);
    return Run(ctx, s, dx->data<float>(), dh->data<float>(), dc->data<float>(), dru->data<float>(),
               kept.data<float>());
  }

 private:
  // `kept`: zeros that become the gradient of the state that the reset gate leaves.
  static Status Run(KernelContext& ctx, const GruSizes& s, float* dx, float* dh, float* dc,
                    float* dru, float* kept) {
    const float* const h_prev = ctx.input(1).data<float>();
    const float *const r = ctx.input(6).data<float>(), *const u = ctx.input(7).data<float>(),
                       *const c = ctx.input(8).data<float>(), *const d = ctx.input(9).data<float>();
    for (int64_t at = 0; at < s.state(); ++at) {
      dc[at] = d[at] * (1 - u[at]) * (1 - c[at] * c[at]);
    }
    AddInputs(ctx, s, dc, ctx.input(3), dx, kept);
    for (int64_t b = 0; b < s.batch; ++b) {
      float* const row = dru + b * s.gates();
      for (int64_t k = 0; k < s.cells; ++k) {
        const int64_t at = b * s.cells + k;
        row[k] = kept[at] * h_prev[at] * r[at] * (1 - r[at]);
        row[s.cells + k] = d[at] * (h_prev[at] - c[at]) * u[at] * (1 - u[at]);
        dh[at] = kept[at] * r[at] + d[at] * u[at];
      }
    }
    AddInputs(ctx, s, dru, ctx.input(2), dx, dh);
    return OkStatus();
  }

  // [dx, dh] += sums[batch, n] * w transposed.
  static void AddInputs(KernelContext& ctx, const GruSizes& s, const float* sums, const Tensor& w,
                        float* dx, float* dh) {
    const int64_t n = w.dim(1);
    const float* const weights = w.data<float>();
    AddProduct(ctx, s.batch, s.inputs, n, {sums, n, 1}, {weights, 1, n}, dx, s.inputs);
    AddProduct(ctx, s.batch, s.cells, n, {sums, n, 1}, {weights + s.inputs * n, 1, n}, dh, s.cells);
  }
};

}  // namespace

void RegisterGruKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("GRUBlockCell").Type<float>("T"), &MakeKernel<GruBlockCellKernel>);
  registry.Register(KernelDef("GRUBlockCellGrad").Type<float>("T"),
                    &MakeKernel<GruBlockCellGradKernel>);
}

}  // namespace millrace
