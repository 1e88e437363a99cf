// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/sequence_layers.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

// [batch, steps, in...] to [batch, steps, out...]: a product over all axes after the steps.
class ProjectionLayer : public UnaryLayer {
 public:
  ProjectionLayer(std::string name, std::vector<int64_t> out,
                  const MultiHeadAttentionOptions& options, Where where)
      : UnaryLayer(std::move(name), {.least = 3}, where), out_(std::move(out)), o_(options) {
    o_.kernel_initializer = Or(o_.kernel_initializer, initializers::GlorotUniform());
    o_.bias_initializer = Or(o_.bias_initializer, initializers::Zeros());
    set_activity_regularizer(o_.activity_regularizer);
  }
  std::string kind() const override { return "EinsumDense"; }

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    const Scope& s = pass.scope();
    std::vector<int64_t> dims = DimsOf(x, 2);
    int64_t in = 1, out = 1;
    for (const int64_t dim : dims) in *= dim;
    for (const int64_t dim : out_) out *= dim;
    dims.insert(dims.end(), out_.begin(), out_.end());
    const Variable kernel =
        Weight(pass, "kernel", Shape(dims),
               {o_.kernel_initializer, o_.kernel_regularizer, o_.kernel_constraint}, where);
    if (!kernel.handle.valid()) return Output();
    const Output matrix = ReshapeTo(s, kernel.read, std::vector<int64_t>{in, out});
    Output y = ops::MatMul(s, ReshapeTo(s, x, std::vector<int64_t>{-1, in}), matrix);
    if (o_.use_bias) {
      const Variable bias =
          Weight(pass, "bias", Shape(out_),
                 {o_.bias_initializer, o_.bias_regularizer, o_.bias_constraint}, where);
      if (!bias.handle.valid()) return Output();
      y = ops::BiasAdd(s, y, ReshapeTo(s, bias.read, std::vector<int64_t>{out}));
    }
    std::vector<int64_t> shape = {x.shape().dim(0), x.shape().dim(1)};
    shape.insert(shape.end(), out_.begin(), out_.end());
    return ReshapeLike(s, y, x, shape);
  }

 private:
  const std::vector<int64_t> out_;
  MultiHeadAttentionOptions o_;
};

