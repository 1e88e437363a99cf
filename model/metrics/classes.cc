// SPDX-License-Identifier: Apache-2.0
// Metrics of classes and of columns: F scores, overlaps, R squared.
#include <algorithm>

#include "model/metrics/checked.h"

namespace millrace::metrics {
namespace {

constexpr double kEpsilon = 1e-7;

// Columns of a batch [samples, columns].
int64_t ColumnsOf(const PartialShape& y_pred) {
  return y_pred.has_rank() && y_pred.rank() == 2 ? std::max<int64_t>(y_pred.dim(1), 0) : 0;
}

}  // namespace

Metric FBetaScore(const FBetaOptions& o) {
  Metric::Rule rule;
  rule.sums = [o](const PartialShape&, const PartialShape& y_pred) {
    const Shape shape = o.average == Average::kMicro ? Shape({}) : Shape({ColumnsOf(y_pred)});
    return std::vector<Metric::Sum>{{"true_positives", shape},
                                    {"false_positives", shape},
                                    {"false_negatives", shape},
                                    {"intermediate_weights", shape}};
  };
  rule.additions = [o](const Scope& s, const Batch& b) {
    const Expr y = Expr(s, b.y_true).Cast(kFloat), scores = Expr(s, b.y_pred).Cast(kFloat);
    // Of a row of zeros none is the largest.
    const Expr p = (o.threshold ? scores > *o.threshold
                                : (scores >= scores.ReduceMax({-1}, true)).And(scores.Abs() > 1e-9))
                       .Cast(kFloat);
    const auto sum = [&](const Expr& counted) {
      const Expr weighted = b.sample_weight.valid()
                                ? counted * Expr(s, b.sample_weight).Cast(kFloat).ExpandDims(1)
                                : counted;
      return o.average == Average::kMicro ? weighted.Sum() : weighted.Sum({0});
    };
    return std::vector<Expr>{sum(p * y), sum(p * (1.0 - y)), sum((1.0 - p) * y), sum(y)};
  };
  rule.result = [o](const std::vector<Expr>& s) {
    const double square = o.beta * o.beta;
    const Expr precision = s[0] / (s[0] + s[1] + kEpsilon);
    const Expr recall = s[0] / (s[0] + s[2] + kEpsilon);
    const Expr score =
        (1 + square) * (precision * recall) / (square * precision + recall + kEpsilon);
    if (o.average == Average::kNone) return score;
    if (o.average == Average::kWeighted) return (score * s[3] / (s[3].Sum() + kEpsilon)).Sum();
    return score.Mean();
  };
  const char* const name = o.beta == 1 ? "f1_score" : "fbeta_score";
  OptionChecks checks = ChecksOf(name);
  checks.Above("beta", o.beta, 0)
      .Above("threshold", o.threshold, 0)
      .AtMost("threshold", o.threshold, 1);
  return Checked(name, checks, std::move(rule));
}

Metric F1Score(FBetaOptions options) {
  options.beta = 1;
  return FBetaScore(options);
}

namespace {

Expr ClassNumbers(const Scope& s, const Output& y, bool sparse) {
  const Expr classes(s, sparse ? y : ops::ArgMax(s, y, -1));
  return classes.Cast(kInt64).Reshape({-1});
}

Metric::Rule IoURule(const IoUOptions& o) {
  Metric::Rule rule;
  const int64_t n = o.num_classes;
  rule.sums = [o, n](const PartialShape&, const PartialShape&) {
    return std::vector<Metric::Sum>{{"total_confusion_matrix", Shape({n, n}), o.dtype}};
  };
  rule.additions = [o, n](const Scope& s, const Batch& b) {
    const Expr y = ClassNumbers(s, b.y_true, o.sparse_y_true);
    const Expr p = ClassNumbers(s, b.y_pred, o.sparse_y_pred);
    const Expr ones = Expr(s, ops::OnesLike(s, y)).Cast(o.dtype);
    Expr weight = ones;
    if (b.sample_weight.valid()) {
      weight = Expr(s, b.sample_weight).Cast(o.dtype).Reshape({-1}) * ones;
    }
    const int64_t zero = 0;
    Expr counts = (y >= zero).And(y < n).And(p >= zero).And(p < n);
    if (o.ignore_class) counts = counts.And(y.NotEqual(*o.ignore_class));
    // A cell outside the matrix takes what does not count.
    const Expr cell = counts.Select(y * n + p, ops::Sub(s, ops::ZerosLike(s, y), int64_t{1}));
    const Expr sums(s, ops::UnsortedSegmentSum(s, weight, cell, static_cast<int32_t>(n * n)));
    const int32_t size = static_cast<int32_t>(n);
    return std::vector<Expr>{sums.Reshape(Tensor::FromValues<int32_t>({size, size}))};
  };
  rule.result = [o](const std::vector<Expr>& sums) {
    const Expr matrix = sums[0].Cast(kFloat);
    const Scope& s = matrix.scope();
    Expr both(s, ops::DiagPart(s, matrix));
    Expr either = matrix.Sum({0}) + matrix.Sum({1}) - both;
    if (!o.target_class_ids.empty()) {
      const Tensor ids = Tensor::FromValues<int32_t>(
          o.target_class_ids, Shape({static_cast<int64_t>(o.target_class_ids.size())}));
      both = Expr(s, ops::GatherV2(s, both, ids, 0));
      either = Expr(s, ops::GatherV2(s, either, ids, 0));
    }
    const Expr valid = (either > 1e-9).Cast(kFloat).Sum();
    return both.DivNoNan(either).Sum().DivNoNan(valid);
  };
  return rule;
}

// Numbers of cells of the matrix are int32.
constexpr int32_t kMostClasses = 46340;

OptionChecks ChecksFor(const char* name, const IoUOptions& o) {
  OptionChecks checks = ChecksOf(name);
  checks.Within("num_classes", o.num_classes, 1, kMostClasses);
  for (const int32_t id : o.target_class_ids) {
    checks.Within("a class of target_class_ids", id, 0, o.num_classes - 1);
  }
  return checks;
}

Metric MakeIoU(const char* name, const IoUOptions& o) {
  return Checked(name, ChecksFor(name, o), IoURule(o));
}

}  // namespace

Metric IoU(const IoUOptions& options) { return MakeIoU("io_u", options); }
Metric MeanIoU(const IoUOptions& options) { return MakeIoU("mean_io_u", options); }
Metric OneHotIoU(IoUOptions options) {
  options.sparse_y_true = options.sparse_y_pred = false;
  return MakeIoU("one_hot_io_u", options);
}
Metric OneHotMeanIoU(IoUOptions options) {
  options.sparse_y_true = options.sparse_y_pred = false;
  return MakeIoU("one_hot_mean_io_u", options);
}

Metric BinaryIoU(const BinaryIoUOptions& o) {
  const IoUOptions options{
      .num_classes = 2, .target_class_ids = o.target_class_ids, .dtype = o.dtype};
  // The same sums, of predictions that are classes by then.
  Metric::Rule rule = IoURule(options);
  rule.additions = [inner = rule.additions, o](const Scope& s, const Batch& b) {
    Batch classes = b;
    classes.y_pred = (Expr(s, b.y_pred) >= o.threshold).Cast(kInt64);
    return inner(s, classes);
  };
  OptionChecks checks = ChecksFor("binary_io_u", options);
  return Checked("binary_io_u", checks.Finite("threshold", o.threshold), std::move(rule));
}

Metric R2Score(const R2ScoreOptions& o) {
  Metric::Rule rule;
  rule.sums = [](const PartialShape&, const PartialShape& y_pred) {
    const Shape columns({ColumnsOf(y_pred)});
    return std::vector<Metric::Sum>{{"num_samples", Shape({})},
                                    {"squared_sum", columns},
                                    {"sum", columns},
                                    {"residual", columns},
                                    {"count", columns}};
  };
  rule.additions = [](const Scope& s, const Batch& b) {
    const Expr p = Expr(s, b.y_pred).Cast(kFloat), y = Expr(s, b.y_true).Cast(kFloat);
    Expr weight(s, ops::OnesLike(s, y));
    if (b.sample_weight.valid()) {
      const Expr given = Expr(s, b.sample_weight).Cast(kFloat);
      weight = weight * (given.shape().rank() == 1 ? given.ExpandDims(1) : given);
    }
    const Expr weighted = y * weight;
    return std::vector<Expr>{Expr(s, ops::Size(s, y)).Cast(kFloat), (y * weighted).Sum({0}),
                             weighted.Sum({0}), ((y - p).Square() * weight).Sum({0}),
                             weight.Sum({0})};
  };
  rule.result = [o](const std::vector<Expr>& v) {
    const Expr &samples = v[0], &squares = v[1], &sum = v[2], &residual = v[3], &count = v[4];
    const Scope& s = samples.scope();
    const Expr total = squares - sum * (sum / count);
    Expr scores = 1.0 - residual / total;
    scores = Expr(s, ops::IsInf(s, scores)).Select(ops::ZerosLike(s, scores), scores);
    Expr score = scores;
    if (o.class_aggregation == ClassAggregation::kUniformAverage) score = scores.Mean();
    if (o.class_aggregation == ClassAggregation::kVarianceWeightedAverage) {
      score = (total * scores).Sum() / total.Sum();
    }
    if (o.num_regressors == 0) return score;
    const double regressors = static_cast<double>(o.num_regressors);
    return 1.0 - (1.0 - score) * (samples - 1.0) / (samples - regressors - 1.0);
  };
  OptionChecks checks = ChecksOf("r2_score");
  checks.AtLeast("num_regressors", static_cast<double>(o.num_regressors), 0);
  return Checked("r2_score", checks, std::move(rule));
}

}  // namespace millrace::metrics
