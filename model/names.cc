// SPDX-License-Identifier: Apache-2.0
#include "model/names.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/keras_optimizers.h"

namespace millrace::model {
namespace {

template <typename T>
using Makers = std::map<std::string, std::function<T()>, std::less<>>;

const std::map<std::string, std::string, std::less<>>& Aliases() {
  static const auto* const aliases = new std::map<std::string, std::string, std::less<>>{
      {"mse", "mean_squared_error"},
      {"mae", "mean_absolute_error"},
      {"mape", "mean_absolute_percentage_error"},
      {"msle", "mean_squared_logarithmic_error"},
      {"rmse", "root_mean_squared_error"},
      {"bce", "binary_crossentropy"},
      {"kld", "kl_divergence"},
      {"kullback_leibler_divergence", "kl_divergence"},
      {"logcosh", "log_cosh"},
      {"acc", "accuracy"},
      {"ce", "crossentropy"},
      {"tversky_loss", "tversky"},
  };
  return *aliases;
}

std::string Canonical(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto alias = Aliases().find(lower);
  return alias == Aliases().end() ? lower : alias->second;
}

const Makers<losses::Loss>& Losses() {
  using namespace losses;  // NOLINT: a table of its functions
  static const auto* const makers = new Makers<Loss>{
      {"mean_squared_error", [] { return MeanSquaredError(); }},
      {"mean_absolute_error", [] { return MeanAbsoluteError(); }},
      {"mean_absolute_percentage_error", [] { return MeanAbsolutePercentageError(); }},
      {"mean_squared_logarithmic_error", [] { return MeanSquaredLogarithmicError(); }},
      {"log_cosh", [] { return LogCosh(); }},
      {"huber", [] { return Huber(); }},
      {"cosine_similarity", [] { return CosineSimilarity(); }},
      {"kl_divergence", [] { return KLDivergence(); }},
      {"poisson", [] { return Poisson(); }},
      {"hinge", [] { return Hinge(); }},
      {"squared_hinge", [] { return SquaredHinge(); }},
      {"categorical_hinge", [] { return CategoricalHinge(); }},
      {"binary_crossentropy", [] { return BinaryCrossentropy(); }},
      {"categorical_crossentropy", [] { return CategoricalCrossentropy(); }},
      {"sparse_categorical_crossentropy", [] { return SparseCategoricalCrossentropy(); }},
      {"binary_focal_crossentropy", [] { return BinaryFocalCrossentropy(); }},
      {"categorical_focal_crossentropy", [] { return CategoricalFocalCrossentropy(); }},
      {"categorical_generalized_cross_entropy",
       [] { return CategoricalGeneralizedCrossEntropy(); }},
      {"dice", [] { return Dice(); }},
      {"tversky", [] { return Tversky(); }},
      {"circle", [] { return Circle(); }},
      {"ctc", [] { return Ctc(); }},
  };
  return *makers;
}

const Makers<metrics::Metric>& Metrics() {
  using namespace metrics;  // NOLINT: a table of its functions
  static const auto* const makers = new Makers<Metric>{
      {"binary_accuracy", [] { return BinaryAccuracy(); }},
      {"categorical_accuracy", [] { return CategoricalAccuracy(); }},
      {"sparse_categorical_accuracy", [] { return SparseCategoricalAccuracy(); }},
      {"top_k_categorical_accuracy", [] { return TopKCategoricalAccuracy(); }},
      {"sparse_top_k_categorical_accuracy", [] { return SparseTopKCategoricalAccuracy(); }},
      {"mean_squared_error", [] { return MeanSquaredError(); }},
      {"root_mean_squared_error", [] { return RootMeanSquaredError(); }},
      {"mean_absolute_error", [] { return MeanAbsoluteError(); }},
      {"mean_absolute_percentage_error", [] { return MeanAbsolutePercentageError(); }},
      {"mean_squared_logarithmic_error", [] { return MeanSquaredLogarithmicError(); }},
      {"log_cosh", [] { return LogCoshError(); }},
      {"cosine_similarity", [] { return CosineSimilarity(); }},
      {"hinge", [] { return Hinge(); }},
      {"squared_hinge", [] { return SquaredHinge(); }},
      {"categorical_hinge", [] { return CategoricalHinge(); }},
      {"kl_divergence", [] { return KLDivergence(); }},
      {"poisson", [] { return Poisson(); }},
      {"binary_crossentropy", [] { return BinaryCrossentropy(); }},
      {"categorical_crossentropy", [] { return CategoricalCrossentropy(); }},
      {"sparse_categorical_crossentropy", [] { return SparseCategoricalCrossentropy(); }},
      {"pearson_correlation", [] { return PearsonCorrelation(); }},
      {"concordance_correlation", [] { return ConcordanceCorrelation(); }},
      {"r2_score", [] { return R2Score(); }},
      {"true_positives", [] { return TruePositives(); }},
      {"true_negatives", [] { return TrueNegatives(); }},
      {"false_positives", [] { return FalsePositives(); }},
      {"false_negatives", [] { return FalseNegatives(); }},
      {"precision", [] { return Precision(); }},
      {"recall", [] { return Recall(); }},
      {"auc", [] { return Auc(); }},
      {"fbeta_score", [] { return FBetaScore(); }},
      {"f1_score", [] { return F1Score(); }},
      {"binary_io_u", [] { return BinaryIoU(); }},
  };
  return *makers;
}

const Makers<std::shared_ptr<Optimizer>>& Optimizers() {
  using namespace optimizers;  // NOLINT: a table of its functions
  static const auto* const makers = new Makers<std::shared_ptr<Optimizer>>{
      {"sgd", [] { return Sgd(); }},
      {"rmsprop", [] { return RmsProp(); }},
      {"adam", [] { return Adam(); }},
      {"adamw", [] { return AdamW(); }},
      {"adamax", [] { return Adamax(); }},
      {"nadam", [] { return Nadam(); }},
      {"adagrad", [] { return Adagrad(); }},
      {"adadelta", [] { return Adadelta(); }},
      {"adafactor", [] { return Adafactor(); }},
      {"ftrl", [] { return Ftrl(); }},
      {"lion", [] { return Lion(); }},
      {"lamb", [] { return Lamb(); }},
      {"muon", [] { return Muon(); }},
      {"schedule_free_adamw", [] { return ScheduleFreeAdamW(); }},
  };
  return *makers;
}

template <typename T>
Status NoSuchName(const char* what, const std::string& name, const Makers<T>& makers,
                  std::string_view more = "") {
  std::vector<std::string> names;
  for (const auto& [known, maker] : makers) names.push_back(known);
  return errors::InvalidArgument("there is no ", what, " '", name, "'; there are ",
                                 StrJoin(names, ", "), more);
}

template <typename T>
StatusOr<T> Make(const char* what, const std::string& name, const Makers<T>& makers) {
  const auto found = makers.find(Canonical(name));
  if (found == makers.end()) return NoSuchName(what, name, makers);
  return found->second();
}

bool DependsOnShapes(const std::string& canonical) {
  return canonical == "accuracy" || canonical == "crossentropy";
}

}  // namespace

StatusOr<losses::Loss> LossByName(const std::string& name) { return Make("loss", name, Losses()); }

StatusOr<std::shared_ptr<Optimizer>> OptimizerByName(const std::string& name) {
  return Make("optimizer", name, Optimizers());
}

Status CheckMetricName(const std::string& name) {
  const std::string canonical = Canonical(name);
  if (DependsOnShapes(canonical) || Metrics().contains(canonical)) return OkStatus();
  return NoSuchName("metric", name, Metrics(), ", accuracy, crossentropy");
}

StatusOr<metrics::Metric> MetricByName(const std::string& name, const PartialShape& y_true,
                                       const PartialShape& y_pred) {
  std::string canonical = Canonical(name);
  if (DependsOnShapes(canonical)) {
    if (!y_pred.has_rank() || !y_true.has_rank() || y_pred.rank() == 0 ||
        y_pred.dim(y_pred.rank() - 1) < 0) {
      return errors::InvalidArgument(
          "metric '", name, "' does not know which one to be: predictions have the shape ",
          y_pred.DebugString(), " and labels ", y_true.DebugString(),
          "; name binary_, categorical_ or sparse_categorical_", canonical);
    }
    const int64_t classes = y_pred.dim(y_pred.rank() - 1);
    const bool sparse =
        y_true.rank() < y_pred.rank() || (y_true.rank() > 0 && y_true.dim(y_true.rank() - 1) == 1);
    canonical = StrCat(classes == 1 ? "binary_"
                       : sparse     ? "sparse_categorical_"
                                    : "categorical_",
                       canonical);
  }
  return Make("metric", canonical, Metrics());
}

bool ImprovesUpwards(const std::string& name) {
  const std::string canonical = Canonical(name);
  for (const char* part : {"accuracy", "auc", "precision", "recall", "f1_score", "fbeta_score",
                           "r2_score", "io_u", "iou", "true_positives", "true_negatives",
                           "cosine_similarity", "correlation", "sensitivity", "specificity"}) {
    if (canonical.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace millrace::model
