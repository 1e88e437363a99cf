// SPDX-License-Identifier: Apache-2.0
// Layers that take another layer over a sequence, and positions in it.
#include <cmath>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/sequence_layers.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

class BidirectionalLayer : public UnaryLayer {
 public:
  BidirectionalLayer(RecurrentPtr layer, const BidirectionalOptions& o, Where where)
      : UnaryLayer(o.name, {.least = 3, .most = 3}, where),
        mode_(o.merge_mode),
        forward_(std::move(layer)) {
    if (forward_ == nullptr) return;
    backward_ = forward_->Reversed();
    const std::string name =
        forward_->name().empty() ? SnakeCase(forward_->kind()) : forward_->name();
    forward_->set_zero_output_for_mask(forward_->returns_sequences());
    backward_->set_zero_output_for_mask(forward_->returns_sequences());
    forward_->set_name("forward_" + name);
    backward_->set_name("backward_" + name);
  }
  std::string kind() const override { return "Bidirectional"; }
  std::vector<Layer*> layers() const override {
    if (forward_ == nullptr) return {};
    return {forward_.get(), backward_.get()};
  }

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    if (forward_ == nullptr) return BadOption(pass, "it was given no layer", where);
    const Scope& s = pass.scope();
    const Output a = (*forward_)(pass, x, where);
    Output b = (*backward_)(pass, x, where);
    if (!a.valid() || !b.valid()) return Output();
    if (forward_->returns_sequences()) b = ops::ReverseV2(s, b, Ints(std::vector<int64_t>{1}));
    switch (mode_) {
      case MergeMode::kSum:
        return ops::AddN(s, {a, b});
      case MergeMode::kMultiply:
        return ops::Mul(s, a, b);
      case MergeMode::kAverage:
        return Expr(s, ops::AddN(s, {a, b})) / 2.0f;
      case MergeMode::kConcatenate:
        break;
    }
    return ops::ConcatV2(s, {a, b}, -1);
  }

 private:
  const MergeMode mode_;
  const RecurrentPtr forward_;
  RecurrentPtr backward_;
};

class TimeDistributedLayer : public UnaryLayer {
 public:
  TimeDistributedLayer(std::shared_ptr<Layer> layer, std::string name, Where where)
      : UnaryLayer(std::move(name), {.least = 2}, where), layer_(std::move(layer)) {
    Layer* const all[] = {layer_.get()};
    if (layer_ != nullptr) NameLayers(all);
  }
  std::string kind() const override { return "TimeDistributed"; }
  std::vector<Layer*> layers() const override {
    return layer_ == nullptr ? std::vector<Layer*>{} : std::vector<Layer*>{layer_.get()};
  }

 protected:
  // Steps of all samples as one batch.
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    if (layer_ == nullptr) return BadOption(pass, "it was given no layer", where);
    const Scope& s = pass.scope();
    const Output mask = pass.mask();
    std::vector<int64_t> sample = DimsOf(x, 2);
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (!NeedsDim(pass, x, static_cast<int>(i) + 2, where)) return Output();
    }
    sample.insert(sample.begin(), -1);
    const Output y = (*layer_)(pass, ReshapeTo(s, x, sample), where);
    pass.set_mask(mask);
    if (!y.valid()) return Output();
    std::vector<int64_t> dims = DimsOf(y);
    if (dims.empty() || std::count(dims.begin() + 1, dims.end(), -1) > 0) {
      RecordBadInput(pass, y, "a layer whose output has known sizes", where);
      return Output();
    }
    dims.erase(dims.begin());
    dims.insert(dims.begin(), {x.shape().dim(0), x.shape().dim(1)});
    return ReshapeLike(s, y, x, dims);
  }

 private:
  const std::shared_ptr<Layer> layer_;
};

