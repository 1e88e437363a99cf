// SPDX-License-Identifier: Apache-2.0
// LSTM cells (Hochreiter and Schmidhuber, 1997, with forget gates), perhaps with peepholes (Gers
// and Schmidhuber, 2000): LSTMBlockCell is one step, BlockLSTM a sequence of them. Everything is
// computed in floats; what a step made is in outputs, from which the gradient is computed.
#include <algorithm>
#include <array>
#include <string>

#include "kernels/common/float_math.h"
#include "kernels/nn/recurrent.h"

namespace millrace {
namespace {

struct LstmSizes {
  int64_t batch = 0, inputs = 0, cells = 0;
  int64_t gates() const { return 4 * cells; }
  int64_t state() const { return batch * cells; }
};

// Where each gate's columns begin in products, in cells.
struct GateOrder {
  int64_t input, cell, forget, output;
};
constexpr GateOrder kCellFirst = {0, 1, 2, 3};
constexpr GateOrder kForgetFirst = {0, 2, 1, 3};  // of BlockLSTMV2, as cuDNN has it

// Operands of all steps.
struct LstmWeights {
  Tensor w;                        // [inputs + cells, 4 cells]
  Tensor bias;                     // [4 cells]
  std::array<Tensor, 3> peephole;  // of the input, forget and output gates: [cells]
};

// What a step makes, [batch, cells] each, in the order of the ops' outputs.
enum Part { kI, kCs, kF, kO, kCi, kCo, kH, kParts };
using StepValues = std::array<float*, kParts>;
using ConstStepValues = std::array<const float*, kParts>;

// x, the states before and the weights, which are inputs `first` and on; sizes of one step.
StatusOr<LstmSizes> CheckLstm(KernelContext& ctx, int first, int64_t batch, int64_t inputs) {
  const Tensor& cs_prev = ctx.input(first + 1);
  if (cs_prev.rank() != 2) return CheckOperand(cs_prev, "cs_prev", {{0, ""}, {0, ""}});
  const LstmSizes s{batch, inputs, cs_prev.dim(1)};
  if (s.cells > INT32_MAX || s.inputs > INT32_MAX) {
    return errors::InvalidArgument("cells and inputs must be fewer than 2^31, got ", s.cells,
                                   " and ", s.inputs);
  }
  MR_RETURN_IF_ERROR(
      CheckOperand(cs_prev, "cs_prev", {{batch, "batch_size"}, {s.cells, "cell_size"}}));
  MR_RETURN_IF_ERROR(CheckOperand(ctx.input(first + 2), "h_prev",
                                  {{batch, "batch_size"}, {s.cells, "cell_size"}}));
  MR_RETURN_IF_ERROR(
      CheckOperand(ctx.input(first + 3), "w",
                   {{s.inputs + s.cells, "input_size + cell_size"}, {s.gates(), "cell_size * 4"}}));
  constexpr std::string_view kPeepholes[] = {"wci", "wcf", "wco"};
  for (int i = 0; i < 3; ++i) {
    MR_RETURN_IF_ERROR(
        CheckOperand(ctx.input(first + 4 + i), kPeepholes[i], {{s.cells, "cell_size"}}));
  }
  MR_RETURN_IF_ERROR(CheckOperand(ctx.input(first + 7), "b", {{s.gates(), "cell_size * 4"}}));
  return s;
}

StatusOr<LstmWeights> ReadWeights(KernelContext& ctx, int first) {
  LstmWeights weights;
  MR_ASSIGN_OR_RETURN(weights.w, AsFloats(ctx, ctx.input(first)));
  for (int i = 0; i < 3; ++i) {
    MR_ASSIGN_OR_RETURN(weights.peephole[i], AsFloats(ctx, ctx.input(first + 1 + i)));
  }
  MR_ASSIGN_OR_RETURN(weights.bias, AsFloats(ctx, ctx.input(first + 4)));
  return weights;
}

// Steps, forwards.
class LstmCell {
 public:
  LstmCell(KernelConstruction& c, const GateOrder& order)
      : order_(order),
        forget_bias_(c.attrs().GetOr<float>("forget_bias", 0.0f)),
        clip_(c.attr<float>("cell_clip")),
        peepholes_(c.attr<bool>("use_peephole")) {}

