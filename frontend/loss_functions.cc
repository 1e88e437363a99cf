// SPDX-License-Identifier: Apache-2.0
// The values of losses, sample by sample.
#include <cmath>
#include <numbers>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "frontend/same_rank.h"
#include "millrace/losses.h"
#include "millrace/math.h"

namespace millrace::losses {
namespace {

constexpr double kEpsilon = 1e-7;

OptionChecks ChecksOf(const char* name) { return OptionChecks(std::string("loss '") + name + "'"); }

// False, with an error, for strings.
bool AreNumbers(const Scope& scope, const char* name, const Output& y_true, const Output& y_pred) {
  if (y_true.dtype() != kString && y_pred.dtype() != kString) return true;
  scope.RecordError(errors::InvalidArgument(
                        "loss '", name, "': ", y_true.dtype() == kString ? "labels" : "predictions",
                        " are of type string; make numbers of them (layers::StringLookup)"),
                    std::source_location::current());
  return false;
}

// A function of numbers whose options are what they must be; else an error.
Loss Checked(const char* name, const OptionChecks& checks, LossFunction function) {
  if (checks.status().ok()) {
    return Loss(name, [name, function = std::move(function)](const Scope& s, const Output& y_true,
                                                             const Output& y_pred) {
      return AreNumbers(s, name, y_true, y_pred) ? function(s, y_true, y_pred) : LossValues{};
    });
  }
  return Loss(name, [status = checks.status()](const Scope& s, const Output&, const Output&) {
    s.RecordError(status, std::source_location::current());
    return LossValues{};
  });
}

// A function of both, y_true being of y_pred's type and rank.
template <typename F>
Loss Make(const char* name, const OptionChecks& checks, F function) {
  return Checked(name, checks,
                 [function](const Scope& s, const Output& y_true, const Output& y_pred) {
                   const Expr p(s, y_pred);
                   const auto [y, same] = ToSameRank(Expr(s, y_true).Cast(p.dtype()), p);
                   return LossValues{function(y, same)};
                 });
}
template <typename F>
Loss Make(const char* name, F function) {
  return Make(name, ChecksOf(name), function);
}

// The mean over the last axis of a function of both.
template <typename F>
Loss MakeMean(const char* name, const OptionChecks& checks, F function) {
  return Make(name, checks,
              [function](const Expr& y, const Expr& p) { return function(y, p).Mean({-1}); });
}
template <typename F>
Loss MakeMean(const char* name, F function) {
  return MakeMean(name, ChecksOf(name), function);
}

Expr Probability(const Expr& p) { return p.Clip(kEpsilon, 1 - kEpsilon); }

// Labels 0 and 1 become -1 and 1; others stay.
Expr HingeLabels(const Expr& y) {
  const Expr binary = y.Equal(0).Or(y.Equal(1));
  const Expr all(y.scope(), ops::All(y.scope(), binary.Reshape({-1}), {0}));
  return all.Select(2.0 * y - 1.0, y);
}

Expr SmoothBinary(const Expr& y, double smoothing) {
  return smoothing > 0 ? y * (1 - smoothing) + 0.5 * smoothing : y;
}

Expr SmoothCategorical(const Expr& y, double smoothing) {
  const int rank = y.shape().rank();
  if (smoothing <= 0 || rank < 1) return y;
  const int64_t known = y.shape().dim(rank - 1);
  if (known > 0) return y * (1 - smoothing) + smoothing / static_cast<double>(known);
  const Scope& s = y.scope();
  const Expr classes(s, ops::GatherV2(s, ops::Shape(s, y), rank - 1, 0));
  return y * (1 - smoothing) + smoothing / classes.Cast(y.dtype());
}

Expr BinaryEntropy(const Expr& y, const Expr& p) {
  const Expr q = Probability(p);
  return -(y * q.Log() + (1.0 - y) * (1.0 - q).Log());
}

Expr BinaryEntropyOfLogits(const Expr& y, const Expr& x) {
  const Expr log1p(x.scope(), ops::Log1p(x.scope(), (-x.Abs()).Exp()));
  return x.Max(0) - x * y + log1p;
}

Expr LogSoftmax(const Expr& x, int32_t axis) {
  const Expr highest(x.scope(), ops::StopGradient(x.scope(), x.ReduceMax({axis}, true)));
  const Expr shifted = x - highest;
  return shifted - shifted.Exp().Sum({axis}, true).Log();
}

// The cross entropy along an axis; its gradient is TensorFlow's, which takes it that the labels
// along the axis sum to 1.
Expr CategoricalEntropyOfLogits(const Expr& y, const Expr& x, int32_t axis) {
  const Scope& s = x.scope();
  const int rank = x.shape().rank(), place = axis < 0 ? axis + rank : axis;
  std::vector<int32_t> order;
  for (int i = 0; i < rank; ++i) {
    if (i != place) order.push_back(i);
  }
  order.push_back(place);
  const auto last = [&](const Expr& e) {
    return place == rank - 1 ? e : e.Transpose(Tensor::FromValues<int32_t>(order, Shape({rank})));
  };
  const Expr logits = last(x), losses_shape(s, ops::Shape(s, logits));
  const int32_t classes = static_cast<int32_t>(x.shape().dim(place));
  const Tensor flat = Tensor::FromValues<int32_t>({-1, classes});
  const Output loss =
      ops::SoftmaxCrossEntropyWithLogits(s, logits.Reshape(flat), last(y).Reshape(flat)).loss;
  return Expr(s, loss).Reshape(ops::Slice(s, losses_shape, {0}, {rank - 1}));
}

Expr LogSumExp(const Expr& x, int32_t axis) {
  const Expr highest(x.scope(), ops::StopGradient(x.scope(), x.ReduceMax({axis}, true)));
  return (x - highest).Exp().Sum({axis}).Log() + highest.Squeeze(axis);
}

Expr UnitLength(const Expr& x, int32_t axis) {
  const Expr square = x.Square().Sum({axis}, true);
  return x * Expr(x.scope(), ops::Rsqrt(x.scope(), square)).Min(1 / kEpsilon);
}

}  // namespace

Loss MeanSquaredError() {
  return MakeMean("mean_squared_error",
                  [](const Expr& y, const Expr& p) { return (p - y).Square(); });
}
Loss MeanAbsoluteError() {
  return MakeMean("mean_absolute_error",
                  [](const Expr& y, const Expr& p) { return (p - y).Abs(); });
}
Loss MeanAbsolutePercentageError() {
  return MakeMean("mean_absolute_percentage_error", [](const Expr& y, const Expr& p) {
    return 100.0 * ((y - p) / y.Abs().Max(kEpsilon)).Abs();
  });
}
Loss MeanSquaredLogarithmicError() {
  return MakeMean("mean_squared_logarithmic_error", [](const Expr& y, const Expr& p) {
    return ((p.Max(kEpsilon) + 1.0).Log() - (y.Max(kEpsilon) + 1.0).Log()).Square();
  });
}
Loss LogCosh() {
  return MakeMean("log_cosh", [](const Expr& y, const Expr& p) {
    const Expr x = p - y;
    return x + (-2.0 * x).Softplus() - std::numbers::ln2;
  });
}
Loss Huber(const HuberOptions& o) {
  OptionChecks checks = ChecksOf("huber_loss");
  checks.AtLeast("delta", o.delta, 0);
  return MakeMean("huber_loss", checks, [o](const Expr& y, const Expr& p) {
    const Expr size = (p - y).Abs();
    return (size <= o.delta)
        .Select(0.5 * (p - y).Square(), o.delta * size - 0.5 * o.delta * o.delta);
  });
}
Loss CosineSimilarity(const CosineSimilarityOptions& o) {
  return Make("cosine_similarity", [o](const Expr& y, const Expr& p) {
    return -(UnitLength(y, o.axis) * UnitLength(p, o.axis)).Sum({o.axis});
  });
}

Loss KLDivergence() {
  return Make("kl_divergence", [](const Expr& y, const Expr& p) {
    const Expr a = y.Clip(kEpsilon, 1), b = p.Clip(kEpsilon, 1);
    return (a * (a / b).Log()).Sum({-1});
  });
}
Loss Poisson() {
  return MakeMean("poisson",
                  [](const Expr& y, const Expr& p) { return p - y * (p + kEpsilon).Log(); });
}
Loss Hinge() {
  return MakeMean("hinge",
                  [](const Expr& y, const Expr& p) { return (1.0 - HingeLabels(y) * p).Max(0); });
}
Loss SquaredHinge() {
  return MakeMean("squared_hinge", [](const Expr& y, const Expr& p) {
    return (1.0 - HingeLabels(y) * p).Max(0).Square();
  });
}
Loss CategoricalHinge() {
  return Make("categorical_hinge", [](const Expr& y, const Expr& p) {
    const Expr positive = (y * p).Sum({-1}), negative = ((1.0 - y) * p).ReduceMax({-1});
    return (negative - positive + 1.0).Max(0);
  });
}

Loss BinaryCrossentropy(const CrossentropyOptions& o) {
  OptionChecks checks = ChecksOf("binary_crossentropy");
  checks.Within("label_smoothing", o.label_smoothing, 0, 1);
  return Make("binary_crossentropy", checks, [o](const Expr& y_true, const Expr& p) {
    const Expr y = SmoothBinary(y_true, o.label_smoothing);
    return (o.from_logits ? BinaryEntropyOfLogits(y, p) : BinaryEntropy(y, p)).Mean({o.axis});
  });
}
Loss CategoricalCrossentropy(const CrossentropyOptions& o) {
  OptionChecks checks = ChecksOf("categorical_crossentropy");
  checks.Within("label_smoothing", o.label_smoothing, 0, 1);
  return Make("categorical_crossentropy", checks, [o](const Expr& y_true, const Expr& p) {
    const Expr y = SmoothCategorical(y_true, o.label_smoothing);
    if (o.from_logits) return CategoricalEntropyOfLogits(y, p, o.axis);
    return -(y * Probability(p / p.Sum({o.axis}, true)).Log()).Sum({o.axis});
  });
}
Loss SparseCategoricalCrossentropy(const SparseCrossentropyOptions& o) {
  return Checked(
      "sparse_categorical_crossentropy", ChecksOf("sparse_categorical_crossentropy"),
      [o](const Scope& s, const Output& y_true, const Output& y_pred) {
        Expr y(s, y_true), p(s, y_pred);
        const int rank = p.shape().rank();
        if (rank < 1 || p.shape().dim(rank - 1) < 1) {
          s.RecordError(
              errors::InvalidArgument("loss 'sparse_categorical_crossentropy': predictions "
                                      "must have a last axis of classes, and are ",
                                      p.shape().DebugString()),
              std::source_location::current());
          return LossValues{};
        }
        if (y.shape().rank() == rank && y.shape().dim(rank - 1) == 1) y = y.Squeeze(-1);
        y = y.Cast(kInt64);
        LossValues result;
        if (o.ignore_class) {
          const Expr valid = y.NotEqual(*o.ignore_class);
          result.mask = valid;
          y = valid.Select(y, ops::ZerosLike(s, y));
          p = valid.ExpandDims(-1).Select(p, ops::ZerosLike(s, p));
        }
        const Expr logits = o.from_logits ? p : Probability(p).Log();
        const int32_t classes = static_cast<int32_t>(p.shape().dim(rank - 1));
        const Output flat =
            ops::SparseSoftmaxCrossEntropyWithLogits(
                s, logits.Reshape(Tensor::FromValues<int32_t>({-1, classes})), y.Reshape({-1}))
                .loss;
        Expr values = Expr(s, flat).Reshape(ops::Shape(s, y));
        if (o.ignore_class) {
          values = Expr(s, result.mask).Select(values, ops::ZerosLike(s, values));
        }
        result.values = values;
        return result;
      });
}
namespace {

OptionChecks ChecksOf(const char* name, const FocalCrossentropyOptions& o) {
  OptionChecks checks = ChecksOf(name);
  checks.Within("label_smoothing", o.label_smoothing, 0, 1)
      .Finite("alpha", o.alpha)
      .AtLeast("gamma", o.gamma, 0);
  return checks;
}

}  // namespace

Loss BinaryFocalCrossentropy(const FocalCrossentropyOptions& o) {
  const OptionChecks checks = ChecksOf("binary_focal_crossentropy", o);
  return Make("binary_focal_crossentropy", checks, [o](const Expr& y_true, const Expr& y_pred) {
    const Expr y = SmoothBinary(y_true, o.label_smoothing);
    const Expr p = o.from_logits ? y_pred.Sigmoid() : y_pred;
    const Expr right = y * p + (1.0 - y) * (1.0 - p);
    Expr loss = (1.0 - right).Pow(o.gamma) * BinaryEntropy(y, p);
    if (o.apply_class_balancing) loss = (y * o.alpha + (1.0 - y) * (1 - o.alpha)) * loss;
    return loss.Mean({o.axis});
  });
}
Loss CategoricalFocalCrossentropy(const FocalCrossentropyOptions& o) {
  const OptionChecks checks = ChecksOf("categorical_focal_crossentropy", o);
  return Make("categorical_focal_crossentropy", checks,
              [o](const Expr& y_true, const Expr& y_pred) {
                const Expr y = SmoothCategorical(y_true, o.label_smoothing);
                Expr p = o.from_logits ? LogSoftmax(y_pred, o.axis).Exp() : y_pred;
                p = Probability(p / p.Sum({o.axis}, true));
                return ((1.0 - p).Pow(o.gamma) * o.alpha * -(y * p.Log())).Sum({o.axis});
              });
}
Loss CategoricalGeneralizedCrossEntropy(double q) {
  OptionChecks checks = ChecksOf("categorical_generalized_cross_entropy");
  checks.Above("q", q, 0).Below("q", q, 0, 1);
  return Checked("categorical_generalized_cross_entropy", checks,
                 [q](const Scope& s, const Output& y_true, const Output& y_pred) {
                   const Expr p(s, y_pred);
                   const int32_t classes =
                       static_cast<int32_t>(p.shape().dim(p.shape().rank() - 1));
                   const Output labels = Expr(s, y_true).Cast(kInt64);
                   const Expr y(s, ops::OneHot(s, labels, classes, 1.0f, 0.0f));
                   const Expr right = (p * y.Cast(p.dtype())).Sum({-1});
                   return LossValues{(1.0 - right.Pow(q)) / q};
                 });
}

Loss Dice(const OverlapOptions& o) {
  return Make("dice", [o](const Expr& y, const Expr& p) {
    const Expr overlap = (y * p).Sum(o.axes);
    return 1.0 - 2.0 * overlap / (y.Sum(o.axes) + p.Sum(o.axes) + kEpsilon);
  });
}
Loss Tversky(const OverlapOptions& o) {
  OptionChecks checks = ChecksOf("tversky");
  checks.Finite("alpha", o.alpha).Finite("beta", o.beta);
  return Make("tversky", checks, [o](const Expr& y, const Expr& p) {
    const Expr overlap = (y * p).Sum(o.axes);
    const Expr first = ((1.0 - p) * y).Sum(o.axes), second = (p * (1.0 - y)).Sum(o.axes);
    return 1.0 - overlap / (overlap + first * o.alpha + second * o.beta + kEpsilon);
  });
}

Loss Circle(const CircleOptions& o) {
  OptionChecks checks = ChecksOf("circle");
  checks.Finite("gamma", o.gamma).Finite("margin", o.margin);
  return Checked("circle", checks, [o](const Scope& s, const Output& y_true, const Output& y_pred) {
    const Expr p(s, y_pred), labels = Expr(s, y_true).Cast(kInt32).Reshape({-1});
    const Expr distance = (1.0 - Expr(s, ops::MatMul(s, p, p, {.transpose_b = true}))).Max(0);
    const Expr same = labels.ExpandDims(1).Equal(labels.ExpandDims(0));
    Expr positive = same;
    if (o.remove_diagonal) {
      const Expr index(s, ops::Range(s, 0, ops::Size(s, labels), 1));
      positive = same.And(index.ExpandDims(1).NotEqual(index.ExpandDims(0)));
    }
    const Expr p_weights = ((o.margin + distance) * positive.Cast(p.dtype())).Max(0);
    const Expr n_weights = ((1 + o.margin - distance) * same.Not().Cast(p.dtype())).Max(0);
    // Far below all others, instead of minus infinity: a row without any has a gradient, too.
    const Expr none = distance * 0 - 1e30;
    const Expr near = positive.Select(-o.gamma * p_weights * (o.margin - distance), none);
    const Expr far = same.Select(none, o.gamma * n_weights * (1 - o.margin - distance));
    const Expr loss = (LogSumExp(near, 1) + LogSumExp(far, 1)).Softplus();
    return LossValues{loss, loss > 0};
  });
}

namespace {

// `x` [batch, n] moved `by` places to the right, columns of `fill` coming in from the left.
Expr Shifted(const Expr& x, int32_t by, int32_t n, const Expr& fill) {
  const Scope& s = x.scope();
  return Expr(
      s,
      ops::ConcatV2(
          s, {ops::Slice(s, fill, {0, 0}, {-1, by}), ops::Slice(s, x, {0, 0}, {-1, n - by})}, 1));
}

}  // namespace

// Graves et al., ICML 2006: the sum over all ways to spread the labels, with blanks between them,
// over time; one step of the recursion for each time.
Loss Ctc() {
  return Loss("ctc", [](const Scope& s, const Output& y_true, const Output& y_pred) {
    const auto shape = y_pred.shape(), label_shape = y_true.shape();
    if (shape.rank() != 3 || label_shape.rank() != 2 || shape.dim(1) < 1 || shape.dim(2) < 1 ||
        label_shape.dim(1) < 1) {
      s.RecordError(errors::InvalidArgument(
                        "CTC takes labels [batch, length] and logits [batch, time, classes] of "
                        "which length, time and classes are known, not ",
                        label_shape.DebugString(), " and ", shape.DebugString()),
                    std::source_location::current());
      return LossValues{};
    }
    constexpr double kNever = -1e30;
    const int32_t length = static_cast<int32_t>(label_shape.dim(1)), n = 2 * length + 1;
    const int32_t classes = static_cast<int32_t>(shape.dim(2));
    const Expr labels = Expr(s, y_true).Cast(kInt32);
    // Blank, label, blank, label, ..., blank.
    const Expr pairs(s, ops::Pack(s, {ops::ZerosLike(s, labels), labels}, {.axis = 2}));
    const Expr flat = pairs.Reshape(Tensor::FromValues<int32_t>({-1, 2 * length}));
    const Expr path(s, ops::Pad(s, flat, Tensor::FromValues<int32_t>({0, 0, 0, 1}, Shape({2, 2}))));
    const Expr log_p = LogSoftmax(Expr(s, y_pred), 2);
    const Expr one_hot(s, ops::OneHot(s, path, classes, 1.0f, 0.0f));
    const Expr of_path(s, ops::BatchMatMulV2(s, log_p, one_hot, {.adj_y = true}));
    const std::vector<Output> times = ops::Unpack(s, of_path, shape.dim(1), {.axis = 1});
    // A label may follow another at once if it differs from it.
    const Expr before(
        s,
        ops::Slice(s, ops::Pad(s, path, Tensor::FromValues<int32_t>({0, 0, 2, 0}, Shape({2, 2}))),
                   {0, 0}, {-1, n}));
    const Expr may_skip = path.NotEqual(0).And(path.NotEqual(before));
    const Expr never = Expr(s, times[0]) * 0 + kNever;
    const Expr place(s, ops::Range(s, 0, n, 1));
    Expr alpha = ((place < 2).Cast(kInt32) + path * 0).NotEqual(0).Select(times[0], never);
    for (std::size_t t = 1; t < times.size(); ++t) {
      const Expr skipped = may_skip.Select(Shifted(alpha, 2, n, never), never);
      const Expr ways(s, ops::Pack(s, {alpha.output(), Shifted(alpha, 1, n, never).output(),
                                       skipped.output()}));
      alpha = LogSumExp(ways, 0) + times[t];
    }
    // At the end stands the last label or the blank behind it.
    const Expr last = 2 * labels.NotEqual(0).Cast(kInt32).Sum({1}, true);
    const Expr ends = (place + last * 0).Equal(last).Or((place + last * 0).Equal(last - 1));
    return LossValues{-LogSumExp(ends.Select(alpha, never), 1)};
  });
}

}  // namespace millrace::losses
