// SPDX-License-Identifier: Apache-2.0
// Loss functions, as Keras 3 defines them: values per sample, weights, masks, reductions.
#ifndef MILLRACE_LOSSES_H_
#define MILLRACE_LOSSES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph.h"

namespace millrace {
namespace losses {

enum class Reduction {
  kSumOverBatchSize,      // the sum of the weighted values, divided by how many there are
  kMean,                  // the same
  kMeanWithSampleWeight,  // divided by the sum of the weights
  kSum,
  kNone,
};

// One value per sample (or step of one), and what of them counts: a bool tensor, or not valid if
// all do.
struct LossValues {
  Output values;
  Output mask{};
};
using LossFunction =
    std::function<LossValues(const Scope& scope, const Output& y_true, const Output& y_pred)>;

struct LossWeights {
  // A scalar, or one number for each value: of a loss of rank 2 one for each step.
  Output sample_weight{};
  // Which of the values count (bools). Means are then over those alone.
  Output mask{};
};

// A loss function and how its values become one. Copies are cheap; building with it adds nodes.
class Loss {
 public:
  Loss(std::string name, LossFunction function, Reduction reduction = Reduction::kSumOverBatchSize)
      : name_(std::move(name)), function_(std::move(function)), reduction_(reduction) {}

  const std::string& name() const { return name_; }
  Reduction reduction() const { return reduction_; }
  Loss With(Reduction reduction) const { return Loss(name_, function_, reduction); }

  // The loss of predictions against what is true. The ranks of both must be known; a last axis
  // of size one that only one of them has is taken away or added.
  Output operator()(const Scope& scope, const Output& y_true, const Output& y_pred,
                    const LossWeights& weights = {},
                    std::source_location where = std::source_location::current()) const;
  // Before weights and reduction.
  LossValues Values(const Scope& scope, const Output& y_true, const Output& y_pred,
                    std::source_location where = std::source_location::current()) const;

 private:
  std::string name_;
  LossFunction function_;
  Reduction reduction_;
};

// Of differences, over the last axis.
Loss MeanSquaredError();
Loss MeanAbsoluteError();
Loss MeanAbsolutePercentageError();
Loss MeanSquaredLogarithmicError();
Loss LogCosh();
struct HuberOptions {
  double delta = 1;
};
Loss Huber(const HuberOptions& options = {});
struct CosineSimilarityOptions {
  int32_t axis = -1;
};
Loss CosineSimilarity(const CosineSimilarityOptions& options = {});  // minus the cosine

// Of distributions and counts.
Loss KLDivergence();
Loss Poisson();
// Labels are -1 and 1, or 0 and 1.
Loss Hinge();
Loss SquaredHinge();
Loss CategoricalHinge();

struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  int32_t axis = -1;
};
Loss BinaryCrossentropy(const CrossentropyOptions& options = {});
Loss CategoricalCrossentropy(const CrossentropyOptions& options = {});
struct SparseCrossentropyOptions {
  bool from_logits = false;
  std::optional<int64_t> ignore_class{};  // labels that do not count
};
Loss SparseCategoricalCrossentropy(const SparseCrossentropyOptions& options = {});
struct FocalCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  int32_t axis = -1;
  double alpha = 0.25, gamma = 2;
  bool apply_class_balancing = false;  // binary only
};
Loss BinaryFocalCrossentropy(const FocalCrossentropyOptions& options = {});
Loss CategoricalFocalCrossentropy(const FocalCrossentropyOptions& options = {});
Loss CategoricalGeneralizedCrossEntropy(double q = 0.5);

// Overlaps of maps, over all axes or the given ones.
struct OverlapOptions {
  std::vector<int32_t> axes{};
  double alpha = 0.5, beta = 0.5;  // of Tversky: weights of false positives and negatives
};
Loss Dice(const OverlapOptions& options = {});
Loss Tversky(const OverlapOptions& options = {});

// Of embeddings of samples against each other's labels.
struct CircleOptions {
  double gamma = 80, margin = 0.4;
  bool remove_diagonal = true;
};
Loss Circle(const CircleOptions& options = {});
// Labels [batch, length], filled up with 0, against logits [batch, time, classes]; class 0 is
// the blank. Time and length must be known.
Loss Ctc();

}  // namespace losses
}  // namespace millrace

#endif  // MILLRACE_LOSSES_H_
