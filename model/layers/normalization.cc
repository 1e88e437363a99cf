// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/strings.h"
#include "millrace/normalization_layers.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

// All of these compute in float32: squares leave the range of 16 bits soon, and small differences
// are lost in it.

// gamma and beta of a layer, as they multiply and are added; not valid where there is none.
struct ScaleAndOffset {
  Output gamma, beta;
};

// The mean and the biased variance over axes.
struct Moments {
  Expr mean, variance;
};

Moments MomentsOf(const Expr& x, const std::vector<int32_t>& axes, bool keep_dims) {
  const Expr mean = x.Mean(axes, /*keep_dims=*/true);
  const Scope& s = x.scope();
  const Expr difference(s, ops::SquaredDifference(s, x, ops::StopGradient(s, mean)));
  const Expr variance = difference.Mean(axes, keep_dims);
  if (keep_dims) return {mean, variance};
  return {x.Mean(axes), variance};
}

Expr Normalized(const Expr& x, const Expr& mean, const Expr& variance, const ScaleAndOffset& by,
                double epsilon) {
  const Scope& s = x.scope();
  Expr factor(s, ops::Rsqrt(s, variance + static_cast<float>(epsilon)));
  if (by.gamma.valid()) factor = factor * by.gamma;
  const Expr offset = by.beta.valid() ? Expr(s, by.beta) - mean * factor : -(mean * factor);
  return x * factor + offset;
}

class BatchNormalizationLayer : public UnaryLayer {
 public:
  BatchNormalizationLayer(const BatchNormalizationOptions& options, Where where)
      : UnaryLayer(options.name, {.least = 2}, where), o_(options) {
    o_.beta_initializer = Or(o_.beta_initializer, initializers::Zeros());
    o_.gamma_initializer = Or(o_.gamma_initializer, initializers::Ones());
    o_.moving_mean_initializer = Or(o_.moving_mean_initializer, initializers::Zeros());
    o_.moving_variance_initializer = Or(o_.moving_variance_initializer, initializers::Ones());
  }
  std::string kind() const override { return "BatchNormalization"; }

