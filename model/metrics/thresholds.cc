// SPDX-License-Identifier: Apache-2.0
// Metrics of predictions that are positive above thresholds.
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "model/metrics/checked.h"

namespace millrace::metrics {
namespace {

constexpr double kFarBelow = -1e10;

Tensor FloatVector(const std::vector<double>& numbers) {
  const std::vector<float> values(numbers.begin(), numbers.end());
  return Tensor::FromValues<float>(values, Shape({static_cast<int64_t>(values.size())}));
}

// Predictions, labels (0 or 1) and weights of a batch, all of one shape.
struct Samples {
  Expr p, y, weight;
};

Expr KeepTopK(const Expr& p, int32_t k) {
  const Scope& s = p.scope();
  const int32_t classes = static_cast<int32_t>(p.shape().dim(p.shape().rank() - 1));
  const Output places = ops::TopKV2(s, p, k).indices;
  const Expr chosen = Expr(s, ops::OneHot(s, places, classes, 1.0f, 0.0f)).Sum({-2});
  return p * chosen + kFarBelow * (1.0 - chosen);
}

Samples SamplesOf(const Scope& s, const Batch& b, std::optional<int32_t> top_k,
                  std::optional<int32_t> class_id) {
  Expr p = Expr(s, b.y_pred).Cast(kFloat), y = Expr(s, b.y_true).Cast(kFloat);
  const int p_rank = p.shape().rank(), y_rank = y.shape().rank();
  if (p_rank == y_rank + 1) y = y.ExpandDims(-1);
  if (y_rank == p_rank + 1) p = p.ExpandDims(-1);
  if (top_k) p = KeepTopK(p, *top_k);
  if (class_id) {
    const auto one = [&](const Expr& x) {
      return Expr(s, ops::GatherV2(s, x, Tensor::FromValues<int32_t>({*class_id}), -1));
    };
    p = one(p);
    y = one(y);
  }
  y = y.NotEqual(0).Cast(kFloat);
  const Expr ones(s, ops::OnesLike(s, p));
  if (!b.sample_weight.valid()) return {p, y, ones};
  Expr weight = Expr(s, b.sample_weight).Cast(kFloat);
  while (weight.shape().rank() < p.shape().rank()) weight = weight.ExpandDims(-1);
  return {p, y, weight * ones};
}

// Sums over all samples, for each threshold.
struct Counts {
  Expr tp, fp, tn, fn;
};

Counts CompareAll(const Samples& samples, const std::vector<double>& thresholds) {
  const Scope& s = samples.p.scope();
  const Expr levels = Expr(s, Constant(s, FloatVector(thresholds))).ExpandDims(1);
  const Expr positive = (samples.p.Reshape({1, -1}) > levels).Cast(kFloat);
  const Expr y = samples.y.Reshape({1, -1}), weight = samples.weight.Reshape({1, -1});
  const Expr hit = y * weight, miss = (1.0 - y) * weight;
  return {(positive * hit).Sum({1}), (positive * miss).Sum({1}), ((1.0 - positive) * miss).Sum({1}),
          ((1.0 - positive) * hit).Sum({1})};
}

// Evenly spaced thresholds from 0 to 1: each prediction goes into the bucket of the last threshold
// below it. `first_counts_all`: the first threshold is a little below 0. With labels, one column
// each.
Counts CountBuckets(const Samples& samples, int32_t thresholds, bool first_counts_all,
                    int32_t labels) {
  const Scope& s = samples.p.scope();
  const Expr p = samples.p.Clip(0, 1);
  Expr bucket = (p * static_cast<float>(thresholds - 1)).Ceil() - 1.0f;
  if (first_counts_all) bucket = bucket.Max(0);
  // Bucket and label as one number; what lies in no bucket stays negative.
  Expr place = bucket.Cast(kInt32);
  const Expr none = place < 0;
  place = place * labels;
  if (labels > 1) place = place + ops::Range(s, 0, labels, 1);
  const Expr flat = none.Select(ops::Sub(s, ops::ZerosLike(s, place), 1), place).Reshape({-1});
  const Output shape = Constant(s, labels > 1 ? Tensor::FromValues<int32_t>({thresholds, labels})
                                              : Tensor::FromValues<int32_t>({thresholds}));
  const auto above = [&](const Expr& counted) {
    const Output sums =
        ops::UnsortedSegmentSum(s, counted.Reshape({-1}), flat, thresholds * labels);
    return Expr(s, ops::Cumsum(s, Expr(s, sums).Reshape(shape), 0, {.reverse = true}));
  };
  const auto total = [&](const Expr& counted) {
    return labels > 1 ? counted.Sum({0}, /*keep_dims=*/true) : counted.Sum();
  };
  const Expr hit = samples.y * samples.weight, miss = (1.0 - samples.y) * samples.weight;
  const Expr tp = above(hit), fp = above(miss);
  return {tp, fp, total(miss) - fp, total(hit) - tp};
}

std::vector<double> ThresholdsOf(const ThresholdOptions& o) {
  if (!o.thresholds.empty()) return o.thresholds;
  return {o.top_k ? kFarBelow : 0.5};
}

OptionChecks ChecksFor(const char* name, const ThresholdOptions& o) {
  OptionChecks checks = ChecksOf(name);
  for (const double threshold : o.thresholds) checks.Within("a threshold", threshold, 0, 1);
  checks.AtLeast("top_k", o.top_k, 1).AtLeast("class_id", o.class_id, 0);
  return checks;
}

using Pick = std::function<std::vector<Expr>(const Counts&)>;

Metric Counting(const char* name, const ThresholdOptions& o, std::vector<std::string> sums,
                Pick pick, std::function<Expr(const std::vector<Expr>&)> result) {
  const std::vector<double> thresholds = ThresholdsOf(o);
  Metric::Rule rule;
  rule.sums = [sums, thresholds](const PartialShape&, const PartialShape&) {
    std::vector<Metric::Sum> all;
    for (const std::string& sum : sums) {
      all.push_back({sum, Shape({static_cast<int64_t>(thresholds.size())})});
    }
    return all;
  };
  rule.additions = [o, thresholds, pick](const Scope& s, const Batch& b) {
    return pick(CompareAll(SamplesOf(s, b, o.top_k, o.class_id), thresholds));
  };
  rule.result = [thresholds, result](const std::vector<Expr>& s) {
    const Expr all = result(s);
    return thresholds.size() == 1 ? all.Sum() : all;
  };
  return Checked(name, ChecksFor(name, o), std::move(rule));
}

Metric OneCount(const char* name, const ThresholdOptions& o, Expr Counts::* which) {
  return Counting(
      name, o, {"accumulator"}, [which](const Counts& c) { return std::vector<Expr>{c.*which}; },
      [](const std::vector<Expr>& s) { return s[0]; });
}

Metric Ratio(const char* name, const char* second, const ThresholdOptions& o,
             Expr Counts::* which) {
  return Counting(
      name, o, {"true_positives", second},
      [which](const Counts& c) { return std::vector<Expr>{c.tp, c.*which}; },
      [](const std::vector<Expr>& s) { return s[0].DivNoNan(s[0] + s[1]); });
}

Metric::Rule FourCounts(int32_t thresholds, int32_t labels) {
  Metric::Rule rule;
  rule.sums = [thresholds, labels](const PartialShape&, const PartialShape& y_pred) {
    Shape shape({thresholds});
    if (labels != 0) shape = Shape({thresholds, y_pred.rank() == 2 ? y_pred.dim(1) : 0});
    return std::vector<Metric::Sum>{{"true_positives", shape},
                                    {"false_positives", shape},
                                    {"true_negatives", shape},
                                    {"false_negatives", shape}};
  };
  return rule;
}

std::vector<Expr> InOrder(const Counts& c) { return {c.tp, c.fp, c.tn, c.fn}; }

bool IsEven(const std::vector<double>& thresholds) {
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double even = static_cast<double>(i + 1) / static_cast<double>(thresholds.size() + 1);
    if (std::abs(thresholds[i] - even) > 1e-7) return false;
  }
  return true;
}

// All but the last, and all but the first, along the first axis.
Expr Head(const Expr& x, int32_t n) {
  const bool labels = x.shape().rank() > 1;
  return Expr(x.scope(), labels ? ops::Slice(x.scope(), x, {0, 0}, {n - 1, -1})
                                : ops::Slice(x.scope(), x, {0}, {n - 1}));
}
Expr Tail(const Expr& x) {
  const bool labels = x.shape().rank() > 1;
  return Expr(x.scope(), labels ? ops::Slice(x.scope(), x, {1, 0}, {-1, -1})
                                : ops::Slice(x.scope(), x, {1}, {-1}));
}

// The area in one piece per pair of neighbouring thresholds.
Expr PiecesOf(const AucOptions& o, const std::vector<Expr>& sums, int32_t n) {
  const Expr &tp = sums[0], &fp = sums[1], &tn = sums[2], &fn = sums[3];
  if (o.curve == Curve::kPr && o.summation_method == SummationMethod::kInterpolation) {
    // Davis and Goadrich, ICML 2006: between two points of the curve counts, not rates, are linear.
    const Expr dtp = Head(tp, n) - Tail(tp), p = tp + fp;
    const Expr slope = dtp.DivNoNan((Head(p, n) - Tail(p)).Max(0));
    const Expr intercept = Tail(tp) - slope * Tail(p);
    const Expr both = (Head(p, n) > 0).And(Tail(p) > 0);
    const Expr ratio =
        both.Select(Head(p, n).DivNoNan(Tail(p).Max(0)), ops::OnesLike(p.scope(), Tail(p)));
    return (slope * (dtp + intercept * ratio.Log())).DivNoNan((Tail(tp) + Tail(fn)).Max(0));
  }
  const Expr recall = tp.DivNoNan(tp + fn);
  const bool roc = o.curve == Curve::kRoc;
  const Expr x = roc ? fp.DivNoNan(fp + tn) : recall, y = roc ? recall : tp.DivNoNan(tp + fp);
  const Expr left = Head(y, n), right = Tail(y);
  const Expr height = o.summation_method == SummationMethod::kInterpolation ? (left + right) / 2.0
                      : o.summation_method == SummationMethod::kMinoring    ? left.Min(right)
                                                                            : left.Max(right);
  return (Head(x, n) - Tail(x)) * height;
}

}  // namespace

