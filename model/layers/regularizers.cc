// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "millrace/layer_parts.h"

namespace millrace {
namespace {

// What Keras adds to divisors.
constexpr float kEpsilon = 1e-7f;

// A function whose options are what they must be; else an error.
template <typename F>
std::function<Expr(const Expr&)> Checked(const OptionChecks& checks, F function) {
  if (checks.status().ok()) return function;
  return [status = checks.status()](const Expr& x) {
    x.scope().RecordError(status, std::source_location::current());
    return Expr(x.scope(), Output());
  };
}

Expr Norms(const Expr& w, const std::vector<int32_t>& axes) {
  return w.Square().Sum(axes, /*keep_dims=*/true).Sqrt();
}

}  // namespace

namespace regularizers {

Regularizer L1(double l1) {
  OptionChecks checks("regularizers::L1");
  return Checked(checks.AtLeast("l1", l1, 0),
                 [l1](const Expr& x) { return x.Abs().Sum() * static_cast<float>(l1); });
}

Regularizer L2(double l2) {
  OptionChecks checks("regularizers::L2");
  return Checked(checks.AtLeast("l2", l2, 0),
                 [l2](const Expr& x) { return x.Square().Sum() * static_cast<float>(l2); });
}

Regularizer L1L2(double l1, double l2) {
  OptionChecks checks("regularizers::L1L2");
  return Checked(checks.AtLeast("l1", l1, 0).AtLeast("l2", l2, 0), [l1, l2](const Expr& x) {
    return x.Abs().Sum() * static_cast<float>(l1) + x.Square().Sum() * static_cast<float>(l2);
  });
}

Regularizer Orthogonal(double factor, OrthogonalMode mode) {
  OptionChecks checks("regularizers::Orthogonal");
  return Checked(checks.AtLeast("factor", factor, 0), [factor, mode](const Expr& x) {
    const Scope& s = x.scope();
    const PartialShape shape = x.shape();
    const bool rows = mode == OrthogonalMode::kRows;
    if (shape.rank() != 2 || !shape.IsFullyDefined()) {
      s.RecordError(errors::InvalidArgument("regularizers::Orthogonal takes matrices, not values "
                                            "of shape ",
                                            shape.DebugString()),
                    std::source_location::current());
      return Expr(s, Output());
    }
    const Expr lengths = x.Square().Sum({rows ? 1 : 0}, true).Max(1e-12f).Sqrt();
    const Expr unit = x / lengths;
    const Expr product(s, ops::MatMul(s, unit, unit, {.transpose_a = !rows, .transpose_b = rows}));
    const float size = static_cast<float>(shape.dim(rows ? 0 : 1));
    const Expr squares = unit.Square().Sum();  // what the diagonal adds
    // One row or column has nothing to be at right angles to.
    const float pairs = std::max(size * (size - 1) / 2, 1.0f);
    return (product.Abs().Sum() - squares) * (static_cast<float>(factor) * 0.5f / pairs);
  });
}

}  // namespace regularizers

namespace constraints {

Constraint MaxNorm(double max_value, std::vector<int32_t> axes) {
  OptionChecks checks("constraints::MaxNorm");
  return Checked(checks.AtLeast("max_value", max_value, 0), [max_value, axes](const Expr& w) {
    const Expr norms = Norms(w, axes);
    return w * (norms.Min(static_cast<float>(max_value)) / (norms + kEpsilon));
  });
}

Constraint NonNeg() {
  return [](const Expr& w) { return w.Max(0.0f); };
}

Constraint UnitNorm(std::vector<int32_t> axes) {
  return [axes](const Expr& w) { return w / (Norms(w, axes) + kEpsilon); };
}

Constraint MinMaxNorm(const MinMaxNormOptions& o) {
  OptionChecks checks("constraints::MinMaxNorm");
  checks.AtLeast("min_value", o.min_value, 0)
      .AtLeast("max_value", o.max_value, o.min_value)
      .Finite("rate", o.rate);
  return Checked(checks, [o](const Expr& w) {
    const Expr norms = Norms(w, o.axes);
    const Expr clipped =
        norms.Clip(static_cast<float>(o.min_value), static_cast<float>(o.max_value));
    const float rate = static_cast<float>(o.rate);
    return w * ((clipped * rate + norms * (1 - rate)) / (norms + kEpsilon));
  });
}

}  // namespace constraints
}  // namespace millrace
