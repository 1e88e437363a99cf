// SPDX-License-Identifier: Apache-2.0
// Metrics as Keras 3 defines them: sums that grow batch by batch, and what they say.
#ifndef MILLRACE_METRICS_H_
#define MILLRACE_METRICS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph.h"
#include "millrace/losses.h"
#include "millrace/math.h"
#include "millrace/variables.h"

namespace millrace {
namespace metrics {

// What one update adds to the sums.
struct Batch {
  Output y_true;         // not valid for metrics of values alone (Mean, Sum)
  Output y_pred;         // predictions, [samples, ...]; values themselves for Mean and Sum
  Output sample_weight;  // not valid: each sample counts once
};

// A metric: variables that only ever have something added, so that the sums of replicas are those
// of all, and a result that is a function of the sums. Its variables are "<name>/<sum>", made at
// the first Update, when shapes are known; they are not trainable. Not thread-safe.
class Metric {
 public:
  // One of the variables, zero at first.
  struct Sum {
    std::string name;         // the variable is "<name of the metric>/<this>"
    Shape shape;              // fully known
    DataType dtype = kFloat;  // additions are cast to it
  };
  // What makes one metric differ from another.
  struct Rule {
    // For batches of these shapes.
    std::function<std::vector<Sum>(const PartialShape& y_true, const PartialShape& y_pred)> sums;
    // One for each sum.
    std::function<std::vector<Expr>(const Scope& scope, const Batch& batch)> additions;
    // The metric's value, from what the sums are now.
    std::function<Expr(const std::vector<Expr>& sums)> result;
  };
  // A metric of one's own; all three functions of the rule must be set.
  Metric(std::string name, Rule rule) : name_(std::move(name)), rule_(std::move(rule)) {}

  // What logs call it, and the first part of its variables' names.
  const std::string& name() const { return name_; }
  // Adds a batch; an error in it adds nothing.
  Operation Update(const Scope& scope, const Batch& batch,
                   std::source_location where = std::source_location::current());
  // What the sums say when the scope's control dependencies are met. FailedPrecondition in the
  // graph's status before the first Update, as for Reset.
  Output Result(const Scope& scope,
                std::source_location where = std::source_location::current()) const;
  // Makes all sums zero.
  Operation Reset(const Scope& scope,
                  std::source_location where = std::source_location::current()) const;
  // The sums, in the rule's order; empty before the first Update.
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  bool IsBuilt(const Scope& scope, std::source_location where) const;