  // `gates`: room for the products, [batch, 4 cells].
  void Step(KernelContext& ctx, const LstmSizes& s, const LstmWeights& weights, const float* x,
            const float* cs_prev, const float* h_prev, float* gates, const StepValues& to) const {
    const float* const w = weights.w.data<float>();
    const float* const bias = weights.bias.data<float>();
    for (int64_t b = 0; b < s.batch; ++b) std::copy_n(bias, s.gates(), gates + b * s.gates());
    AddProduct(ctx, s.batch, s.gates(), s.inputs, {x, s.inputs, 1}, {w, s.gates(), 1}, gates,
               s.gates());
    AddProduct(ctx, s.batch, s.gates(), s.cells, {h_prev, s.cells, 1},
               {w + s.inputs * s.gates(), s.gates(), 1}, gates, s.gates());
    constexpr double kNanosPerCell = 60;
    ctx.ParallelFor(s.batch, kNanosPerCell * static_cast<double>(s.cells),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t b = begin; b < end; ++b) {
                        Cells(s, weights, gates + b * s.gates(), cs_prev, b * s.cells, to);
                      }
                    });
  }

 private:
  // One example, whose elements begin at `at`.
  void Cells(const LstmSizes& s, const LstmWeights& weights, const float* gates,
             const float* cs_prev, int64_t at, const StepValues& to) const {
    const float* const wci = weights.peephole[0].data<float>();
    const float* const wcf = weights.peephole[1].data<float>();
    const float* const wco = weights.peephole[2].data<float>();
    for (int64_t k = 0; k < s.cells; ++k) {
      const float before = cs_prev[at + k];
      const float peep_i = peepholes_ ? before * wci[k] : 0;
      const float peep_f = peepholes_ ? before * wcf[k] : 0;
      const float i = float_math::Sigmoid(gates[order_.input * s.cells + k] + peep_i);
      const float f =
          float_math::Sigmoid(gates[order_.forget * s.cells + k] + forget_bias_ + peep_f);
      const float ci = float_math::Tanh(gates[order_.cell * s.cells + k]);
      float cs = ci * i + before * f;
      if (clip_ > 0) cs = cs > clip_ ? clip_ : cs < -clip_ ? -clip_ : cs;
      const float peep_o = peepholes_ ? cs * wco[k] : 0;
      const float o = float_math::Sigmoid(gates[order_.output * s.cells + k] + peep_o);
      const float co = float_math::Tanh(cs);
      to[kI][at + k] = i;
      to[kCs][at + k] = cs;
      to[kF][at + k] = f;
      to[kO][at + k] = o;
      to[kCi][at + k] = ci;
      to[kCo][at + k] = co;
      to[kH][at + k] = o * co;
    }
  }

  const GateOrder order_;
  const float forget_bias_, clip_;
  const bool peepholes_;
};

// Steps, backwards.
class LstmCellGrad {
 public:
  LstmCellGrad(KernelConstruction& c, const GateOrder& order)
      : order_(order), peepholes_(c.attr<bool>("use_peephole")) {}

