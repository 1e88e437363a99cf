// SPDX-License-Identifier: Apache-2.0
#include "millrace/preprocessing_layers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "millrace/monitored_session.h"
#include "model/layers/layer_util.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

constexpr char kPunctuation[] = R"([!"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\'])";

// Numbers in the form that is asked for.
Output Encode(const Scope& s, const Output& numbers, EncodingMode mode, int64_t size) {
  if (mode == EncodingMode::kInt) return numbers;
  const Output each = ops::OneHot(s, numbers, static_cast<int32_t>(size), Tensor::Scalar<float>(1),
                                  Tensor::Scalar<float>(0));
  const int rank = numbers.shape().rank();
  if (mode == EncodingMode::kOneHot) {
    // A last axis of one gives way to that of the vocabulary.
    return rank > 1 && DimOf(numbers, -1) == 1 ? ops::Squeeze(s, each, {.squeeze_dims = {-2}})
                                               : each;
  }
  if (rank < 1) return each;
  const Expr seen(s, each);
  return mode == EncodingMode::kCount ? seen.Sum({-2}) : seen.ReduceMax({-2});
}

// A table from what is looked up to numbers. Each step asks for it to be filled: the first fills
// it, unless the session has begun with that.
Output LookUp(const Scope& s, const Tensor& keys, int64_t first, const Output& x,
              const Output& otherwise) {
  const Output table = ops::HashTableV2(s, keys.dtype(), kInt64, {.use_node_name_sharing = true});
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < keys.num_elements(); ++i) numbers.push_back(first + i);
  const Operation fill = ops::InitializeTableV2(
      s, table, keys, Tensor::FromValues<int64_t>(std::span<const int64_t>(numbers), keys.shape()));
  // What the filling waits for belongs to a step, if it waits for something: then no session can
  // begin with it.
  if (fill.valid() && fill.node()->in_edges().size() == static_cast<std::size_t>(fill.num_inputs()))
    s.graph()->collections[kTableInitializers].emplace_back(fill, 0);
  const Scope filled = s.WithControlDependencies({fill});
  // The op's own shape is not known.
  const Expr found(
      s, ops::EnsureShape(s, ops::LookupTableFindV2(filled, table, x, Tensor::Scalar<int64_t>(-1)),
                          x.shape()));
  return (found >= int64_t{0}).Select(found, otherwise);
}

class LookupLayer : public UnaryLayer {
 public:
  LookupLayer(const char* kind, std::string name, Tensor keys, std::optional<Tensor> mask,
              int64_t num_oov, EncodingMode mode, Where where)
      : UnaryLayer(std::move(name), {}, where),
        kind_(kind),
        keys_(std::move(keys)),
        mask_(std::move(mask)),
        num_oov_(num_oov),
        mode_(mode) {}
  std::string kind() const override { return kind_; }

 protected:
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    if (num_oov_ < 0)
      return BadOption(pass, StrCat("num_oov_indices must not be negative, and is ", num_oov_),
                       where);
    const Scope& s = pass.scope();
    const bool strings = keys_.dtype() == kString;
    if ((input.dtype() == kString) != strings) {
      RecordBadInput(pass, input, strings ? "strings" : "integers", where);
      return Output();
    }
    const Output x = strings || input.dtype() == kInt64 ? input : ops::Cast(s, input, kInt64);
    const int64_t masks = mask_ ? 1 : 0;
    Output numbers = LookUp(s, keys_, masks + num_oov_, x, Unknown(s, x, masks));
    if (mask_) {
      const Output zero = ops::ZerosLike(s, numbers);
      numbers = ops::SelectV2(s, ops::Equal(s, x, *mask_), zero, numbers);
    }
    return Encode(s, numbers, mode_, masks + num_oov_ + keys_.num_elements());
  }

 private:
  Output Unknown(const Scope& s, const Output& x, int64_t first) const {
    if (num_oov_ <= 1) return Constant(s, Tensor::Scalar<int64_t>(num_oov_ == 0 ? -1 : first));
    const Output bucket = keys_.dtype() == kString ? ops::StringToHashBucketFast(s, x, num_oov_)
                                                   : ops::FloorMod(s, x, num_oov_);
    return ops::Add(s, bucket, first);
  }

  const char* const kind_;
  const Tensor keys_;
  const std::optional<Tensor> mask_;
  const int64_t num_oov_;
  const EncodingMode mode_;
};

class TextLayer : public UnaryLayer {
 public:
  TextLayer(std::vector<std::string> vocabulary, const TextVectorizationOptions& o, Where where)
      : UnaryLayer(o.name, {.least = 1, .most = 2}, where),
        vocabulary_(std::move(vocabulary)),
        o_(o) {}
  std::string kind() const override { return "TextVectorization"; }