class PositionEmbeddingLayer : public UnaryLayer {
 public:
  PositionEmbeddingLayer(int64_t length, const PositionEmbeddingOptions& o, Where where)
      : UnaryLayer(o.name, {.least = 3, .most = 3}, where),
        length_(length),
        initializer_(Or(o.initializer, initializers::GlorotUniform())) {}
  std::string kind() const override { return "PositionEmbedding"; }

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    if (!NeedsDim(pass, x, 2, where)) return Output();
    if (length_ <= 0 || DimOf(x, 1) > length_) {
      RecordBadInput(pass, x, StrCat("sequences of at most ", length_, " steps"), where);
      return Output();
    }
    const Variable table =
        Weight(pass, "embeddings", Shape({length_, DimOf(x, 2)}), {initializer_}, where);
    if (!table.handle.valid()) return Output();
    const Scope& s = pass.scope();
    const std::vector<Input> size = {RunDim(s, x, 1), static_cast<int32_t>(DimOf(x, 2))};
    const Output steps =
        ops::Slice(s, table.read, Ints(std::vector<int64_t>{0, 0}), ops::Pack(s, size));
    return ops::EnsureShape(s, ops::BroadcastTo(s, steps, ops::Shape(s, x)), x.shape());
  }

 private:
  const int64_t length_;
  const Initializer initializer_;
};

Expr SinePositions(Pass& pass, const Expr& x, double max_wavelength) {
  const Scope& s = pass.scope();
  const int64_t features = DimOf(x, 2);
  std::vector<float> scales, sines, cosines;
  for (int64_t i = 0; i < features; ++i) {
    const double exponent = 2.0 * static_cast<double>(i / 2) / static_cast<double>(features);
    scales.push_back(static_cast<float>(std::pow(1 / max_wavelength, exponent)));
    sines.push_back(i % 2 == 0 ? 1.0f : 0.0f);
    cosines.push_back(i % 2 == 0 ? 0.0f : 1.0f);
  }
  const auto row = [&](const std::vector<float>& values) {
    return Tensor::FromValues<float>(values, Shape({features}));
  };
  const Expr step(s, ops::Cast(s, ops::Range(s, 0, RunDim(s, x, 1), 1), kFloat));
  const Expr angles = step.ExpandDims(1) * row(scales);
  const Expr wave = Expr(s, ops::Sin(s, angles)) * row(sines) + angles.Cos() * row(cosines);
  const Output cast = CastTo(s, wave, pass.compute_type());
  return Expr(s, ops::EnsureShape(s, ops::BroadcastTo(s, cast, ops::Shape(s, x)), x.shape()));
}

class SinePositionLayer : public UnaryLayer {
 public:
  SinePositionLayer(double max_wavelength, std::string name, Where where)
      : UnaryLayer(std::move(name), {.least = 3, .most = 3}, where),
        max_wavelength_(max_wavelength) {}
  std::string kind() const override { return "SinePositionEncoding"; }

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    if (!NeedsDim(pass, x, 2, where)) return Output();
    return SinePositions(pass, Expr(pass.scope(), x), max_wavelength_);
  }

 private:
  const double max_wavelength_;
};

}  // namespace

LayerPtr Bidirectional(RecurrentPtr layer, const BidirectionalOptions& options, Where where) {
  return std::make_unique<BidirectionalLayer>(std::move(layer), options, where);
}
LayerPtr TimeDistributed(std::shared_ptr<Layer> layer, std::string name, Where where) {
  return std::make_unique<TimeDistributedLayer>(std::move(layer), std::move(name), where);
}
LayerPtr PositionEmbedding(int64_t sequence_length, const PositionEmbeddingOptions& options,
                           Where where) {
  return std::make_unique<PositionEmbeddingLayer>(sequence_length, options, where);
}
LayerPtr SinePositionEncoding(double max_wavelength, std::string name, Where where) {
  return std::make_unique<SinePositionLayer>(max_wavelength, std::move(name), where);
}

}  // namespace millrace::layers
