// SPDX-License-Identifier: Apache-2.0
#include "base/strings.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

class DenseLayer : public UnaryLayer {
 public:
  DenseLayer(int64_t units, const DenseOptions& options, Where where)
      : UnaryLayer(options.name, {.least = 2}, where), units_(units), o_(options) {
    o_.kernel_initializer = Or(o_.kernel_initializer, initializers::GlorotUniform());
    o_.bias_initializer = Or(o_.bias_initializer, initializers::Zeros());
    set_activity_regularizer(o_.activity_regularizer);
  }
  std::string kind() const override { return "Dense"; }

 protected:
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    if (units_ <= 0) return BadOption(pass, StrCat("units must be positive, not ", units_), where);
    if (!NeedsDim(pass, input, -1, where) || !NeedsNumbers(pass, input, where)) return Output();
    const Scope& s = pass.scope();
    const Output x = CastTo(s, input, pass.compute_type());
    const int64_t features = DimOf(x, -1);
    const Variable kernel =
        Weight(pass, "kernel", Shape({features, units_}),
               {o_.kernel_initializer, o_.kernel_regularizer, o_.kernel_constraint}, where);
    if (!kernel.handle.valid()) return Output();
    const int rank = x.shape().rank();
    const Output rows = rank == 2 ? x : ReshapeTo(s, x, std::vector<int64_t>{-1, features});
    Output y = ops::MatMul(s, rows, kernel.read);
    if (o_.use_bias) {
      const Variable bias =
          Weight(pass, "bias", Shape({units_}),
                 {o_.bias_initializer, o_.bias_regularizer, o_.bias_constraint}, where);
      if (!bias.handle.valid()) return Output();
      y = ops::BiasAdd(s, y, bias.read);
    }
    if (rank > 2) {
      std::vector<int64_t> dims = DimsOf(x);
      dims.back() = units_;
      y = ReshapeLike(s, y, x, dims);
    }
    return o_.activation(Expr(s, y), where);
  }

 private:
  const int64_t units_;
  DenseOptions o_;
};

class EmbeddingLayer : public UnaryLayer {
 public:
  EmbeddingLayer(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options,
                 Where where)
      : UnaryLayer(options.name, {}, where),
        input_dim_(input_dim),
        output_dim_(output_dim),
        o_(options) {
    o_.embeddings_initializer = Or(o_.embeddings_initializer, initializers::RandomUniform());
    set_autocast(false);
    set_activity_regularizer(o_.activity_regularizer);
  }
  std::string kind() const override { return "Embedding"; }

 protected:
  Output CallOne(Pass& pass, const Output& x, Where where) override {
    if (input_dim_ <= 0 || output_dim_ <= 0) {
      return BadOption(pass,
                       StrCat("input_dim and output_dim must be positive, not ", input_dim_,
                              " and ", output_dim_),
                       where);
    }
    if (!NeedsNumbers(pass, x, where)) return Output();
    const Scope& s = pass.scope();
    const ShardedVariable table = Table(pass, "embeddings", Shape({input_dim_, output_dim_}),
                                        {.initializer = o_.embeddings_initializer,
                                         .regularizer = o_.embeddings_regularizer,
                                         .constraint = o_.embeddings_constraint,
                                         .autocast = false},
                                        where);
    if (table.parts.empty()) return Output();
    Output ids = x;
    if (x.dtype() != kInt32 && x.dtype() != kInt64) {
      // As Keras does, but for what 32 bits would make the number of another row.
      const bool is_long = x.dtype() == kUint32 || x.dtype() == kUint64 || x.dtype() == kDouble;
      ids = ops::Cast(s, x, is_long ? kInt64 : kInt32);
    }
    pass.set_mask(o_.mask_zero ? ops::NotEqual(s, ids, 0) : Output());
    if (o_.by_hash) ids = HashedRows(s, ids, input_dim_);
    // The rows, not the table, are cast: the gradient stays one of rows.
    const Variable& first = table.parts[0].variable;
    if (first.is_resource()) return CastTo(s, LookupSharded(s, table, ids), pass.compute_type());
    const Scope beside = s.ColocateWith(first.handle);
    return CastTo(beside, ops::GatherV2(beside, first.read, ids, 0), pass.compute_type());
  }

 private:
  const int64_t input_dim_, output_dim_;
  EmbeddingOptions o_;
};

}  // namespace

LayerPtr Dense(int64_t units, const DenseOptions& options, Where where) {
  return std::make_unique<DenseLayer>(units, options, where);
}

LayerPtr Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options,
                   Where where) {
  return std::make_unique<EmbeddingLayer>(input_dim, output_dim, options, where);
}

}  // namespace millrace::layers
