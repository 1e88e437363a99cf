// SPDX-License-Identifier: Apache-2.0
// Derivatives of ops of particular fields: Fourier transforms, rounding for quantized inference,
// recurrent cells, sequences without alignment.
#include <string>

#include "base/errors.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

template <typename T>
T AttrOr(const GradContext& c, std::string_view name, T fallback) {
  return c.op().node()->attrs().GetOr<T>(name, std::move(fallback));
}

// --- Fourier transforms -------------------------------------------------------------------------

DataType RealOf(DataType complex) { return complex == kComplex128 ? kDouble : kFloat; }

// Over how many axes an op goes.
template <int kRank>
Output Transformed(const Scope& s, const Output& x, bool inverse) {
  if constexpr (kRank == 1) return inverse ? ops::IFFT(s, x) : ops::FFT(s, x);
  if constexpr (kRank == 2) return inverse ? ops::IFFT2D(s, x) : ops::FFT2D(s, x);
  return inverse ? ops::IFFT3D(s, x) : ops::FFT3D(s, x);
}
template <int kRank>
Output FromReal(const Scope& s, const Output& x, const Output& length, DataType complex) {
  if constexpr (kRank == 1) return ops::RFFT(s, x, length, {.Tcomplex = complex});
  if constexpr (kRank == 2) return ops::RFFT2D(s, x, length, {.Tcomplex = complex});
  return ops::RFFT3D(s, x, length, {.Tcomplex = complex});
}
template <int kRank>
Output ToReal(const Scope& s, const Output& x, const Output& length, DataType real) {
  if constexpr (kRank == 1) return ops::IRFFT(s, x, length, {.Treal = real});
  if constexpr (kRank == 2) return ops::IRFFT2D(s, x, length, {.Treal = real});
  return ops::IRFFT3D(s, x, length, {.Treal = real});
}

// The product of the last kRank sizes of x, in the type of x.
template <int kRank>
Output CountOf(const Scope& s, const Output& x) {
  const Output shape = ops::Shape(s, x);
  const Output begin = ops::Reshape(s, ops::Sub(s, ops::Size(s, shape), kRank), {1});
  return ops::Cast(s, ops::Prod(s, ops::Slice(s, shape, begin, {kRank}), 0), BaseType(x.dtype()));
}

// A transform without a factor is its own transpose.
template <int kRank>
Status FftGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, Transformed<kRank>(s, c.dy(), true), CountOf<kRank>(s, c.dy())));
  return OkStatus();
}
template <int kRank>
Status IfftGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::RealDiv(s, Transformed<kRank>(s, c.dy(), false), CountOf<kRank>(s, c.dy())));
  return OkStatus();
}

// How often each number along the last axis of `half` stands for one of the whole spectrum of
// `length`: once for the first and, if there is one in the middle, that one; else twice.
Output Occurrences(const Scope& s, const Output& half, const Output& length, int rank,
                   DataType real) {
  const Output shape = ops::Shape(s, half);
  const Output last = ops::Reshape(s, ops::Sub(s, ops::Size(s, shape), 1), {1});
  const Output count = ops::Reshape(s, ops::Slice(s, shape, last, {1}),
                                    Tensor::FromValues<int32_t>(std::span<const int32_t>(), {0}));
  const Output k = ops::Range(s, 0, count, 1);
  const Output odd = ops::FloorMod(s, ops::Slice(s, length, {rank - 1}, {1}), 2);
  const Output first = ops::Cast(s, ops::Equal(s, k, 0), kInt32);
  const Output middle = ops::Mul(s, ops::Cast(s, ops::Equal(s, k, ops::Sub(s, count, 1)), kInt32),
                                 ops::Sub(s, 1, odd));
  return ops::Cast(s, ops::Sub(s, ops::Sub(s, 2, first), middle), real);
}

// dx, which lacks what was cut off x before it was transformed: zeros.
Output Padded(GradContext& c, const Output& dx) {
  const Scope& s = c.scope();
  const auto have = dx.shape().AsShape(), want = c.x(0).shape().AsShape();
  if (have && want && *have == *want) return dx;
  const Output missing = ops::Sub(s, ops::Shape(s, c.x(0)), ops::Shape(s, dx));
  return ops::Pad(s, dx, ops::Pack(s, {ops::ZerosLike(s, missing), missing}, {.axis = 1}));
}

template <int kRank>
Status RfftGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output length = c.x(1);
  const DataType real = BaseType(c.x(0).dtype()), complex = BaseType(c.dy().dtype());
  const Output total = ops::Cast(s, ops::Prod(s, length, 0), real);
  const Output factors = ops::RealDiv(s, total, Occurrences(s, c.dy(), length, kRank, real));
  const Output scaled = ops::Mul(s, c.dy(), ops::Cast(s, factors, complex));
  c.set_dx(0, Padded(c, ToReal<kRank>(s, scaled, length, real)));
  return OkStatus();
}
template <int kRank>
Status IrfftGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output length = c.x(1);
  const DataType complex = BaseType(c.x(0).dtype()), real = RealOf(complex);
  const Output half = FromReal<kRank>(s, c.dy(), length, complex);
  const Output total = ops::Cast(s, ops::Prod(s, length, 0), real);
  const Output factors = ops::RealDiv(s, Occurrences(s, half, length, kRank, real), total);
  c.set_dx(0, Padded(c, ops::Mul(s, half, ops::Cast(s, factors, complex))));
  return OkStatus();
}

