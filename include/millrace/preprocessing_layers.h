// SPDX-License-Identifier: Apache-2.0
// Layers that make numbers of raw data. As millrace/layers.h says. None is trained; what they know
// of the data is given to them, and the functions here find it out.
#ifndef MILLRACE_PREPROCESSING_LAYERS_H_
#define MILLRACE_PREPROCESSING_LAYERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core_layers.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {
namespace layers {

LayerPtr Rescaling(double scale, double offset = 0, std::string name = "",
                   Where where = Where::current());

// Mean and variance of each feature, the last axis.
struct FeatureStatistics {
  std::vector<float> mean, variance;
};
// Over all axes but the last of a float tensor; InvalidArgument for another type or a scalar.
StatusOr<FeatureStatistics> StatisticsOf(const Tensor& data);
// Less the mean, divided by the deviation. One number of each stands for all features. These are
// constants of the graph, not weights.
LayerPtr Normalization(const FeatureStatistics& statistics, bool invert = false,
                       std::string name = "", Where where = Where::current());

// What numbers are made into.
enum class EncodingMode {
  kInt,       // int64, as they are
  kOneHot,    // floats with a last axis more, as long as the vocabulary
  kMultiHot,  // of the last axis together: 1 for each that is there
  kCount,     // how often each is there
};
struct LookupOptions {
  int64_t num_oov_indices = 1;  // numbers for what is not in the vocabulary, shared out by a hash
  std::optional<std::string> mask_token{};  // is number 0
  EncodingMode output_mode = EncodingMode::kInt;
  std::string name{};
};
// The place of each string in the vocabulary, after those for the mask and for what is not in it.
// Without num_oov_indices, -1 stands for the latter.
LayerPtr StringLookup(std::vector<std::string> vocabulary, const LookupOptions& options = {},
                      Where where = Where::current());
struct IntegerLookupOptions {
  int64_t num_oov_indices = 1;
  std::optional<int64_t> mask_token{};
  EncodingMode output_mode = EncodingMode::kInt;
  std::string name{};
};
LayerPtr IntegerLookup(std::vector<int64_t> vocabulary, const IntegerLookupOptions& options = {},
                       Where where = Where::current());

struct TextVectorizationOptions {
  bool lower = true, strip_punctuation = true;
  EncodingMode output_mode = EncodingMode::kInt;  // kOneHot is not one of them
  int64_t output_sequence_length = 0;             // 0: as long as the longest text of a batch
  std::string name{};
};
// Texts [batch] or [batch, 1], cut at white space, to numbers of words: 0 fills up short ones, 1 is
// what is not in the vocabulary, whose words count from 2. As counts: 0 is what is not in it.
LayerPtr TextVectorization(std::vector<std::string> vocabulary,
                           const TextVectorizationOptions& options = {},
                           Where where = Where::current());
// The words of texts, the most frequent first (and of equals the last of the alphabet, as in
// Keras); at most so many unless it is 0. InvalidArgument unless these are strings.
StatusOr<std::vector<std::string>> VocabularyOf(const Tensor& texts, int64_t max_words = 0,
                                                const TextVectorizationOptions& options = {});

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_PREPROCESSING_LAYERS_H_