  // From the gradients of cs and h to those of the cells before and of the gates' sums,
  // [batch, 4 cells]; those of the peepholes are added to.
  void Step(KernelContext& ctx, const LstmSizes& s, const LstmWeights& weights,
            const ConstStepValues& made, const float* cs_prev, const float* cs_grad,
            const float* h_grad, float* cs_prev_grad, float* gates,
            const std::array<float*, 3>& peephole_grads) const {
    constexpr double kNanosPerCell = 20;
    ctx.ParallelFor(s.batch, kNanosPerCell * static_cast<double>(s.cells),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t b = begin; b < end; ++b) {
                        Cells(s, weights, made, cs_prev, cs_grad, h_grad, b * s.cells, cs_prev_grad,
                              gates + b * s.gates());
                      }
                    });
    if (!peepholes_) return;
    // Cells are shared out, not examples: sums do not depend on the number of threads.
    ctx.ParallelFor(s.cells, 5.0 * static_cast<double>(s.batch), [&](int64_t begin, int64_t end) {
      for (int64_t b = 0; b < s.batch; ++b) {
        const float* const row = gates + b * s.gates();
        for (int64_t k = begin; k < end; ++k) {
          peephole_grads[0][k] += row[order_.input * s.cells + k] * cs_prev[b * s.cells + k];
          peephole_grads[1][k] += row[order_.forget * s.cells + k] * cs_prev[b * s.cells + k];
          peephole_grads[2][k] += row[order_.output * s.cells + k] * made[kCs][b * s.cells + k];
        }
      }
    });
  }

 private:
  void Cells(const LstmSizes& s, const LstmWeights& weights, const ConstStepValues& made,
             const float* cs_prev, const float* cs_grad, const float* h_grad, int64_t at,
             float* cs_prev_grad, float* gates) const {
    const float* const wci = weights.peephole[0].data<float>();
    const float* const wcf = weights.peephole[1].data<float>();
    const float* const wco = weights.peephole[2].data<float>();
    for (int64_t k = 0; k < s.cells; ++k) {
      const float i = made[kI][at + k], f = made[kF][at + k], o = made[kO][at + k];
      const float ci = made[kCi][at + k], co = made[kCo][at + k], dh = h_grad[at + k];
      const float d_o = o * (1 - o) * dh * co;
      float dcs = (1 - co * co) * dh * o + cs_grad[at + k];
      if (peepholes_) dcs += d_o * wco[k];
      const float dci = (1 - ci * ci) * dcs * i;
      const float df = f * (1 - f) * dcs * cs_prev[at + k];
      const float di = i * (1 - i) * dcs * ci;
      float before = dcs * f;
      if (peepholes_) before += di * wci[k] + df * wcf[k];
      cs_prev_grad[at + k] = before;
      gates[order_.input * s.cells + k] = di;
      gates[order_.cell * s.cells + k] = dci;
      gates[order_.forget * s.cells + k] = df;
      gates[order_.output * s.cells + k] = d_o;
    }
  }

  const GateOrder order_;
  const bool peepholes_;
};

// -- One step --

class LstmBlockCellKernel : public Kernel {
 public:
  explicit LstmBlockCellKernel(KernelConstruction& c) : Kernel(c), cell_(c, kCellFirst) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() != 2) return CheckOperand(in, "x", {{0, ""}, {0, ""}});
    MR_ASSIGN_OR_RETURN(const LstmSizes s, CheckLstm(ctx, 0, in.dim(0), in.dim(1)));
    MR_ASSIGN_OR_RETURN(const Tensor x, AsFloats(ctx, in));
    MR_ASSIGN_OR_RETURN(const Tensor cs_prev, AsFloats(ctx, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Tensor h_prev, AsFloats(ctx, ctx.input(2)));
    MR_ASSIGN_OR_RETURN(const LstmWeights weights, ReadWeights(ctx, 3));
    std::array<FloatOutput, kParts> out;
    StepValues to;
    for (int i = 0; i < kParts; ++i) {
      MR_RETURN_IF_ERROR(out[i].Allocate(ctx, i, Shape({s.batch, s.cells})));
      to[i] = out[i].data();
    }
    if (out[0].size() == 0) return OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor gates, ctx.AllocateTemp(kFloat, Shape({s.batch, s.gates()})));
    cell_.Step(ctx, s, weights, x.data<float>(), cs_prev.data<float>(), h_prev.data<float>(),
               gates.data<float>(), to);
    for (FloatOutput& part : out) part.Finish();
    return OkStatus();
  }

 private:
  const LstmCell cell_;
};