Metric TruePositives(const ThresholdOptions& o) {
  return OneCount("true_positives", o, &Counts::tp);
}
Metric TrueNegatives(const ThresholdOptions& o) {
  return OneCount("true_negatives", o, &Counts::tn);
}
Metric FalsePositives(const ThresholdOptions& o) {
  return OneCount("false_positives", o, &Counts::fp);
}
Metric FalseNegatives(const ThresholdOptions& o) {
  return OneCount("false_negatives", o, &Counts::fn);
}
Metric Precision(const ThresholdOptions& o) {
  return Ratio("precision", "false_positives", o, &Counts::fp);
}
Metric Recall(const ThresholdOptions& o) {
  return Ratio("recall", "false_negatives", o, &Counts::fn);
}

namespace {

OptionChecks ChecksFor(const AucOptions& o) {
  OptionChecks checks = ChecksOf("auc");
  if (o.thresholds.empty()) checks.AtLeast("num_thresholds", o.num_thresholds, 2);
  for (const double threshold : o.thresholds) checks.Within("a threshold", threshold, 0, 1);
  for (const float weight : o.label_weights) checks.AtLeast("a label weight", weight, 0);
  return checks;
}

// Whether predictions have a column for each of several labels.
bool HasColumns(const PartialShape& y_pred) { return y_pred.rank() == 2 && y_pred.dim(1) > 0; }

}  // namespace

