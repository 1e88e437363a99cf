// SPDX-License-Identifier: Apache-2.0
#include "millrace/math.h"

#include "frontend/root_scope.h"

namespace millrace {
namespace {

// A call on an output that is not valid follows from an error that the graph has recorded, or from
// one that the output's maker returned: there is no graph to tell, and the result is not valid.
using Binary = Output (*)(const Scope&, const Input&, const Input&, std::source_location);

Output Apply(Binary op, const Output& a, const Operand& b) {
  return a.valid() ? op(RootScopeOf(a), a, b.input(), b.where()) : Output();
}

}  // namespace

Scope RootScopeOf(const Output& output) { return RootScope(output.op().graph()); }

Input Expr::Axes(const std::vector<int32_t>& axes) const {
  std::vector<int32_t> all = axes;
  if (all.empty()) {
    if (!output_.valid() || !output_.shape().has_rank()) {
      return ops::Range(scope_, 0, ops::Rank(scope_, output_), 1);
    }
    for (int i = 0; i < output_.shape().rank(); ++i) all.push_back(i);
  }
  return Tensor::FromValues<int32_t>(all, Shape({static_cast<int64_t>(all.size())}));
}

Output operator-(const Output& a) { return a.valid() ? ops::Neg(RootScopeOf(a), a) : Output(); }
Output operator+(const Output& a, const Operand& b) { return Apply(ops::Add, a, b); }
Output operator-(const Output& a, const Operand& b) { return Apply(ops::Sub, a, b); }
Output operator*(const Output& a, const Operand& b) { return Apply(ops::Mul, a, b); }
Output operator/(const Output& a, const Operand& b) { return Apply(ops::RealDiv, a, b); }
Output operator<(const Output& a, const Operand& b) { return Apply(ops::Less, a, b); }
Output operator<=(const Output& a, const Operand& b) { return Apply(ops::LessEqual, a, b); }
Output operator>(const Output& a, const Operand& b) { return Apply(ops::Greater, a, b); }
Output operator>=(const Output& a, const Operand& b) { return Apply(ops::GreaterEqual, a, b); }

Output NumberMinus(const Input& a, const Output& b) {
  return b.valid() ? ops::Sub(RootScopeOf(b), a, b) : Output();
}
Output NumberDividedBy(const Input& a, const Output& b) {
  return b.valid() ? ops::RealDiv(RootScopeOf(b), a, b) : Output();
}

}  // namespace millrace
