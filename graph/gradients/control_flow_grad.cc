// SPDX-License-Identifier: Apache-2.0
// Derivatives of branches of Switch and Merge. Loops are taken as a whole: see loop_grad.h.
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// What comes back through the branch that ran; zeros if that branch does not lead to the ys.
Status SwitchGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output dy = c.dy(0).valid() ? c.dy(0) : c.dy(1);
  const auto zeros = ops::Switch(s, ZerosFor(s, c.x(0), dy.dtype()), c.x(1));
  c.set_dx(0, ops::Merge(s, {c.dy(0).valid() ? c.dy(0) : zeros.output_false,
                             c.dy(1).valid() ? c.dy(1) : zeros.output_true})
                  .output);
  return OkStatus();
}

// Output 1 says which input was taken; the others get a dead value.
Status MergeGrad(GradContext& c) {
  const Scope& s = c.scope();
  if (!c.dy(0).valid()) return OkStatus();
  for (int i = 0; i < c.op().num_inputs(); ++i) {
    const Output taken = ops::Equal(s, c.y(1), Tensor::Scalar<int32_t>(i));
    c.set_dx(i, ops::Switch(s, c.dy(0), taken).output_true);
  }
  return OkStatus();
}

}  // namespace

void RegisterControlFlowGradients(GradientRegistry& r) {
  r.Register("Switch", SwitchGrad);
  r.Register("Merge", MergeGrad);
}

}  // namespace millrace