 protected:
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    if (o_.output_mode == EncodingMode::kOneHot || o_.output_sequence_length < 0) {
      return BadOption(pass,
                       "texts become numbers, counts or what is there (kMultiHot), of a "
                       "length that is not negative",
                       where);
    }
    if (input.dtype() != kString || (input.shape().rank() == 2 && DimOf(input, 1) != 1)) {
      RecordBadInput(pass, input, "texts [batch] or [batch, 1]", where);
      return Output();
    }
    const Scope& s = pass.scope();
    Output x = input.shape().rank() == 2 ? ops::Squeeze(s, input, {.squeeze_dims = {1}}) : input;
    if (o_.lower) x = ops::StringLower(s, x);
    if (o_.strip_punctuation) x = ops::StaticRegexReplace(s, x, kPunctuation, "");
    const auto words = ops::StringSplitV2(s, x, "");
    const Tensor keys =
        Tensor::FromValues<std::string>(std::span<const std::string>(vocabulary_),
                                        Shape({static_cast<int64_t>(vocabulary_.size())}));
    // Without the number that fills up, everything else comes one earlier.
    const bool ints = o_.output_mode == EncodingMode::kInt;
    const int64_t unknown = ints ? 1 : 0;
    const Output numbers =
        LookUp(s, keys, unknown + 1, words.values, Constant(s, Tensor::Scalar<int64_t>(unknown)));
    return ints ? Filled(s, words.indices, numbers, words.shape)
                : Counted(s, words.indices, numbers, RunDim(s, x, 0));
  }

 private:
  // One row for each text.
  Output Filled(const Scope& s, const Output& places, const Output& numbers,
                const Output& shape) const {
    const int64_t length = o_.output_sequence_length;
    if (length == 0) return ops::ScatterNd(s, places, numbers, shape);
    const Tensor least = Tensor::FromValues<int64_t>({0, length});
    const Output room = ops::ScatterNd(s, places, numbers, ops::Maximum(s, shape, least));
    const Output cut = ops::Slice(s, room, Tensor::FromValues<int64_t>({0, 0}),
                                  Tensor::FromValues<int64_t>({-1, length}));
    return ops::EnsureShape(s, cut, PartialShape({-1, length}));
  }

  Output Counted(const Scope& s, const Output& places, const Output& numbers,
                 const Output& texts) const {
    const auto size = static_cast<int32_t>(vocabulary_.size() + 1);
    const Output each =
        ops::OneHot(s, numbers, size, Tensor::Scalar<float>(1), Tensor::Scalar<float>(0));
    const Output rows = ops::Squeeze(s,
                                     ops::Slice(s, places, Tensor::FromValues<int64_t>({0, 0}),
                                                Tensor::FromValues<int64_t>({-1, 1})),
                                     {.squeeze_dims = {1}});
    const Expr counts(s, ops::UnsortedSegmentSum(s, each, rows, texts));
    return o_.output_mode == EncodingMode::kCount ? counts : counts.Min(1.0f);
  }

  const std::vector<std::string> vocabulary_;
  const TextVectorizationOptions o_;
};

class NormalizationLayer : public UnaryLayer {
 public:
  NormalizationLayer(const FeatureStatistics& statistics, bool invert, std::string name,
                     Where where)
      : UnaryLayer(std::move(name), {}, where), of_(statistics), invert_(invert) {}
  std::string kind() const override { return "Normalization"; }

 protected:
  Output CallOne(Pass& pass, const Output& input, Where where) override {
    const std::size_t features = of_.mean.size();
    if (features == 0 || of_.variance.size() != features) {
      return BadOption(pass,
                       StrCat("there must be as many variances as means, not ", of_.variance.size(),
                              " and ", features),
                       where);
    }
    OptionChecks options = Options();
    for (const float mean : of_.mean) options.Finite("a mean", mean);
    for (const float variance : of_.variance) options.AtLeast("a variance", variance, 0);
    if (!Hold(pass, options, where)) return Output();
    const int64_t size = input.shape().rank() == 0 ? 1 : DimOf(input, -1);
    if (features > 1 && size >= 0 && size != static_cast<int64_t>(features)) {
      RecordBadInput(pass, input, StrCat("inputs of ", features, " features"), where);
      return Output();
    }
    const Scope& s = pass.scope();
    const Expr x(s, CastTo(s, input, pass.compute_type()));
    std::vector<float> deviations;
    for (const float v : of_.variance) deviations.push_back(std::max(std::sqrt(v), 1e-7f));
    const auto row = [&](const std::vector<float>& values) {
      return features == 1 ? Tensor::Scalar<float>(values[0])
                           : Tensor::FromValues<float>(std::span<const float>(values),
                                                       Shape({static_cast<int64_t>(features)}));
    };
    return invert_ ? x * row(deviations) + row(of_.mean) : (x - row(of_.mean)) / row(deviations);
  }

