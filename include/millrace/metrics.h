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
  Output y_true;  // not valid for metrics of values alone (Mean, Sum)
  Output y_pred;
  Output sample_weight;  // not valid: each sample counts once
};

// A metric: variables that only ever have something added, so that the sums of replicas are those
// of all, and a result that is a function of the sums. Its variables are "<name>/<sum>", made at
// the first Update, when shapes are known; they are not trainable. Not thread-safe.
class Metric {
 public:
  struct Sum {
    std::string name;
    Shape shape;
    DataType dtype = kFloat;
  };
  struct Rule {
    // For batches of these shapes.
    std::function<std::vector<Sum>(const PartialShape& y_true, const PartialShape& y_pred)> sums;
    // One for each sum.
    std::function<std::vector<Expr>(const Scope& scope, const Batch& batch)> additions;
    std::function<Expr(const std::vector<Expr>& sums)> result;
  };
  Metric(std::string name, Rule rule) : name_(std::move(name)), rule_(std::move(rule)) {}

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
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  bool IsBuilt(const Scope& scope, std::source_location where) const;

  std::string name_;
  Rule rule_;
  std::vector<Variable> variables_;
};

// Of values; y_true is not looked at.
Metric Mean(std::string name = "mean");
Metric Sum(std::string name = "sum");
// The mean of what a function says of each sample, such as a Loss's values.
Metric MeanOf(std::string name, losses::LossFunction function);
Metric MeanOf(const losses::Loss& loss);

Metric Accuracy();
Metric BinaryAccuracy(double threshold = 0.5);
Metric CategoricalAccuracy();
Metric SparseCategoricalAccuracy();
Metric TopKCategoricalAccuracy(int32_t k = 5);
Metric SparseTopKCategoricalAccuracy(int32_t k = 5);

// The loss functions' means, not negated.
Metric MeanSquaredError();
Metric RootMeanSquaredError();
Metric MeanAbsoluteError();
Metric MeanAbsolutePercentageError();
Metric MeanSquaredLogarithmicError();
Metric LogCoshError();
Metric CosineSimilarity(int32_t axis = -1);  // plus the cosine
Metric Hinge();
Metric SquaredHinge();
Metric CategoricalHinge();
Metric KLDivergence();
Metric Poisson();
Metric BinaryCrossentropy(const losses::CrossentropyOptions& options = {});
Metric CategoricalCrossentropy(const losses::CrossentropyOptions& options = {});
Metric SparseCategoricalCrossentropy(const losses::SparseCrossentropyOptions& options = {});
// Of each batch, and the mean of those: these two depend on how samples are batched.
Metric PearsonCorrelation(int32_t axis = -1);
Metric ConcordanceCorrelation(int32_t axis = -1);

enum class ClassAggregation { kNone, kUniformAverage, kVarianceWeightedAverage };
struct R2ScoreOptions {
  ClassAggregation class_aggregation = ClassAggregation::kUniformAverage;
  int64_t num_regressors = 0;  // for the adjusted score
};
Metric R2Score(const R2ScoreOptions& options = {});

// A prediction above a threshold is positive. Results are scalars for one threshold, else vectors.
struct ThresholdOptions {
  std::vector<double> thresholds{};  // default: 0.5, or none with top_k
  std::optional<int32_t> top_k{};    // of precision and recall: only the k largest can be positive
  std::optional<int32_t> class_id{};
};
Metric TruePositives(const ThresholdOptions& options = {});
Metric TrueNegatives(const ThresholdOptions& options = {});
Metric FalsePositives(const ThresholdOptions& options = {});
Metric FalseNegatives(const ThresholdOptions& options = {});
Metric Precision(const ThresholdOptions& options = {});
Metric Recall(const ThresholdOptions& options = {});

enum class Curve { kRoc, kPr };
enum class SummationMethod { kInterpolation, kMinoring, kMajoring };
struct AucOptions {
  int32_t num_thresholds = 200;
  Curve curve = Curve::kRoc;
  SummationMethod summation_method = SummationMethod::kInterpolation;
  std::vector<double> thresholds{};  // inside (0, 1), instead of num_thresholds
  bool multi_label = false;
  std::vector<float> label_weights{};
  bool from_logits = false;
};
Metric Auc(const AucOptions& options = {});

struct ConstraintOptions {
  double at_least = 0.5;  // what the other one must reach
  int32_t num_thresholds = 200;
  std::optional<int32_t> class_id{};
};
Metric SensitivityAtSpecificity(const ConstraintOptions& options);
Metric SpecificityAtSensitivity(const ConstraintOptions& options);
Metric PrecisionAtRecall(const ConstraintOptions& options);
Metric RecallAtPrecision(const ConstraintOptions& options);

enum class Average { kNone, kMicro, kMacro, kWeighted };
struct FBetaOptions {
  Average average = Average::kNone;
  double beta = 1;
  std::optional<double> threshold{};  // without one, the largest of a row is positive
};
Metric FBetaScore(const FBetaOptions& options = {});
Metric F1Score(FBetaOptions options = {});

// Overlap of classes, from a matrix of how often which was taken for which.
struct IoUOptions {
  int32_t num_classes = 2;
  std::vector<int32_t> target_class_ids{};  // empty: all
  std::optional<int64_t> ignore_class{};
  bool sparse_y_true = true, sparse_y_pred = true;  // class numbers; false: one score per class
  DataType dtype = kInt64;                          // of the matrix; integers cut weights off
};
Metric IoU(const IoUOptions& options);
Metric MeanIoU(const IoUOptions& options);
Metric OneHotIoU(IoUOptions options);
Metric OneHotMeanIoU(IoUOptions options);
struct BinaryIoUOptions {
  std::vector<int32_t> target_class_ids{0, 1};
  double threshold = 0.5;
  DataType dtype = kInt64;
};
Metric BinaryIoU(const BinaryIoUOptions& options = {});

}  // namespace metrics
}  // namespace millrace

#endif  // MILLRACE_METRICS_H_