class LstmBlockCellGradKernel : public Kernel {
 public:
  explicit LstmBlockCellGradKernel(KernelConstruction& c) : Kernel(c), grad_(c, kCellFirst) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() != 2) return CheckOperand(in, "x", {{0, ""}, {0, ""}});
    MR_ASSIGN_OR_RETURN(const LstmSizes s, CheckLstm(ctx, 0, in.dim(0), in.dim(1)));
    constexpr std::string_view kNames[] = {"i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad"};
    std::array<Tensor, 8> values;
    for (int i = 0; i < 8; ++i) {
      MR_RETURN_IF_ERROR(CheckOperand(ctx.input(8 + i), kNames[i],
                                      {{s.batch, "batch_size"}, {s.cells, "cell_size"}}));
      MR_ASSIGN_OR_RETURN(values[i], AsFloats(ctx, ctx.input(8 + i)));
    }
    MR_ASSIGN_OR_RETURN(const Tensor cs_prev, AsFloats(ctx, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const LstmWeights weights, ReadWeights(ctx, 3));
    ConstStepValues made{};
    for (int i = kI; i <= kCo; ++i) made[i] = values[i].data<float>();
    FloatOutput cs_prev_grad, gates;
    std::array<FloatOutput, 3> peepholes;
    std::array<float*, 3> sums;
    MR_RETURN_IF_ERROR(cs_prev_grad.Allocate(ctx, 0, Shape({s.batch, s.cells})));
    MR_RETURN_IF_ERROR(gates.Allocate(ctx, 1, Shape({s.batch, s.gates()})));
    for (int i = 0; i < 3; ++i) {
      MR_RETURN_IF_ERROR(peepholes[i].Allocate(ctx, 2 + i, Shape({s.cells})));
      sums[i] = peepholes[i].data();
      std::fill_n(sums[i], s.cells, 0.0f);
    }
    if (cs_prev_grad.size() > 0) {
      grad_.Step(ctx, s, weights, made, cs_prev.data<float>(), values[6].data<float>(),
                 values[7].data<float>(), cs_prev_grad.data(), gates.data(), sums);
    }
    cs_prev_grad.Finish();
    gates.Finish();
    for (FloatOutput& part : peepholes) part.Finish();
    return OkStatus();
  }

 private:
  const LstmCellGrad grad_;
};

// -- Sequences --

// How many steps of `times` there are.
StatusOr<int64_t> StepsOf(const Tensor& most, int64_t times) {
  if (most.rank() != 0) {
    return errors::InvalidArgument("seq_len_max must be rank 0 but is rank ", most.rank());
  }
  const int64_t steps = most.scalar<int64_t>();
  if (steps >= 0 && steps <= times) return steps;
  return errors::InvalidArgument("seq_len_max must be between 0 and x.dims(0), which is ", times,
                                 ", but is ", steps);
}

StatusOr<LstmSizes> CheckSequence(KernelContext& ctx) {
  const Tensor& x = ctx.input(1);
  if (x.rank() != 3) return CheckOperand(x, "x", {{0, ""}, {0, ""}, {0, ""}});
  return CheckLstm(ctx, 1, x.dim(1), x.dim(2));
}