 private:
  const FeatureStatistics of_;
  const bool invert_;
};

}  // namespace

LayerPtr Rescaling(double scale, double offset, std::string name, Where where) {
  return std::make_unique<FunctionLayer>(
      "Rescaling", std::move(name), UnaryLayer::Ranks{},
      [scale, offset](Pass& pass, const Expr& x) {
        return x.Cast(pass.compute_type()) * static_cast<float>(scale) + static_cast<float>(offset);
      },
      where,
      [scale, offset](OptionChecks& options) {
        options.Finite("scale", scale).Finite("offset", offset);
      });
}

LayerPtr Normalization(const FeatureStatistics& statistics, bool invert, std::string name,
                       Where where) {
  return std::make_unique<NormalizationLayer>(statistics, invert, std::move(name), where);
}

StatusOr<FeatureStatistics> StatisticsOf(const Tensor& data) {
  if (data.dtype() != kFloat || data.rank() == 0 || data.num_elements() == 0) {
    return errors::InvalidArgument(
        "statistics are those of floats with an axis of features, not "
        "of ",
        DataTypeName(data.dtype()), data.shape().DebugString());
  }
  const int64_t features = data.dim(data.rank() - 1), rows = data.num_elements() / features;
  std::vector<double> sums(features), squares(features);
  const float* const values = data.data<float>();
  for (int64_t i = 0; i < data.num_elements(); ++i) sums[i % features] += values[i];
  for (int64_t i = 0; i < data.num_elements(); ++i) {
    const double off = values[i] - sums[i % features] / static_cast<double>(rows);
    squares[i % features] += off * off;
  }
  FeatureStatistics found;
  for (int64_t i = 0; i < features; ++i) {
    found.mean.push_back(static_cast<float>(sums[i] / static_cast<double>(rows)));
    found.variance.push_back(static_cast<float>(squares[i] / static_cast<double>(rows)));
  }
  return found;
}

LayerPtr StringLookup(std::vector<std::string> vocabulary, const LookupOptions& o, Where where) {
  std::optional<Tensor> mask;
  if (o.mask_token) mask = Tensor::String(*o.mask_token);
  const Shape shape({static_cast<int64_t>(vocabulary.size())});
  return std::make_unique<LookupLayer>(
      "StringLookup", o.name,
      Tensor::FromValues<std::string>(std::span<const std::string>(vocabulary), shape),
      std::move(mask), o.num_oov_indices, o.output_mode, where);
}

LayerPtr IntegerLookup(std::vector<int64_t> vocabulary, const IntegerLookupOptions& o,
                       Where where) {
  std::optional<Tensor> mask;
  if (o.mask_token) mask = Tensor::Scalar<int64_t>(*o.mask_token);
  const Shape shape({static_cast<int64_t>(vocabulary.size())});
  return std::make_unique<LookupLayer>(
      "IntegerLookup", o.name,
      Tensor::FromValues<int64_t>(std::span<const int64_t>(vocabulary), shape), std::move(mask),
      o.num_oov_indices, o.output_mode, where);
}

LayerPtr TextVectorization(std::vector<std::string> vocabulary,
                           const TextVectorizationOptions& options, Where where) {
  return std::make_unique<TextLayer>(std::move(vocabulary), options, where);
}

StatusOr<std::vector<std::string>> VocabularyOf(const Tensor& texts, int64_t max_words,
                                                const TextVectorizationOptions& options) {
  if (texts.dtype() != kString) {
    return errors::InvalidArgument("a vocabulary is that of strings, not of ",
                                   DataTypeName(texts.dtype()));
  }
  std::map<std::string, int64_t> counts;
  for (int64_t i = 0; i < texts.num_elements(); ++i) {
    std::string word;
    for (const char c : texts.data<std::string>()[i] + " ") {
      const auto u = static_cast<unsigned char>(c);
      if (std::isspace(u) != 0) {
        if (!word.empty()) ++counts[word];
        word.clear();
      } else if (!options.strip_punctuation || std::ispunct(u) == 0) {
        word += options.lower ? static_cast<char>(std::tolower(u)) : c;
      }
    }
  }
  std::vector<std::pair<int64_t, std::string>> words;
  for (const auto& [word, count] : counts) words.emplace_back(count, word);
  std::sort(words.rbegin(), words.rend());
  if (max_words > 0 && static_cast<int64_t>(words.size()) > max_words) words.resize(max_words);
  std::vector<std::string> vocabulary;
  for (auto& [count, word] : words) vocabulary.push_back(std::move(word));
  return vocabulary;
}

}  // namespace millrace::layers
