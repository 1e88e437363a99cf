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

// How the values of a batch become one.
enum class Reduction {
  kSumOverBatchSize,      // the sum of the weighted values, divided by how many there are
  kMean,                  // the same
  kMeanWithSampleWeight,  // divided by the sum of the weights
  kSum,                   // the sum of the weighted values
  kNone,                  // the weighted values themselves
};

// One value per sample (or step of one), and what of them counts: a bool tensor, or not valid if
// all do.
struct LossValues {
  Output values;  // y_pred's shape but for the axes that the function sums over
  Output mask{};  // bools of the shape of values
};
// Adds the nodes that compute values of predictions and what is true, both of known rank.
using LossFunction =
    std::function<LossValues(const Scope& scope, const Output& y_true, const Output& y_pred)>;

// What of a batch counts how much.
struct LossWeights {
  // A scalar, or one number for each value: of a loss of rank 2 one for each step.
  Output sample_weight{};
  // Which of the values count (bools). Means are then over those alone.
  Output mask{};
};

// A loss function and how its values become one. Copies are cheap; building with it adds nodes.
class Loss {
 public:
  // A loss of one's own; the name is that of its nodes' scope and in logs.
  Loss(std::string name, LossFunction function, Reduction reduction = Reduction::kSumOverBatchSize)
      : name_(std::move(name)), function_(std::move(function)), reduction_(reduction) {}

  // As in Keras: "mean_squared_error".
  const std::string& name() const { return name_; }
  // What operator() does with the values.
  Reduction reduction() const { return reduction_; }
  // The same loss with another reduction.
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

// Of differences, the mean over the last axis: of (y_pred - y_true)^2.
Loss MeanSquaredError();
// Mean of |y_pred - y_true|.
Loss MeanAbsoluteError();
// Mean of 100 |y_true - y_pred| / max(|y_true|, 1e-7).
Loss MeanAbsolutePercentageError();
// Mean of (log(1 + y_pred) - log(1 + y_true))^2, both at least 1e-7.
Loss MeanSquaredLogarithmicError();
// Mean of log(cosh(y_pred - y_true)).
Loss LogCosh();
// Of Huber: where squares end.
struct HuberOptions {
  double delta = 1;  // the difference from which on the loss grows in a line
};
// Mean of d^2 / 2 for |d| <= delta, else of delta |d| - delta^2 / 2; d = y_pred - y_true.
Loss Huber(const HuberOptions& options = {});
// Of CosineSimilarity.
struct CosineSimilarityOptions {
  int32_t axis = -1;  // the axis of the vectors; from the end if negative
};
Loss CosineSimilarity(const CosineSimilarityOptions& options = {});  // minus the cosine

// Of distributions: sum(y_true log(y_true / y_pred)) over the last axis, both in [1e-7, 1].
Loss KLDivergence();
// Of counts: mean of y_pred - y_true log(y_pred + 1e-7) over the last axis.
Loss Poisson();
// Labels are -1 and 1, or 0 and 1: mean of max(1 - y_true y_pred, 0) over the last axis.
Loss Hinge();
// Mean of max(1 - y_true y_pred, 0)^2 over the last axis, with such labels.
Loss SquaredHinge();
// max(max((1 - y_true) y_pred) - sum(y_true y_pred) + 1, 0) over the last axis; labels 0 and 1.
Loss CategoricalHinge();

// Of cross entropies against labels of y_pred's shape.
struct CrossentropyOptions {
  bool from_logits = false;    // false: y_pred are probabilities, and cut to [1e-7, 1 - 1e-7]
  double label_smoothing = 0;  // s: labels y become y (1 - s) + s / classes (binary: 2 classes)
  int32_t axis = -1;           // that of classes; binary: over which the mean is taken
};
// Mean of -y log(p) - (1 - y) log(1 - p) over the axis.
Loss BinaryCrossentropy(const CrossentropyOptions& options = {});
// -sum(y log(p)) over the axis; probabilities are divided by their sum first.
Loss CategoricalCrossentropy(const CrossentropyOptions& options = {});
// Of cross entropies against class numbers.
struct SparseCrossentropyOptions {
  bool from_logits = false;               // false: y_pred are probabilities
  std::optional<int64_t> ignore_class{};  // labels that do not count
};
// -log(p[y_true]); classes are the last axis, which y_true lacks or has with size 1.
Loss SparseCategoricalCrossentropy(const SparseCrossentropyOptions& options = {});
// Of focal losses (Lin et al., ICCV 2017): cross entropies in which hard samples count more.
struct FocalCrossentropyOptions {
  bool from_logits = false;            // false: y_pred are probabilities
  double label_smoothing = 0;          // as in CrossentropyOptions
  int32_t axis = -1;                   // as in CrossentropyOptions
  double alpha = 0.25,                 // weight of class 1 (of 0: 1 - alpha); categorical: of all
      gamma = 2;                       // power of 1 - p, p being the probability of what is true
  bool apply_class_balancing = false;  // binary only: whether alpha counts
};
// Mean of (1 - p)^gamma times the binary cross entropy over the axis.
Loss BinaryFocalCrossentropy(const FocalCrossentropyOptions& options = {});
// -sum(alpha (1 - p)^gamma y log(p)) over the axis.
Loss CategoricalFocalCrossentropy(const FocalCrossentropyOptions& options = {});
// (1 - p[y_true]^q) / q with class numbers (Zhang and Sabuncu, NeurIPS 2018); q from 0 to 1, not 0.
Loss CategoricalGeneralizedCrossEntropy(double q = 0.5);

// Overlaps of maps, over all axes or the given ones.
struct OverlapOptions {
  std::vector<int32_t> axes{};  // those that are summed over; empty: all
  double alpha = 0.5,           // of Tversky: weight of (1 - y_pred) y_true
      beta = 0.5;               // of Tversky: weight of y_pred (1 - y_true)
};
// 1 - 2 sum(y p) / (sum(y) + sum(p) + 1e-7).
Loss Dice(const OverlapOptions& options = {});
// 1 - sum(y p) / (sum(y p) + alpha sum((1 - p) y) + beta sum(p (1 - y)) + 1e-7).
Loss Tversky(const OverlapOptions& options = {});

// Of embeddings of samples against each other's labels.
struct CircleOptions {
  double gamma = 80,            // scale of similarities before the exponential
      margin = 0.4;             // how far pairs should be from the ideal at most
  bool remove_diagonal = true;  // a sample is no pair with itself
};
// Sun et al., CVPR 2020: labels [batch], embeddings [batch, size] of length 1.
Loss Circle(const CircleOptions& options = {});
// Labels [batch, length], filled up with 0, against logits [batch, time, classes]; class 0 is
// the blank. Time and length must be known.
Loss Ctc();

}  // namespace losses
}  // namespace millrace

#endif  // MILLRACE_LOSSES_H_
