// SPDX-License-Identifier: Apache-2.0
// Metrics that are the mean of something that each sample has.
#include <cmath>

#include "base/errors.h"
#include "model/metrics/checked.h"

namespace millrace::metrics {
namespace {

// A last axis of size one that only one of the two has is taken away or added.
std::pair<Expr, Expr> SameRank(const Expr& a, const Expr& b) {
  const PartialShape x = a.shape(), y = b.shape();
  if (!x.has_rank() || !y.has_rank()) return {a, b};
  if (x.rank() == y.rank() + 1 && x.dim(x.rank() - 1) == 1) {
    return y.rank() == 1 ? std::pair{a, b.ExpandDims(-1)} : std::pair{a.Squeeze(-1), b};
  }
  if (y.rank() == x.rank() + 1 && y.dim(y.rank() - 1) == 1) {
    return x.rank() == 1 ? std::pair{a.ExpandDims(-1), b} : std::pair{a, b.Squeeze(-1)};
  }
  return {a, b};
}

std::vector<int32_t> AxesFrom(int first, int rank) {
  std::vector<int32_t> axes;
  for (int i = first; i < rank; ++i) axes.push_back(i);
  return axes;
}

// The sum of weighted values and that of the weights; a sample's own values are averaged (`mean`)
// or summed first.
std::pair<Expr, Expr> Totals(const Scope& s, const losses::LossValues& computed,
                             const Output& sample_weight, bool mean) {
  Expr values = Expr(s, computed.values).Cast(kFloat);
  const auto reduce = [&](const Expr& x, int first) {
    const std::vector<int32_t> axes = AxesFrom(first, x.shape().rank());
    if (axes.empty()) return x;
    return mean ? x.Mean(axes) : x.Sum(axes);
  };
  if (!sample_weight.valid()) {
    values = reduce(values, 1);
    return {values.Sum(), Expr(s, ops::Size(s, values)).Cast(kFloat)};
  }
  Expr weight = Expr(s, sample_weight).Cast(kFloat);
  if (computed.mask.valid()) {
    const auto [m, w] = SameRank(Expr(s, computed.mask).Cast(kFloat), weight);
    weight = w * m;
  }
  std::tie(values, weight) = SameRank(values, weight);
  const int rank = weight.shape().rank();
  if (values.shape().rank() > rank) values = reduce(values, rank);
  weight = weight + ops::ZerosLike(s, values);
  return {reduce(values * weight, 1).Sum(), reduce(weight, 1).Sum()};
}

losses::LossFunction ValuesAlone() {
  return
      [](const Scope&, const Output&, const Output& y_pred) { return losses::LossValues{y_pred}; };
}

Metric::Rule MeanRule(losses::LossFunction function,
                      std::function<Expr(const Expr&)> of_mean = nullptr) {
  Metric::Rule rule;
  rule.sums = [](const PartialShape&, const PartialShape&) -> std::vector<Metric::Sum> {
    return {{"total", Shape({})}, {"count", Shape({})}};
  };
  rule.additions = [function](const Scope& s, const Batch& b) -> std::vector<Expr> {
    if (!function) {
      s.RecordError(errors::InvalidArgument("the function of a metric MeanOf is null"),
                    std::source_location::current());
      return {};
    }
    if (!b.y_pred.shape().has_rank() ||
        (b.sample_weight.valid() && !b.sample_weight.shape().has_rank())) {
      s.RecordError(errors::InvalidArgument("a metric's batches must have a known rank"),
                    std::source_location::current());
      return {};
    }
    const losses::LossValues values = function(s, b.y_true, b.y_pred);
    if (!values.values.valid()) return {};
    const auto [total, count] = Totals(s, values, b.sample_weight, /*mean=*/true);
    return {total, count};
  };
  rule.result = [of_mean](const std::vector<Expr>& sums) {
    const Expr mean = sums[0].DivNoNan(sums[1]);
    return of_mean ? of_mean(mean) : mean;
  };
  return rule;
}

// The mean of a function of both, y_true being of y_pred's type and rank.
template <typename F>
Metric::Rule RuleOfBoth(F function) {
  return MeanRule([function](const Scope& s, const Output& t, const Output& p) {
    const Expr y_pred(s, p);
    const auto [y, same] = SameRank(Expr(s, t).Cast(y_pred.dtype()), y_pred);
    return losses::LossValues{function(y, same)};
  });
}
template <typename F>
Metric MeanOfBoth(const char* name, F function) {
  return Metric(name, RuleOfBoth(function));
}

Expr ArgMax(const Expr& x) { return Expr(x.scope(), ops::ArgMax(x.scope(), x, -1)); }

// Class numbers, without a last axis of size one that predictions have classes in.
Expr ClassesOf(const Expr& y, const Expr& p) {
  const int rank = y.shape().rank();
  const bool column = rank == p.shape().rank() && y.shape().dim(rank - 1) == 1;
  return (column ? y.Squeeze(-1) : y).Cast(kInt64);
}

Expr InTopK(const Expr& classes, const Expr& p, int32_t k) {
  const Scope& s = p.scope();
  const int32_t size = static_cast<int32_t>(p.shape().dim(p.shape().rank() - 1));
  const Output rows = p.Reshape(Tensor::FromValues<int32_t>({-1, size}));
  const Output hits = ops::InTopKV2(s, rows, classes.Reshape({-1}).Cast(kInt32), k);
  return Expr(s, hits).Reshape(ops::Shape(s, classes)).Cast(kFloat);
}

losses::LossFunction FunctionOf(const losses::Loss& loss) {
  return [loss](const Scope& s, const Output& y_true, const Output& y_pred) {
    return loss.Values(s, y_true, y_pred);
  };
}

}  // namespace

Metric Mean(std::string name) { return Metric(std::move(name), MeanRule(ValuesAlone())); }

Metric Sum(std::string name) {
  Metric::Rule rule;
  rule.sums = [](const PartialShape&, const PartialShape&) -> std::vector<Metric::Sum> {
    return {{"total", Shape({})}};
  };
  rule.additions = [](const Scope& s, const Batch& b) -> std::vector<Expr> {
    return {Totals(s, {b.y_pred}, b.sample_weight, /*mean=*/false).first};
  };
  rule.result = [](const std::vector<Expr>& sums) { return sums[0]; };
  return Metric(std::move(name), std::move(rule));
}

Metric MeanOf(std::string name, losses::LossFunction function) {
  return Metric(std::move(name), MeanRule(std::move(function)));
}
Metric MeanOf(const losses::Loss& loss) { return MeanOf(loss.name(), FunctionOf(loss)); }

Metric Accuracy() {
  return MeanOfBoth("accuracy",
                    [](const Expr& y, const Expr& p) { return y.Equal(p).Cast(kFloat); });
}
Metric BinaryAccuracy(double threshold) {
  OptionChecks checks = ChecksOf("binary_accuracy");
  return Checked("binary_accuracy", checks.Finite("threshold", threshold),
                 RuleOfBoth([threshold](const Expr& y, const Expr& p) {
                   return y.Equal((p > threshold).Cast(y.dtype())).Cast(kFloat);
                 }));
}
Metric CategoricalAccuracy() {
  return MeanOfBoth("categorical_accuracy", [](const Expr& y, const Expr& p) {
    return ArgMax(y).Equal(ArgMax(p)).Cast(kFloat);
  });
}
Metric SparseCategoricalAccuracy() {
  return MeanOf("sparse_categorical_accuracy",
                [](const Scope& s, const Output& t, const Output& y_pred) {
                  const Expr p(s, y_pred);
                  const Expr hit = ClassesOf(Expr(s, t), p).Equal(ArgMax(p));
                  return losses::LossValues{hit.Cast(kFloat)};
                });
}
Metric TopKCategoricalAccuracy(int32_t k) {
  OptionChecks checks = ChecksOf("top_k_categorical_accuracy");
  checks.AtLeast("k", k, 1);
  return Checked("top_k_categorical_accuracy", checks,
                 MeanRule([k](const Scope& s, const Output& t, const Output& p) {
                   return losses::LossValues{InTopK(ArgMax(Expr(s, t)), Expr(s, p), k)};
                 }));
}
Metric SparseTopKCategoricalAccuracy(int32_t k) {
  OptionChecks checks = ChecksOf("sparse_top_k_categorical_accuracy");
  checks.AtLeast("k", k, 1);
  return Checked("sparse_top_k_categorical_accuracy", checks,
                 MeanRule([k](const Scope& s, const Output& t, const Output& y_pred) {
                   const Expr p(s, y_pred);
                   return losses::LossValues{InTopK(ClassesOf(Expr(s, t), p), p, k)};
                 }));
}

Metric MeanSquaredError() { return MeanOf(losses::MeanSquaredError()); }
Metric RootMeanSquaredError() {
  return Metric("root_mean_squared_error", MeanRule(FunctionOf(losses::MeanSquaredError()),
                                                    [](const Expr& mean) { return mean.Sqrt(); }));
}
Metric MeanAbsoluteError() { return MeanOf(losses::MeanAbsoluteError()); }
Metric MeanAbsolutePercentageError() { return MeanOf(losses::MeanAbsolutePercentageError()); }
Metric MeanSquaredLogarithmicError() { return MeanOf(losses::MeanSquaredLogarithmicError()); }
Metric LogCoshError() { return MeanOf("logcosh", FunctionOf(losses::LogCosh())); }
Metric CosineSimilarity(int32_t axis) {
  return MeanOf("cosine_similarity", [axis](const Scope& s, const Output& t, const Output& p) {
    return losses::LossValues{
        -Expr(s, losses::CosineSimilarity({.axis = axis}).Values(s, t, p).values)};
  });
}
Metric Hinge() { return MeanOf(losses::Hinge()); }
Metric SquaredHinge() { return MeanOf(losses::SquaredHinge()); }
Metric CategoricalHinge() { return MeanOf(losses::CategoricalHinge()); }
Metric KLDivergence() { return MeanOf(losses::KLDivergence()); }
Metric Poisson() { return MeanOf(losses::Poisson()); }
Metric BinaryCrossentropy(const losses::CrossentropyOptions& options) {
  return MeanOf(losses::BinaryCrossentropy(options));
}
Metric CategoricalCrossentropy(const losses::CrossentropyOptions& options) {
  return MeanOf(losses::CategoricalCrossentropy(options));
}
Metric SparseCategoricalCrossentropy(const losses::SparseCrossentropyOptions& options) {
  return MeanOf(losses::SparseCategoricalCrossentropy(options));
}

Metric PearsonCorrelation(int32_t axis) {
  return MeanOfBoth("pearson_correlation", [axis](const Expr& y, const Expr& p) {
    const auto normal = [&](const Expr& x) {
      const Expr centered = x - x.Mean({axis}, true);
      return centered / centered.Square().Mean({axis}, true).Sqrt();
    };
    return (normal(y) * normal(p)).Mean({axis});
  });
}
Metric ConcordanceCorrelation(int32_t axis) {
  return MeanOfBoth("concordance_correlation", [axis](const Expr& y, const Expr& p) {
    const Expr y_mean = y.Mean({axis}, true), p_mean = p.Mean({axis}, true);
    const Expr y_var = (y - y_mean).Square().Mean({axis}, true);
    const Expr p_var = (p - p_mean).Square().Mean({axis}, true);
    const Expr covariance = (y - p_mean) * (p - p_mean);
    const Expr norm = y_var + p_var + (y_mean - p_mean).Square();
    return (2.0 * covariance / (norm + 1e-7)).Mean({axis});
  });
}

}  // namespace millrace::metrics