 protected:
  bool computes_in(DataType) const override { return false; }
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    OptionChecks options = Options();
    options.Within("momentum", o_.momentum, 0, 1).AtLeast("epsilon", o_.epsilon, 0);
    if (!Hold(pass, options, where)) return Output();
    if (!NeedsDim(pass, input, o_.axis, where)) return Output();
    const Scope& s = pass.scope();
    const Output x = CastTo(s, input, kFloat);
    const int axis = AxisOf(x, o_.axis);
    const Shape shape({DimOf(x, axis)});
    Variable gamma, beta;
    if (o_.scale) {
      gamma = Weight(pass, "gamma", shape,
                     {o_.gamma_initializer, o_.gamma_regularizer, o_.gamma_constraint}, where);
    }
    if (o_.center) {
      beta = Weight(pass, "beta", shape,
                    {o_.beta_initializer, o_.beta_regularizer, o_.beta_constraint}, where);
    }
    const Variable mean =
        Weight(pass, "moving_mean", shape,
               {.initializer = o_.moving_mean_initializer, .trainable = false}, where);
    const Variable variance =
        Weight(pass, "moving_variance", shape,
               {.initializer = o_.moving_variance_initializer, .trainable = false}, where);
    if (!s.status().ok()) return Output();
    const ScaleAndOffset by{gamma.read, beta.read};
    if (!pass.training() || !is_trained(pass)) return Predict(s, x, axis, by, mean, variance);
    if (o_.synchronized) return TrainTogether(pass, x, axis, by, mean, variance);
    if (axis == x.shape().rank() - 1 && !pass.mask().valid()) {
      return TrainFused(pass, x, by, mean, variance);
    }
    return Train(pass, x, axis, by, mean, variance);
  }

 private:
  static std::vector<int32_t> AllBut(int axis, const Expr& x) {
    std::vector<int32_t> others;
    for (int i = 0; i < x.shape().rank(); ++i) {
      if (i != axis) others.push_back(i);
    }
    return others;
  }

  // 1 where the mask says that a step counts, in the shape of x.
  static Expr CountsLike(const Pass& pass, const Expr& x) {
    const Scope& s = pass.scope();
    return Expr(s, pass.mask()).Cast(kFloat).ExpandDims(-1) + Expr(s, ops::ZerosLike(s, x));
  }

  // One value for each feature, in the shape that is broadcast along `axis` of x.
  static Output Along(const Scope& s, const Output& v, const Output& x, int axis) {
    if (!v.valid() || axis == x.shape().rank() - 1) return v;
    std::vector<int64_t> dims(x.shape().rank(), 1);
    dims[axis] = -1;
    return ReshapeTo(s, v, dims);
  }

  Output Predict(const Scope& s, const Output& x, int axis, const ScaleAndOffset& by,
                 const Variable& mean, const Variable& variance) const {
    return Normalized(Expr(s, x), Expr(s, Along(s, mean.read, x, axis)),
                      Expr(s, Along(s, variance.read, x, axis)),
                      {Along(s, by.gamma, x, axis), Along(s, by.beta, x, axis)}, o_.epsilon);
  }

  // Features last: the fused kernel, which sees an image of one column.
  Output TrainFused(Pass& pass, const Output& x, const ScaleAndOffset& by, const Variable& mean,
                    const Variable& variance) {
    const Scope& s = pass.scope();
    const int64_t features = DimOf(x, -1);
    const bool image = x.shape().rank() == 4;
    const Output rows = image ? x : ReshapeTo(s, x, std::vector<int64_t>{-1, 1, 1, features});
    const auto all = [&](float value) {
      return ops::Fill(s, Ints(std::vector<int64_t>{features}), value);
    };
    const Output nothing = Constant(s, Tensor(kFloat, Shape({0})));
    const ops::FusedBatchNormV3Outputs fused = ops::FusedBatchNormV3(
        s, rows, by.gamma.valid() ? by.gamma : all(1), by.beta.valid() ? by.beta : all(0), nothing,
        nothing, {.epsilon = static_cast<float>(o_.epsilon), .is_training = true});
    // The kernel's variance is the unbiased one.
    const Expr count(s, ops::Size(s, rows));
    const Expr n = count.Cast(kFloat) / static_cast<float>(features);
    const Expr biased = Expr(s, fused.batch_variance) * ((n - 1.0f).Max(1.0f) / n);
    Move(pass, mean, Expr(s, fused.batch_mean));
    Move(pass, variance, biased);
    if (image) return fused.y;
    return ReshapeLike(s, fused.y, x, DimsOf(x));
  }

  Output Train(Pass& pass, const Output& input, int axis, const ScaleAndOffset& by,
               const Variable& mean, const Variable& variance) {
    const Scope& s = pass.scope();
    const Expr x(s, input);
    const std::vector<int32_t> others = AllBut(axis, x);
    Moments moments = MomentsOf(x, others, /*keep_dims=*/true);
    if (pass.mask().valid()) {
      const Expr counts = CountsLike(pass, x);
      const Expr n = counts.Sum(others, true) + 1e-7f;
      moments.mean = (x * counts).Sum(others, true) / n;
      moments.variance = ((x - moments.mean).Square() * counts).Sum(others, true) / n;
    }
    const auto flat = [&](const Expr& v) {
      return Expr(s, ReshapeTo(s, v, std::vector<int64_t>{x.shape().dim(axis)}));
    };
    Move(pass, mean, flat(moments.mean));
    Move(pass, variance, flat(moments.variance));
    return Normalized(x, moments.mean, moments.variance,
                      {Along(s, by.gamma, x, axis), Along(s, by.beta, x, axis)}, o_.epsilon);
  }

  // By the sums of all replicas: of what counts, of the values and of their squares, in one
  // exchange. A replica without samples adds nothing.
  Output TrainTogether(Pass& pass, const Output& input, int axis, const ScaleAndOffset& by,
                       const Variable& mean, const Variable& variance) {
    const Scope& s = pass.scope();
    const Expr x(s, input);
    const std::vector<int32_t> others = AllBut(axis, x);
    const int64_t features = DimOf(input, axis);
    const Expr counts = pass.mask().valid() ? CountsLike(pass, x) : Expr(s, ops::OnesLike(s, x));
    const Output own = ops::ConcatV2(
        s, {counts.Sum(others), (x * counts).Sum(others), (x.Square() * counts).Sum(others)}, 0);
    const Output all = pass.SumOverReplicas(ops::EnsureShape(s, own, PartialShape({3 * features})));
    if (!all.valid()) return Output();
    const auto part = [&](int64_t i) {
      const auto begin = static_cast<int32_t>(i * features);
      const auto end = static_cast<int32_t>((i + 1) * features);
      return Expr(s, ops::StridedSlice(s, all, {begin}, {end}, {1}));
    };
    const Expr n = part(0).Max(1.0f);
    const Expr batch_mean = part(1) / n;
    // The square of the mean may be the larger one by rounding.
    const Expr batch_variance = (part(2) / n - batch_mean.Square()).Max(0.0f);
    Move(pass, mean, batch_mean);
    Move(pass, variance, batch_variance);
    return Normalized(x, Expr(s, Along(s, batch_mean, x, axis)),
                      Expr(s, Along(s, batch_variance, x, axis)),
                      {Along(s, by.gamma, x, axis), Along(s, by.beta, x, axis)}, o_.epsilon);
  }

  void Move(Pass& pass, const Variable& moving, const Expr& batch) const {
    const float momentum = static_cast<float>(o_.momentum);
    const Scope& s = pass.scope();
    const Expr now(s.ColocateWith(moving.handle), moving.read);
    const Expr value = batch.In(s) * (1 - momentum);
    pass.AddUpdate(Assign(s, moving, (now * momentum + value).output()));
  }

  BatchNormalizationOptions o_;
};