class BlockLstmKernel : public Kernel {
 public:
  explicit BlockLstmKernel(KernelConstruction& c)
      : Kernel(c), cell_(c, c.def().name() == "BlockLSTM" ? kCellFirst : kForgetFirst) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const LstmSizes s, CheckSequence(ctx));
    const int64_t times = ctx.input(1).dim(0);
    MR_ASSIGN_OR_RETURN(const int64_t steps, StepsOf(ctx.input(0), times));
    MR_ASSIGN_OR_RETURN(const Tensor x, AsFloats(ctx, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Tensor cs_prev, AsFloats(ctx, ctx.input(2)));
    MR_ASSIGN_OR_RETURN(const Tensor h_prev, AsFloats(ctx, ctx.input(3)));
    MR_ASSIGN_OR_RETURN(const LstmWeights weights, ReadWeights(ctx, 4));
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(Dims{times, s.batch, s.cells}));
    std::array<FloatOutput, kParts> out;
    for (int i = 0; i < kParts; ++i) MR_RETURN_IF_ERROR(out[i].Allocate(ctx, i, shape));
    if (out[0].size() == 0) return OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor gates, ctx.AllocateTemp(kFloat, Shape({s.batch, s.gates()})));
    for (int64_t t = 0; t < steps; ++t) {
      StepValues to;
      for (int i = 0; i < kParts; ++i) to[i] = out[i].data() + t * s.state();
      cell_.Step(ctx, s, weights, x.data<float>() + t * s.batch * s.inputs,
                 t == 0 ? cs_prev.data<float>() : to[kCs] - s.state(),
                 t == 0 ? h_prev.data<float>() : to[kH] - s.state(), gates.data<float>(), to);
    }
    for (FloatOutput& part : out) {
      std::fill(part.data() + steps * s.state(), part.data() + part.size(), 0.0f);
      part.Finish();
    }
    return OkStatus();
  }

 private:
  const LstmCell cell_;
};

// What BlockLSTMGrad makes, in the order of its outputs.
enum Gradient { kX, kCsPrev, kHPrev, kW, kWci, kWcf, kWco, kBias, kGradients };