  std::string name_;
  Rule rule_;
  std::vector<Variable> variables_;
};

// Of values; y_true is not looked at.
Metric Mean(std::string name = "mean");
// The weighted sum of values.
Metric Sum(std::string name = "sum");
// The mean of what a function says of each sample, such as a Loss's values.
Metric MeanOf(std::string name, losses::LossFunction function);
// The mean of a loss's values, under the loss's name; its reduction is not looked at.
Metric MeanOf(const losses::Loss& loss);

// How often y_pred equals y_true, element by element.
Metric Accuracy();
// How often y_pred > threshold says what y_true does, which is 0 or 1.
Metric BinaryAccuracy(double threshold = 0.5);
// How often the largest of the last axis is in the same place in both: y_true is one-hot.
Metric CategoricalAccuracy();
// How often the largest of y_pred's last axis stands at y_true, a class number.
Metric SparseCategoricalAccuracy();
// How often the class of a one-hot y_true is among the k with the highest predictions.
Metric TopKCategoricalAccuracy(int32_t k = 5);
// The same with class numbers as y_true.
Metric SparseTopKCategoricalAccuracy(int32_t k = 5);

// The loss functions' means, not negated.
Metric MeanSquaredError();
// The square root of the mean over all batches, not the mean of roots.
Metric RootMeanSquaredError();
// Mean of |y_true - y_pred|.
Metric MeanAbsoluteError();
// Mean of 100 |y_true - y_pred| / |y_true|.
Metric MeanAbsolutePercentageError();
// Mean of (log(1 + y_pred) - log(1 + y_true))^2.
Metric MeanSquaredLogarithmicError();
// Mean of log(cosh(y_pred - y_true)), called "logcosh".
Metric LogCoshError();
Metric CosineSimilarity(int32_t axis = -1);  // plus the cosine
// Mean of max(1 - y_true y_pred, 0), with labels -1 and 1 (or 0 and 1).
Metric Hinge();
// Mean of the squares of Hinge's.
Metric SquaredHinge();
// Mean of max(largest wrong - right + 1, 0) with one-hot labels.
Metric CategoricalHinge();
// Mean of sum(y_true log(y_true / y_pred)) over the last axis.
Metric KLDivergence();
// Mean of y_pred - y_true log(y_pred).
Metric Poisson();
// Cross entropy of probabilities of single labels; the name is the loss's.
Metric BinaryCrossentropy(const losses::CrossentropyOptions& options = {});
// Cross entropy against one-hot labels.
Metric CategoricalCrossentropy(const losses::CrossentropyOptions& options = {});
// Cross entropy against class numbers.
Metric SparseCategoricalCrossentropy(const losses::SparseCrossentropyOptions& options = {});
// Of each batch, and the mean of those: these two depend on how samples are batched.
Metric PearsonCorrelation(int32_t axis = -1);
// Lin's coefficient along an axis, as Keras computes it.
Metric ConcordanceCorrelation(int32_t axis = -1);

// What becomes of the scores of the columns.
enum class ClassAggregation {
  // A vector, one score for each column.
  kNone,
  // Their mean.
  kUniformAverage,
  // Their mean, weighted by the columns' sums of squared distances of y_true from its mean.
  kVarianceWeightedAverage
};
// Of R2Score: batches are [samples, columns].
struct R2ScoreOptions {
  ClassAggregation class_aggregation = ClassAggregation::kUniformAverage;  // over columns
  int64_t num_regressors = 0;                                              // for the adjusted score
};
// 1 - (sum of squared errors) / (sum of squared distances from y_true's mean).
Metric R2Score(const R2ScoreOptions& options = {});

// A prediction above a threshold is positive. Results are scalars for one threshold, else vectors.
struct ThresholdOptions {
  std::vector<double> thresholds{};   // default: 0.5, or none with top_k
  std::optional<int32_t> top_k{};     // of precision and recall: only the k largest can be positive
  std::optional<int32_t> class_id{};  // place in the last axis that alone counts; not set: all
};
// Weighted counts: of predictions that are positive and true.
Metric TruePositives(const ThresholdOptions& options = {});
// Of predictions that are negative where y_true is 0.
Metric TrueNegatives(const ThresholdOptions& options = {});
// Of predictions that are positive where y_true is 0.
Metric FalsePositives(const ThresholdOptions& options = {});
// Of predictions that are negative where y_true is not 0.
Metric FalseNegatives(const ThresholdOptions& options = {});
// TP / (TP + FP), 0 without a positive prediction.
Metric Precision(const ThresholdOptions& options = {});
// TP / (TP + FN), 0 without a positive label.
Metric Recall(const ThresholdOptions& options = {});

// Whose area Auc computes.
enum class Curve {
  // True positive rate over false positive rate.
  kRoc,
  // Precision over recall.
  kPr
};
// How high a piece of area between two thresholds is.
enum class SummationMethod {
  // The middle of both ends; for kPr as Davis and Goadrich, ICML 2006.
  kInterpolation,
  // The lower end.
  kMinoring,
  // The higher end.
  kMajoring
};
// Of Auc: predictions lie in [0, 1].
struct AucOptions {
  int32_t num_thresholds = 200;                                        // evenly spaced from 0 to 1
  Curve curve = Curve::kRoc;                                           // what the area lies under
  SummationMethod summation_method = SummationMethod::kInterpolation;  // between thresholds
  std::vector<double> thresholds{};  // inside (0, 1), instead of num_thresholds
  bool multi_label = false;  // one area for each column of [samples, labels], and their mean
  std::vector<float> label_weights{};  // of that mean, one per label; empty: equal
  bool from_logits = false;            // predictions go through a sigmoid first
};
// The area under the curve, a scalar.
Metric Auc(const AucOptions& options = {});

// Of the best value of one rate at thresholds where another one is high enough.
struct ConstraintOptions {
  double at_least = 0.5;              // what the other one must reach
  int32_t num_thresholds = 200;       // evenly spaced from 0 to 1
  std::optional<int32_t> class_id{};  // place in the last axis that alone counts; not set: all
};
// The highest TP / (TP + FN) where TN / (TN + FP) >= at_least; 0 if it is nowhere.
Metric SensitivityAtSpecificity(const ConstraintOptions& options);
// The highest TN / (TN + FP) where TP / (TP + FN) >= at_least.
Metric SpecificityAtSensitivity(const ConstraintOptions& options);
// The highest TP / (TP + FP) where TP / (TP + FN) >= at_least.
Metric PrecisionAtRecall(const ConstraintOptions& options);
// The highest TP / (TP + FN) where TP / (TP + FP) >= at_least.
Metric RecallAtPrecision(const ConstraintOptions& options);

// What becomes of the F scores of the classes.
enum class Average {
  // A vector, one score for each class.
  kNone,
  // One score, of counts over all classes.
  kMicro,
  // The mean of the classes' scores.
  kMacro,
  // That mean, weighted by how often each class is true.
  kWeighted
};
// Of FBetaScore: batches are [samples, classes], labels 0 and 1.
struct FBetaOptions {
  Average average = Average::kNone;   // over classes
  double beta = 1;                    // weight of recall against precision
  std::optional<double> threshold{};  // without one, the largest of a row is positive
};
// (1 + beta^2) precision recall / (beta^2 precision + recall); called "f1_score" if beta is 1.
Metric FBetaScore(const FBetaOptions& options = {});
// The same with beta 1, whatever the options say.
Metric F1Score(FBetaOptions options = {});

// Overlap of classes, from a matrix of how often which was taken for which.
struct IoUOptions {
  int32_t num_classes = 2;                  // rows and columns of the matrix
  std::vector<int32_t> target_class_ids{};  // empty: all
  std::optional<int64_t> ignore_class{};    // samples with this label do not count
  bool sparse_y_true = true,                // labels are class numbers; false: one score per class
      sparse_y_pred = true;                 // the same of predictions
  DataType dtype = kInt64;                  // of the matrix; integers cut weights off
};
// The mean of TP / (TP + FP + FN) over the target classes that occur.
Metric IoU(const IoUOptions& options);
// The same, called "mean_io_u".
Metric MeanIoU(const IoUOptions& options);
// IoU of one score per class in both, whatever the options say of sparse_y_*.
Metric OneHotIoU(IoUOptions options);
// The same, called "one_hot_mean_io_u".
Metric OneHotMeanIoU(IoUOptions options);
// Of BinaryIoU: classes 0 and 1.
struct BinaryIoUOptions {
  std::vector<int32_t> target_class_ids{0, 1};  // classes whose overlaps are averaged
  double threshold = 0.5;                       // a prediction from here on is class 1
  DataType dtype = kInt64;                      // of the matrix; integers cut weights off
};
// IoU of predictions that a threshold makes classes.
Metric BinaryIoU(const BinaryIoUOptions& options = {});

}  // namespace metrics
}  // namespace millrace

#endif  // MILLRACE_METRICS_H_
