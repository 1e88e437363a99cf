// SPDX-License-Identifier: Apache-2.0
#include "millrace/losses.h"

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/strings.h"
#include "frontend/same_rank.h"
#include "millrace/math.h"

namespace millrace {

std::pair<Expr, Expr> ToSameRank(const Expr& a, const Expr& b) {
  const PartialShape x = a.shape(), y = b.shape();
  if (!x.has_rank() || !y.has_rank()) return {a, b};
  const auto ends_in_one = [](const PartialShape& s) { return s.dim(s.rank() - 1) == 1; };
  if (x.rank() == y.rank() + 1 && ends_in_one(x)) {
    if (y.rank() == 1) return {a, b.ExpandDims(-1)};
    return {a.Squeeze(-1), b};
  }
  if (y.rank() == x.rank() + 1 && ends_in_one(y)) {
    if (x.rank() == 1) return {a.ExpandDims(-1), b};
    return {a, b.Squeeze(-1)};
  }
  return {a, b};
}

namespace losses {
namespace {

Expr CountOf(const Expr& values) {
  return Expr(values.scope(), ops::Size(values.scope(), values)).Cast(values.dtype());
}

// The weights that a mask stands for: where values count, means are over them alone.
Expr WeightsOf(const Expr& mask, DataType dtype, Reduction reduction) {
  const Expr counts = mask.Cast(dtype);
  if (reduction != Reduction::kMean && reduction != Reduction::kSumOverBatchSize) return counts;
  return counts * CountOf(counts).DivNoNan(counts.Sum());
}

Output Reduce(const Expr& values, const std::optional<Expr>& weights, Reduction reduction) {
  if (reduction == Reduction::kNone || values.shape().rank() == 0) return values;
  const Expr sum = values.Sum();
  if (reduction == Reduction::kSum) return sum;
  if (reduction == Reduction::kMeanWithSampleWeight && weights) return sum.DivNoNan(weights->Sum());
  return sum.DivNoNan(CountOf(values));
}

}  // namespace

LossValues Loss::Values(const Scope& scope, const Output& y_true, const Output& y_pred,
                        std::source_location where) const {
  const Scope s = scope.CalledFrom(where);
  if (!function_) {
    s.RecordError(errors::InvalidArgument("loss '", name_, "': its function is null"), where);
    return {};
  }
  for (const auto& [what, y] : {std::pair{"y_true", y_true}, std::pair{"y_pred", y_pred}}) {
    if (y.valid() && y.shape().has_rank()) continue;
    if (y.valid()) {
      s.RecordError(errors::InvalidArgument("loss '", name_, "': ", what, ", which is ", y.name(),
                                            ", must have a known rank"),
                    where);
    }
    return {};
  }
  LossValues values;
  const Status called = Guarded([&] {
    values = function_(s.Named(name_), y_true, y_pred);
    return OkStatus();
  });
  if (called.ok()) return values;
  s.RecordError(WithMessage(called, StrCat("loss '", name_, "': ", Message(called))), where);
  return {};
}

Output Loss::operator()(const Scope& scope, const Output& y_true, const Output& y_pred,
                        const LossWeights& given, std::source_location where) const {
  const Scope s = scope.CalledFrom(where);
  const LossValues computed = Values(s, y_true, y_pred, where);
  if (!computed.values.valid()) return Output();
  const Scope named = s.Named(name_ + "_reduce");
  Expr values(named, computed.values);
  std::optional<Expr> mask;
  for (const Output& m : {given.mask, computed.mask}) {
    if (!m.valid()) continue;
    const Expr counts = Expr(named, m).Cast(kBool);
    mask = mask ? mask->And(counts) : counts;
  }
  std::optional<Expr> weights;
  if (given.sample_weight.valid()) {
    weights = Expr(named, given.sample_weight).Cast(values.dtype());
  }
  if (mask) {
    const Expr masked = WeightsOf(*mask, values.dtype(), reduction_);
    if (weights) {
      const auto [m, w] = ToSameRank(masked, *weights);
      weights = w * m;
    } else {
      weights = masked;
    }
  }
  if (weights) {
    const auto [v, w] = ToSameRank(values, *weights);
    weights = w;
    values = v * w;
  }
  return Reduce(values, weights, reduction_);
}

}  // namespace losses
}  // namespace millrace