class BlockLstmGradKernel : public Kernel {
 public:
  explicit BlockLstmGradKernel(KernelConstruction& c)
      : Kernel(c), grad_(c, c.def().name() == "BlockLSTMGrad" ? kCellFirst : kForgetFirst) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const LstmSizes s, CheckSequence(ctx));
    const int64_t times = ctx.input(1).dim(0);
    MR_ASSIGN_OR_RETURN(const int64_t steps, StepsOf(ctx.input(0), times));
    constexpr std::string_view kNames[] = {"i",  "cs", "f",       "o",     "ci",
                                           "co", "h",  "cs_grad", "h_grad"};
    std::array<Tensor, 9> values;
    for (int i = 0; i < 9; ++i) {
      MR_RETURN_IF_ERROR(
          CheckOperand(ctx.input(9 + i), kNames[i],
                       {{times, "timelen"}, {s.batch, "batch_size"}, {s.cells, "cell_size"}}));
      MR_ASSIGN_OR_RETURN(values[i], AsFloats(ctx, ctx.input(9 + i)));
    }
    std::array<FloatOutput, kGradients> out;
    for (int i = 0; i < kGradients; ++i) {
      MR_RETURN_IF_ERROR(out[i].Allocate(ctx, i, ctx.input(1 + i).shape()));
      std::fill_n(out[i].data(), out[i].size(), 0.0f);
    }
    if (s.state() > 0) MR_RETURN_IF_ERROR(Run(ctx, s, steps, values, &out));
    for (FloatOutput& part : out) part.Finish();
    return OkStatus();
  }

 private:
  Status Run(KernelContext& ctx, const LstmSizes& s, int64_t steps,
             const std::array<Tensor, 9>& values, std::array<FloatOutput, kGradients>* out) const {
    MR_ASSIGN_OR_RETURN(const Tensor x, AsFloats(ctx, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Tensor cs_prev, AsFloats(ctx, ctx.input(2)));
    MR_ASSIGN_OR_RETURN(const Tensor h_prev, AsFloats(ctx, ctx.input(3)));
    MR_ASSIGN_OR_RETURN(const LstmWeights weights, ReadWeights(ctx, 4));
    const Shape state({s.batch, s.cells});
    MR_ASSIGN_OR_RETURN(Tensor gates, ctx.AllocateTemp(kFloat, Shape({s.batch, s.gates()})));
    MR_ASSIGN_OR_RETURN(Tensor cs_sum, ctx.AllocateTemp(kFloat, state));
    MR_ASSIGN_OR_RETURN(Tensor h_sum, ctx.AllocateTemp(kFloat, state));
    float *const dcs = (*out)[kCsPrev].data(), *const dh = (*out)[kHPrev].data();
    for (int64_t t = steps - 1; t >= 0; --t) {
      const int64_t at = t * s.state();
      ConstStepValues made{};
      for (int i = 0; i < kParts; ++i) made[i] = values[i].data<float>() + at;
      const float* const cs_grad = values[7].data<float>() + at;
      const float* const h_grad = values[8].data<float>() + at;
      for (int64_t k = 0; k < s.state(); ++k) {
        cs_sum.data<float>()[k] = cs_grad[k] + dcs[k];
        h_sum.data<float>()[k] = h_grad[k] + dh[k];
      }
      const float* const before = t == 0 ? cs_prev.data<float>() : made[kCs] - s.state();
      grad_.Step(ctx, s, weights, made, before, cs_sum.data<float>(), h_sum.data<float>(), dcs,
                 gates.data<float>(),
                 {(*out)[kWci].data(), (*out)[kWcf].data(), (*out)[kWco].data()});
      AddWeights(ctx, s, weights, x.data<float>() + t * s.batch * s.inputs,
                 t == 0 ? h_prev.data<float>() : made[kH] - s.state(), gates.data<float>(),
                 (*out)[kX].data() + t * s.batch * s.inputs, out);
    }
    return OkStatus();
  }

  // From the gates' sums to what they are made of.
  static void AddWeights(KernelContext& ctx, const LstmSizes& s, const LstmWeights& weights,
                         const float* x, const float* h, const float* gates, float* dx,
                         std::array<FloatOutput, kGradients>* out) {
    const float* const w = weights.w.data<float>();
    const float* const w_h = w + s.inputs * s.gates();
    float *const dw = (*out)[kW].data(), *const dh = (*out)[kHPrev].data();
    const MatrixView<float> rows{gates, s.gates(), 1};
    AddProduct(ctx, s.batch, s.inputs, s.gates(), rows, {w, 1, s.gates()}, dx, s.inputs);
    std::fill_n(dh, s.state(), 0.0f);
    AddProduct(ctx, s.batch, s.cells, s.gates(), rows, {w_h, 1, s.gates()}, dh, s.cells);
    AddProduct(ctx, s.inputs, s.gates(), s.batch, {x, 1, s.inputs}, rows, dw, s.gates());
    AddProduct(ctx, s.cells, s.gates(), s.batch, {h, 1, s.cells}, rows, dw + s.inputs * s.gates(),
               s.gates());
    float* const bias = (*out)[kBias].data();
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t k = 0; k < s.gates(); ++k) bias[k] += gates[b * s.gates() + k];
    }
  }

  const LstmCellGrad grad_;
};

template <typename K>
void RegisterFloats(KernelRegistry& r, const char* op) {
  r.Register(KernelDef(op).Types("T", {kFloat, kHalf}), &MakeKernel<K>);
}

}  // namespace

void RegisterLstmKernels(KernelRegistry& registry) {
  RegisterFloats<LstmBlockCellKernel>(registry, "LSTMBlockCell");
  RegisterFloats<LstmBlockCellGradKernel>(registry, "LSTMBlockCellGrad");
  RegisterFloats<BlockLstmKernel>(registry, "BlockLSTM");
  RegisterFloats<BlockLstmKernel>(registry, "BlockLSTMV2");
  RegisterFloats<BlockLstmGradKernel>(registry, "BlockLSTMGrad");
  RegisterFloats<BlockLstmGradKernel>(registry, "BlockLSTMGradV2");
}

}  // namespace millrace