Metric Auc(const AucOptions& o) {
  const int32_t n =
      o.thresholds.empty() ? o.num_thresholds : static_cast<int32_t>(o.thresholds.size()) + 2;
  const bool even = IsEven(o.thresholds);
  Metric::Rule rule = FourCounts(n, o.multi_label ? 1 : 0);
  rule.additions = [o, n, even](const Scope& s, const Batch& b) -> std::vector<Expr> {
    if (o.multi_label && !HasColumns(b.y_pred.shape())) {
      s.RecordError(errors::InvalidArgument("metric 'auc': with multi_label predictions must have "
                                            "a column for each label, and are ",
                                            b.y_pred.shape().DebugString()),
                    std::source_location::current());
      return {};
    }
    Batch batch = b;
    if (o.from_logits) batch.y_pred = ops::Sigmoid(s, b.y_pred);
    const Samples samples = SamplesOf(s, batch, std::nullopt, std::nullopt);
    if (even || o.multi_label) {
      const int32_t labels = o.multi_label ? static_cast<int32_t>(b.y_pred.shape().dim(1)) : 1;
      return InOrder(CountBuckets(samples, n, /*first_counts_all=*/true, labels));
    }
    std::vector<double> all = o.thresholds;
    std::sort(all.begin(), all.end());
    all.insert(all.begin(), -1e-7);
    all.push_back(1 + 1e-7);
    return InOrder(CompareAll(samples, all));
  };
  rule.result = [o, n](const std::vector<Expr>& sums) {
    const Expr pieces = PiecesOf(o, sums, n);
    if (!o.multi_label) return pieces.Sum();
    const Expr by_label = pieces.Sum({0});
    if (o.label_weights.empty()) return by_label.Mean();
    const Expr weights(
        pieces.scope(),
        Constant(pieces.scope(), FloatVector({o.label_weights.begin(), o.label_weights.end()})));
    return (by_label * weights).Sum().DivNoNan(weights.Sum());
  };
  return Checked("auc", ChecksFor(o), std::move(rule));
}