class LayerNormalizationLayer : public UnaryLayer {
 public:
  LayerNormalizationLayer(const LayerNormalizationOptions& options, Where where)
      : UnaryLayer(options.name, {.least = 2}, where), o_(options) {
    o_.beta_initializer = Or(o_.beta_initializer, initializers::Zeros());
    o_.gamma_initializer = Or(o_.gamma_initializer, initializers::Ones());
    set_autocast(false);
  }
  std::string kind() const override { return "LayerNormalization"; }

 protected:
  bool computes_in(DataType) const override { return false; }
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    const Scope& s = pass.scope();
    const Expr x(s, CastTo(s, input, kFloat));
    if (!Hold(pass, Options().AtLeast("epsilon", o_.epsilon, 0), where)) return Output();
    std::vector<int32_t> axes;
    for (const int given : o_.axes) {
      if (!NeedsDim(pass, input, given, where)) return Output();
      axes.push_back(AxisOf(input, given));
    }
    std::sort(axes.begin(), axes.end());
    if (axes.empty() || std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
      return BadOption(
          pass,
          StrCat("axes must be at least one, each once, and are (", StrJoin(o_.axes, ", "), ")"),
          where);
    }
    std::vector<int64_t> dims, broadcast(x.shape().rank(), 1);
    for (const int axis : axes) {
      dims.push_back(x.shape().dim(axis));
      broadcast[axis] = dims.back();
    }
    const auto along = [&](const Variable& v) {
      return v.handle.valid() ? ReshapeTo(s, v.read, broadcast) : Output();
    };
    Variable gamma, beta;
    if (o_.scale) {
      gamma = Weight(pass, "gamma", Shape(dims),
                     {o_.gamma_initializer, o_.gamma_regularizer, o_.gamma_constraint}, where);
    }
    if (o_.center) {
      beta = Weight(pass, "beta", Shape(dims),
                    {o_.beta_initializer, o_.beta_regularizer, o_.beta_constraint}, where);
    }
    if (!s.status().ok()) return Output();
    const Moments moments = MomentsOf(x, axes, /*keep_dims=*/true);
    return Normalized(x, moments.mean, moments.variance, {along(gamma), along(beta)}, o_.epsilon);
  }

 private:
  LayerNormalizationOptions o_;
};

