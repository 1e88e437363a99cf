// SPDX-License-Identifier: Apache-2.0
// Layers that add noise to what they are given while a model is trained.
#include <cmath>

#include "base/strings.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

// One with a seed of its own.
class NoiseLayer : public UnaryLayer {
 public:
  NoiseLayer(const char* kind, std::string name, Ranks ranks, double amount, double limit,
             Seed seed, Where where)
      : UnaryLayer(std::move(name), ranks, where),
        kind_(kind),
        amount_(amount),
        limit_(limit),
        seed_(seed) {}
  std::string kind() const override { return kind_; }

 protected:
  virtual Output AddNoise(Pass& pass, const Expr& x, Where where) = 0;

  Output CallOne(Pass& pass, const Output& x, Where where) override {
    if (!(amount_ >= 0 && amount_ <= limit_)) {
      return BadOption(
          pass, StrCat("a rate or deviation lies between 0 and ", limit_, ", and is not ", amount_),
          where);
    }
    if (!pass.training() || amount_ == 0) return ops::Identity(pass.scope(), x);
    return AddNoise(pass, Expr(pass.scope(), x), where);
  }

  float amount() const { return static_cast<float>(amount_); }
  Output Key(Pass& pass) { return NextSeed(pass, seed_); }
  // Zero with this layer's rate, and 1 / (1 - rate) else.
  Output Dropped(Pass& pass, const Expr& x, const Output& shape) {
    const Scope& s = x.scope();
    if (amount_ >= 1) return ops::ZerosLike(s, x);
    const Expr drawn(s, ops::StatelessRandomUniform(s, shape, Key(pass), {.dtype = kFloat}));
    const Expr kept = (drawn >= amount()).Cast(x.dtype());
    return x * static_cast<float>(1 / (1 - amount_)) * kept;
  }

 private:
  const char* const kind_;
  const double amount_, limit_;
  const Seed seed_;
};

class DropoutLayer : public NoiseLayer {
 public:
  DropoutLayer(double rate, const DropoutOptions& o, Where where)
      : NoiseLayer("Dropout", o.name, {}, rate, 1, o.seed, where), noise_shape_(o.noise_shape) {}

 protected:
  Output AddNoise(Pass& pass, const Expr& x, Where where) override {
    const Scope& s = x.scope();
    if (noise_shape_.empty()) return Dropped(pass, x, ops::Shape(s, x));
    if (static_cast<int>(noise_shape_.size()) != x.shape().rank()) {
      RecordBadInput(pass, x, StrCat("an input of rank ", noise_shape_.size(), ", as noise_shape"),
                     where);
      return Output();
    }
    return Dropped(pass, x, ShapeLike(s, x, noise_shape_));
  }

 private:
  const std::vector<int64_t> noise_shape_;
};

class SpatialDropoutLayer : public NoiseLayer {
 public:
  SpatialDropoutLayer(int axes, double rate, const NoiseOptions& o, Where where)
      : NoiseLayer(axes == 1 ? "SpatialDropout1D" : "SpatialDropout2D", o.name,
                   {.least = axes + 2, .most = axes + 2}, rate, 1, o.seed, where) {}

 protected:
  Output AddNoise(Pass& pass, const Expr& x, Where) override {
    std::vector<int64_t> dims(x.shape().rank(), 1);
    dims.front() = dims.back() = -1;
    return Dropped(pass, x, ShapeLike(x.scope(), x, dims));
  }
};

class GaussianLayer : public NoiseLayer {
 public:
  GaussianLayer(bool adds, double amount, const NoiseOptions& o, Where where)
      : NoiseLayer(adds ? "GaussianNoise" : "GaussianDropout", o.name, {}, amount,
                   adds ? 1e30 : 0.999999, o.seed, where),
        adds_(adds) {}

 protected:
  Output AddNoise(Pass& pass, const Expr& x, Where) override {
    const Scope& s = x.scope();
    // The numbers do not depend on how many digits are kept of them.
    const DataType drawn = IsSmallFloat(x.dtype()) ? kFloat : x.dtype();
    const Output standard = CastTo(
        s, ops::StatelessRandomNormal(s, ops::Shape(s, x), Key(pass), {.dtype = drawn}), x.dtype());
    if (adds_) return x + Expr(s, standard) * amount();
    return x * (Expr(s, standard) * std::sqrt(amount() / (1 - amount())) + 1.0f);
  }

 private:
  const bool adds_;
};

}  // namespace

LayerPtr Dropout(double rate, const DropoutOptions& options, Where where) {
  return std::make_unique<DropoutLayer>(rate, options, where);
}
LayerPtr SpatialDropout1D(double rate, const NoiseOptions& options, Where where) {
  return std::make_unique<SpatialDropoutLayer>(1, rate, options, where);
}
LayerPtr SpatialDropout2D(double rate, const NoiseOptions& options, Where where) {
  return std::make_unique<SpatialDropoutLayer>(2, rate, options, where);
}
LayerPtr GaussianNoise(double stddev, const NoiseOptions& options, Where where) {
  return std::make_unique<GaussianLayer>(true, stddev, options, where);
}
LayerPtr GaussianDropout(double rate, const NoiseOptions& options, Where where) {
  return std::make_unique<GaussianLayer>(false, rate, options, where);
}

}  // namespace millrace::layers