class AttentionLayer : public Layer {
 public:
  AttentionLayer(int64_t heads, int64_t key_dim, const MultiHeadAttentionOptions& options,
                 Where where)
      : Layer(options.name, where), heads_(heads), key_dim_(key_dim), o_(options), where_(where) {
    set_activity_regularizer(o_.activity_regularizer);
    const int64_t value_dim = o_.value_dim > 0 ? o_.value_dim : key_dim;
    // Of each projection's results Keras knows no loss.
    MultiHeadAttentionOptions inner = options;
    inner.activity_regularizer = nullptr;
    query_ = std::make_unique<ProjectionLayer>("query", std::vector{heads, key_dim}, inner, where);
    key_ = std::make_unique<ProjectionLayer>("key", std::vector{heads, key_dim}, inner, where);
    value_ =
        std::make_unique<ProjectionLayer>("value", std::vector{heads, value_dim}, inner, where);
  }
  std::string kind() const override { return "MultiHeadAttention"; }
  std::vector<Layer*> layers() const override {
    std::vector<Layer*> all = {query_.get(), key_.get(), value_.get()};
    if (output_ != nullptr) all.push_back(output_.get());
    return all;
  }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override {
    if (!Check(pass, inputs, where)) return Output();
    const Output &query = inputs[0], &value = inputs.size() > 1 ? inputs[1] : query;
    const Output& key = inputs.size() > 2 ? inputs[2] : value;
    if (output_ == nullptr) {
      MultiHeadAttentionOptions inner = o_;
      inner.activity_regularizer = nullptr;
      const int64_t features = o_.output_dim > 0 ? o_.output_dim : DimOf(query, 2);
      output_ = std::make_unique<ProjectionLayer>("attention_output", std::vector{features}, inner,
                                                  where_);
    }
    const Scope& s = pass.scope();
    const Output query_mask = pass.MaskOf(query);
    const Output mask = MaskFor(pass, query, value, key);
    const auto heads = [&](const std::unique_ptr<ProjectionLayer>& layer, const Output& x) {
      const Output y = (*layer)(pass, x, where);
      return y.valid() ? ops::Transpose(s, y, Ints(std::vector<int64_t>{0, 2, 1, 3})) : y;
    };
    const Output q = heads(query_, query), k = heads(key_, key), v = heads(value_, value);
    if (!q.valid() || !k.valid() || !v.valid()) return Output();
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim_)));
    const Output scores = ops::BatchMatMulV2(s, Expr(s, q) * scale, k, {.adj_y = true});
    // Shares are computed in float32, whatever the products are.
    const Output shares =
        CastTo(s, Dropped(pass, Shares(s, CastTo(s, scores, kFloat), mask)), pass.compute_type());
    const Output seen = ops::BatchMatMulV2(s, shares, v);
    const Output y =
        (*output_)(pass, ops::Transpose(s, seen, Ints(std::vector<int64_t>{0, 2, 1, 3})), where);
    pass.set_mask(query_mask);
    return y;
  }

 private:
  bool Check(Pass& pass, std::span<const Output> inputs, Where where) const {
    OptionChecks options(StrCat("layer ", Description()));
    options.AtLeast("value_dim", static_cast<double>(o_.value_dim), 0)
        .AtLeast("output_dim", static_cast<double>(o_.output_dim), 0);
    if (!options.status().ok()) {
      pass.scope().RecordError(options.status(), where);
      return false;
    }
    if (inputs.empty() || inputs.size() > 3 || heads_ <= 0 || key_dim_ <= 0 ||
        !(o_.dropout >= 0 && o_.dropout < 1)) {
      pass.scope().RecordError(
          errors::InvalidArgument("layer ", Description(),
                                  " takes a query, a value and a key, positive numbers of heads "
                                  "and key_dim and a dropout below 1, not ",
                                  inputs.size(), " inputs, ", heads_, ", ", key_dim_, ", ",
                                  o_.dropout),
          where);
      return false;
    }
    for (const Output& x : inputs) {
      if (x.shape().rank() == 3 && x.shape().dim(2) > 0) continue;
      RecordBadInput(pass, x, "sequences [batch, steps, features] of known features", where);
      return false;
    }
    return true;
  }

  // Which steps of the value each step of the query sees, [batch, 1, query, value]; not valid: all.
  Output MaskFor(Pass& pass, const Output& query, const Output& value, const Output& key) const {
    const Scope& s = pass.scope();
    Output mask;
    const auto add = [&](const Output& more) {
      mask = mask.valid() ? ops::LogicalAnd(s, mask, more) : more;
    };
    const Output of_query = pass.MaskOf(query), of_value = pass.MaskOf(value);
    if (of_query.valid()) add(ops::ExpandDims(s, of_query, 2));
    if (of_value.valid()) add(ops::ExpandDims(s, of_value, 1));
    if (!(key == value) && pass.MaskOf(key).valid()) {
      add(ops::ExpandDims(s, pass.MaskOf(key), 1));
    }
    if (o_.causal) {
      const Output rows = ops::Range(s, 0, RunDim(s, query, 1), 1);
      const Output columns = ops::Range(s, 0, RunDim(s, value, 1), 1);
      add(ops::ExpandDims(
          s, ops::GreaterEqual(s, ops::ExpandDims(s, rows, 1), ops::ExpandDims(s, columns, 0)), 0));
    }
    return mask.valid() ? ops::ExpandDims(s, mask, 1) : mask;
  }

  // A step that sees none sees all alike, but where there is dropout: as the two ways in which
  // Keras computes attention.
  Output Shares(const Scope& s, const Output& scores, const Output& mask) const {
    if (!mask.valid()) return ops::Softmax(s, scores);
    const Output shares = ops::Softmax(s, ops::SelectV2(s, mask, scores, -2.37e38f));
    return o_.dropout > 0 ? ops::SelectV2(s, mask, shares, 0.0f) : shares;
  }

  Output Dropped(Pass& pass, const Output& shares) {
    if (!pass.training() || o_.dropout <= 0) return shares;
    const Scope& s = pass.scope();
    const Expr drawn(s, ops::StatelessRandomUniform(s, ops::Shape(s, shares),
                                                    NextSeed(pass, o_.seed), {.dtype = kFloat}));
    const float rate = static_cast<float>(o_.dropout);
    return Expr(s, shares) * ((drawn >= rate).Cast(kFloat) * (1 / (1 - rate)));
  }

  const int64_t heads_, key_dim_;
  const MultiHeadAttentionOptions o_;
  const Where where_;
  std::unique_ptr<ProjectionLayer> query_, key_, value_, output_;
};

}  // namespace

LayerPtr MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                            const MultiHeadAttentionOptions& options, Where where) {
  return std::make_unique<AttentionLayer>(num_heads, key_dim, options, where);
}

}  // namespace millrace::layers