namespace {

// The best `wanted` where `constrained` is high enough; each from the four counts.
Metric BestUnderConstraint(const char* name, const ConstraintOptions& o,
                           std::function<Expr(const Counts&)> constrained,
                           std::function<Expr(const Counts&)> wanted) {
  Metric::Rule rule = FourCounts(o.num_thresholds, 0);
  rule.additions = [o](const Scope& s, const Batch& b) {
    return InOrder(CountBuckets(SamplesOf(s, b, std::nullopt, o.class_id), o.num_thresholds,
                                /*first_counts_all=*/false, 1));
  };
  rule.result = [o, constrained, wanted](const std::vector<Expr>& s) {
    const Counts counts{s[0], s[1], s[2], s[3]};
    const Expr value = wanted(counts);
    return (constrained(counts) >= o.at_least)
        .Select(value, ops::ZerosLike(value.scope(), value))
        .ReduceMax();
  };
  OptionChecks checks = ChecksOf(name);
  checks.Within("at_least", o.at_least, 0, 1)
      .AtLeast("num_thresholds", o.num_thresholds, 1)
      .AtLeast("class_id", o.class_id, 0);
  return Checked(name, checks, std::move(rule));
}

Expr SensitivityOf(const Counts& c) { return c.tp.DivNoNan(c.tp + c.fn); }
Expr SpecificityOf(const Counts& c) { return c.tn.DivNoNan(c.tn + c.fp); }
Expr PrecisionOf(const Counts& c) { return c.tp.DivNoNan(c.tp + c.fp); }

}  // namespace

Metric SensitivityAtSpecificity(const ConstraintOptions& o) {
  return BestUnderConstraint("sensitivity_at_specificity", o, SpecificityOf, SensitivityOf);
}
Metric SpecificityAtSensitivity(const ConstraintOptions& o) {
  return BestUnderConstraint("specificity_at_sensitivity", o, SensitivityOf, SpecificityOf);
}
Metric PrecisionAtRecall(const ConstraintOptions& o) {
  return BestUnderConstraint("precision_at_recall", o, SensitivityOf, PrecisionOf);
}
Metric RecallAtPrecision(const ConstraintOptions& o) {
  return BestUnderConstraint("recall_at_precision", o, PrecisionOf, SensitivityOf);
}

}  // namespace millrace::metrics