class GroupNormalizationLayer : public UnaryLayer {
 public:
  GroupNormalizationLayer(const GroupNormalizationOptions& options, Where where)
      : UnaryLayer(options.name, {.least = 2}, where), o_(options) {
    o_.beta_initializer = Or(o_.beta_initializer, initializers::Zeros());
    o_.gamma_initializer = Or(o_.gamma_initializer, initializers::Ones());
    set_autocast(false);
  }
  std::string kind() const override { return "GroupNormalization"; }

 protected:
  bool computes_in(DataType) const override { return false; }
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    if (!Hold(pass, Options().AtLeast("epsilon", o_.epsilon, 0), where)) return Output();
    if (!NeedsDim(pass, input, -1, where)) return Output();
    const Scope& s = pass.scope();
    const Output x = CastTo(s, input, kFloat);
    const int rank = x.shape().rank();
    const int64_t channels = DimOf(x, -1);
    const int64_t groups = o_.groups == -1 ? channels : o_.groups;
    if (AxisOf(x, o_.axis) != rank - 1) {
      return BadOption(pass, StrCat("axis must be the last, not ", o_.axis), where);
    }
    if (groups <= 0 || channels % groups != 0) {
      return BadOption(pass, StrCat(groups, " groups cannot be made of ", channels, " channels"),
                       where);
    }
    Variable gamma, beta;
    if (o_.scale) {
      gamma = Weight(pass, "gamma", Shape({channels}),
                     {o_.gamma_initializer, o_.gamma_regularizer, o_.gamma_constraint}, where);
    }
    if (o_.center) {
      beta = Weight(pass, "beta", Shape({channels}),
                    {o_.beta_initializer, o_.beta_regularizer, o_.beta_constraint}, where);
    }
    if (!s.status().ok()) return Output();
    const auto grouped = [&](const Variable& v) {
      std::vector<int64_t> dims(rank + 1, 1);
      dims[rank - 1] = groups;
      dims[rank] = channels / groups;
      return v.handle.valid() ? ReshapeTo(s, v.read, dims) : Output();
    };
    std::vector<int64_t> dims = DimsOf(x);
    const std::vector<int64_t> whole = dims;
    dims.back() = groups;
    dims.push_back(channels / groups);
    const Expr parts(s, ReshapeLike(s, x, x, dims));
    std::vector<int32_t> axes;
    for (int i = 1; i <= rank; ++i) {
      if (i != rank - 1) axes.push_back(i);
    }
    const Moments moments = MomentsOf(parts, axes, /*keep_dims=*/true);
    const Expr y = Normalized(parts, moments.mean, moments.variance,
                              {grouped(gamma), grouped(beta)}, o_.epsilon);
    return ReshapeLike(s, y, x, whole);
  }

 private:
  GroupNormalizationOptions o_;
};

class UnitNormalizationLayer : public FunctionLayer {
 public:
  using FunctionLayer::FunctionLayer;

 protected:
  bool computes_in(DataType) const override { return false; }
};

}  // namespace

LayerPtr BatchNormalization(const BatchNormalizationOptions& options, Where where) {
  return std::make_unique<BatchNormalizationLayer>(options, where);
}
LayerPtr LayerNormalization(const LayerNormalizationOptions& options, Where where) {
  return std::make_unique<LayerNormalizationLayer>(options, where);
}
LayerPtr GroupNormalization(const GroupNormalizationOptions& options, Where where) {
  return std::make_unique<GroupNormalizationLayer>(options, where);
}

LayerPtr UnitNormalization(std::vector<int> axes, std::string name, Where where) {
  return std::make_unique<UnitNormalizationLayer>(
      "UnitNormalization", std::move(name), UnaryLayer::Ranks{.least = 1},
      [axes](Pass&, const Expr& x) {
        const std::vector<int32_t> over(axes.begin(), axes.end());
        return x / x.Square().Sum(over, true).Max(1e-12f).Sqrt();
      },
      where);
}

}  // namespace millrace::layers