// --- Rounding -----------------------------------------------------------------------------------

Status FakeQuantArgsGrad(GradContext& c) {
  c.set_dx(0, ops::FakeQuantWithMinMaxArgsGradient(
                  c.scope(), c.dy(), c.x(0),
                  {.min = AttrOr<float>(c, "min", -6.0f),
                   .max = AttrOr<float>(c, "max", 6.0f),
                   .num_bits = AttrOr<int64_t>(c, "num_bits", 8),
                   .narrow_range = AttrOr<bool>(c, "narrow_range", false)}));
  return OkStatus();
}

template <typename Grads>
Status SetRangeGradients(GradContext& c, const Grads& grads) {
  c.set_dx(0, grads.backprops_wrt_input);
  c.set_dx(1, grads.backprop_wrt_min);
  c.set_dx(2, grads.backprop_wrt_max);
  return OkStatus();
}
Status FakeQuantVarsGrad(GradContext& c) {
  return SetRangeGradients(c, ops::FakeQuantWithMinMaxVarsGradient(
                                  c.scope(), c.dy(), c.x(0), c.x(1), c.x(2),
                                  {.num_bits = AttrOr<int64_t>(c, "num_bits", 8),
                                   .narrow_range = AttrOr<bool>(c, "narrow_range", false)}));
}
Status FakeQuantChannelsGrad(GradContext& c) {
  return SetRangeGradients(c, ops::FakeQuantWithMinMaxVarsPerChannelGradient(
                                  c.scope(), c.dy(), c.x(0), c.x(1), c.x(2),
                                  {.num_bits = AttrOr<int64_t>(c, "num_bits", 8),
                                   .narrow_range = AttrOr<bool>(c, "narrow_range", false)}));
}

// --- Sequences ----------------------------------------------------------------------------------

// The derivative with respect to output i, zeros where there is none.
Output DyOrZeros(GradContext& c, int i) {
  return c.dy(i).valid() ? c.dy(i) : ops::ZerosLike(c.scope(), c.y(i));
}

template <typename Grads>
Status SetLstmGradients(GradContext& c, const Grads& grads) {
  const Output dxs[] = {grads.x_grad,   grads.cs_prev_grad, grads.h_prev_grad, grads.w_grad,
                        grads.wci_grad, grads.wcf_grad,     grads.wco_grad,    grads.b_grad};
  for (int i = 0; i < 8; ++i) c.set_dx(i + 1, dxs[i]);
  return OkStatus();
}
// From the cells' states and outputs; what else the op puts out is for this alone.
Status BlockLstmGrad(GradContext& c) {
  return SetLstmGradients(
      c,
      ops::BlockLSTMGrad(c.scope(), c.x(0), c.x(1), c.x(2), c.x(3), c.x(4), c.x(5), c.x(6), c.x(7),
                         c.x(8), c.y(0), c.y(1), c.y(2), c.y(3), c.y(4), c.y(5), c.y(6),
                         DyOrZeros(c, 1), DyOrZeros(c, 6), AttrOr<bool>(c, "use_peephole", false)));
}
Status BlockLstmV2Grad(GradContext& c) {
  return SetLstmGradients(
      c, ops::BlockLSTMGradV2(c.scope(), c.x(0), c.x(1), c.x(2), c.x(3), c.x(4), c.x(5), c.x(6),
                              c.x(7), c.x(8), c.y(0), c.y(1), c.y(2), c.y(3), c.y(4), c.y(5),
                              c.y(6), DyOrZeros(c, 1), DyOrZeros(c, 6),
                              AttrOr<bool>(c, "use_peephole", false)));
}

// The op computed it beside the losses: [times, examples, classes].
Status CtcLossGrad(GradContext& c) {
  if (!c.dy(0).valid()) return OkStatus();
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, ops::ExpandDims(s, c.dy(0), -1), c.y(1)));
  return OkStatus();
}

template <int kRank>
void RegisterFourier(GradientRegistry& r, const std::string& rank) {
  r.Register("FFT" + rank, FftGrad<kRank>);
  r.Register("IFFT" + rank, IfftGrad<kRank>);
  r.Register("RFFT" + rank, RfftGrad<kRank>);
  r.Register("IRFFT" + rank, IrfftGrad<kRank>);
}

}  // namespace

void RegisterDomainGradients(GradientRegistry& r) {
  RegisterFourier<1>(r, "");
  RegisterFourier<2>(r, "2D");
  RegisterFourier<3>(r, "3D");
  r.Register("FakeQuantWithMinMaxArgs", FakeQuantArgsGrad);
  r.Register("FakeQuantWithMinMaxVars", FakeQuantVarsGrad);
  r.Register("FakeQuantWithMinMaxVarsPerChannel", FakeQuantChannelsGrad);
  r.Register("BlockLSTM", BlockLstmGrad);
  r.Register("BlockLSTMV2", BlockLstmV2Grad);
  r.Register("CTCLoss", CtcLossGrad);
  for (const char* op : {"CTCBeamSearchDecoder", "CTCGreedyDecoder", "EditDistance",
                         "FakeQuantWithMinMaxArgsGradient", "FakeQuantWithMinMaxVarsGradient",
                         "FakeQuantWithMinMaxVarsPerChannelGradient"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
