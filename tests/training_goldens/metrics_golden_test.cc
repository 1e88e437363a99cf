// SPDX-License-Identifier: Apache-2.0
// States and results of metrics after each update against those of Keras.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/training_goldens/loss_of.h"

namespace millrace::testing {
namespace {

using metrics::Metric;

metrics::ThresholdOptions ThresholdsOf(const Arguments& a) {
  metrics::ThresholdOptions o;
  if (a.Has("thresholds")) o.thresholds = Numbers(a.json()["thresholds"]);
  a.Get("top_k", &o.top_k);
  a.Get("class_id", &o.class_id);
  return o;
}

metrics::AucOptions AucOf(const Arguments& a) {
  metrics::AucOptions o;
  std::string curve = "ROC", method = "interpolation";
  a.Get("curve", &curve);
  a.Get("summation_method", &method);
  o.curve = curve == "PR" ? metrics::Curve::kPr : metrics::Curve::kRoc;
  o.summation_method = method == "minoring"   ? metrics::SummationMethod::kMinoring
                       : method == "majoring" ? metrics::SummationMethod::kMajoring
                                              : metrics::SummationMethod::kInterpolation;
  a.Get("num_thresholds", &o.num_thresholds);
  a.Get("multi_label", &o.multi_label);
  a.Get("from_logits", &o.from_logits);
  if (a.Has("thresholds")) o.thresholds = Numbers(a.json()["thresholds"]);
  if (a.Has("label_weights")) o.label_weights = a.json()["label_weights"].get<std::vector<float>>();
  return o;
}

metrics::ConstraintOptions ConstraintOf(const Arguments& a) {
  metrics::ConstraintOptions o;
  for (const char* name : {"specificity", "sensitivity", "recall", "precision"}) {
    a.Get(name, &o.at_least);
  }
  a.Get("num_thresholds", &o.num_thresholds);
  return o;
}

metrics::FBetaOptions FBetaOf(const Arguments& a) {
  metrics::FBetaOptions o;
  std::string average;
  a.Get("average", &average);
  o.average = average == "micro"      ? metrics::Average::kMicro
              : average == "macro"    ? metrics::Average::kMacro
              : average == "weighted" ? metrics::Average::kWeighted
                                      : metrics::Average::kNone;
  a.Get("beta", &o.beta);
  a.Get("threshold", &o.threshold);
  return o;
}

metrics::IoUOptions IoUOf(const Arguments& a) {
  metrics::IoUOptions o;
  a.Get("num_classes", &o.num_classes);
  a.Get("target_class_ids", &o.target_class_ids);
  a.Get("ignore_class", &o.ignore_class);
  if (a.Has("dtype")) o.dtype = kFloat;
  return o;
}

std::optional<Metric> CountingMetricOf(const std::string& name, const Arguments& a) {
  if (name == "TruePositives") return metrics::TruePositives(ThresholdsOf(a));
  if (name == "TrueNegatives") return metrics::TrueNegatives(ThresholdsOf(a));
  if (name == "FalsePositives") return metrics::FalsePositives(ThresholdsOf(a));
  if (name == "FalseNegatives") return metrics::FalseNegatives(ThresholdsOf(a));
  if (name == "Precision") return metrics::Precision(ThresholdsOf(a));
  if (name == "Recall") return metrics::Recall(ThresholdsOf(a));
  if (name == "AUC") return metrics::Auc(AucOf(a));
  const metrics::ConstraintOptions constraint = ConstraintOf(a);
  if (name == "SensitivityAtSpecificity") return metrics::SensitivityAtSpecificity(constraint);
  if (name == "SpecificityAtSensitivity") return metrics::SpecificityAtSensitivity(constraint);
  if (name == "PrecisionAtRecall") return metrics::PrecisionAtRecall(constraint);
  if (name == "RecallAtPrecision") return metrics::RecallAtPrecision(constraint);
  if (name == "F1Score") return metrics::F1Score(FBetaOf(a));
  if (name == "FBetaScore") return metrics::FBetaScore(FBetaOf(a));
  if (name == "IoU") return metrics::IoU(IoUOf(a));
  if (name == "MeanIoU") return metrics::MeanIoU(IoUOf(a));
  if (name == "OneHotIoU") return metrics::OneHotIoU(IoUOf(a));
  if (name == "OneHotMeanIoU") return metrics::OneHotMeanIoU(IoUOf(a));
  if (name == "BinaryIoU") {
    metrics::BinaryIoUOptions o;
    a.Get("target_class_ids", &o.target_class_ids);
    a.Get("threshold", &o.threshold);
    return metrics::BinaryIoU(o);
  }
  return std::nullopt;
}

std::optional<Metric> MetricOf(const std::string& name, const Arguments& a) {
  if (auto metric = CountingMetricOf(name, a)) return metric;
  if (name == "Mean") return metrics::Mean();
  if (name == "Sum") return metrics::Sum();
  if (name == "Accuracy") return metrics::Accuracy();
  if (name == "BinaryAccuracy") {
    double threshold = 0.5;
    a.Get("threshold", &threshold);
    return metrics::BinaryAccuracy(threshold);
  }
  int32_t k = 5, axis = -1;
  a.Get("k", &k);
  a.Get("axis", &axis);
  if (name == "CategoricalAccuracy") return metrics::CategoricalAccuracy();
  if (name == "SparseCategoricalAccuracy") return metrics::SparseCategoricalAccuracy();
  if (name == "TopKCategoricalAccuracy") return metrics::TopKCategoricalAccuracy(k);
  if (name == "SparseTopKCategoricalAccuracy") return metrics::SparseTopKCategoricalAccuracy(k);
  if (name == "RootMeanSquaredError") return metrics::RootMeanSquaredError();
  if (name == "LogCoshError") return metrics::LogCoshError();
  if (name == "CosineSimilarity") return metrics::CosineSimilarity(axis);
  if (name == "PearsonCorrelation") return metrics::PearsonCorrelation(axis);
  if (name == "ConcordanceCorrelation") return metrics::ConcordanceCorrelation(axis);
  if (name == "R2Score") {
    metrics::R2ScoreOptions o;
    a.Get("num_regressors", &o.num_regressors);
    if (a.json().contains("class_aggregation")) {
      o.class_aggregation = a.json()["class_aggregation"].is_null()
                                ? metrics::ClassAggregation::kNone
                                : metrics::ClassAggregation::kVarianceWeightedAverage;
    }
    return metrics::R2Score(o);
  }
  if (name == "MeanMetricWrapper") {
    return metrics::MeanOf("wrapped", [](const Scope& s, const Output& y, const Output& p) {
      return losses::LossValues{(Expr(s, p) - y).Square().Mean({-1})};
    });
  }
  if (auto loss = LossOf(name, a)) return metrics::MeanOf(*loss);
  return std::nullopt;
}

// A graph of one metric: updates with and without weights, result, reset.
class Meter {
 public:
  Meter(Metric metric, const Json& update, bool has_weights) : metric_(std::move(metric)) {
    const Scope root = graph_.root();
    const auto input = [&](const Json& tensor) {
      // Batches differ in size.
      const Tensor value = TensorOf(tensor);
      std::vector<int64_t> dims(value.shape().dims().begin(), value.shape().dims().end());
      if (!dims.empty()) dims[0] = -1;
      return Placeholder(root, value.dtype(), PartialShape(dims));
    };
    if (!update["y_true"].is_null()) y_true_ = input(update["y_true"]);
    y_pred_ = input(update["y_pred"]);
    plain_ = metric_.Update(root, {y_true_, y_pred_, Output()});
    if (has_weights) {
      const bool scalar = TensorOf(update["y_pred"]).shape().rank() == 0;
      weight_ = Placeholder(root, kFloat, scalar ? PartialShape({}) : PartialShape({-1}));
      weighted_ = metric_.Update(root, {y_true_, y_pred_, weight_});
    }
    result_ = metric_.Result(root);
    reset_ = metric_.Reset(root);
    init_ = InitializeVariables(root);
  }

  std::string Start() {
    if (!graph_.status().ok()) return graph_.status().ToString();
    auto session = Session::Create(graph_);
    if (!session.ok()) return session.status().ToString();
    session_ = std::make_unique<Session>(*std::move(session));
    const Status status = session_->RunTargets({init_});
    return status.ok() ? "" : status.ToString();
  }

  std::string Update(const Json& update, bool use_weights) {
    std::vector<Feed> feeds;
    feeds.reserve(3);
    feeds.emplace_back(y_pred_, TensorOf(update["y_pred"]));
    if (y_true_.valid()) feeds.emplace_back(y_true_, TensorOf(update["y_true"]));
    const bool weighted = use_weights && !update["sample_weight"].is_null();
    if (weighted) feeds.emplace_back(weight_, TensorOf(update["sample_weight"]));
    const Operation targets[] = {weighted ? weighted_ : plain_};
    auto out = session_->Run(feeds, {}, targets);
    return out.ok() ? "" : out.status().ToString();
  }

  std::string Compare(const Json& want) {
    const GoldenTolerance tolerance{1e-5, 1e-6};
    for (std::size_t i = 0; i < want["state"].size(); ++i) {
      const Variable& v = metric_.variables()[i];
      auto value = session_->Eval(v.read);
      if (!value.ok()) return value.status().ToString();
      const std::string why = Difference(*value, want["state"][i], tolerance);
      if (!why.empty()) return StrCat(v.name(), ": ", why);
    }
    auto value = session_->Eval(result_);
    if (!value.ok()) return value.status().ToString();
    const Json& result = want["result"];
    const std::string why =
        Difference(*value, result.is_object() ? result["data"] : result, tolerance);
    return why.empty() ? "" : "result: " + why;
  }

  std::string Reset() {
    const Status status = session_->RunTargets({reset_});
    return status.ok() ? "" : status.ToString();
  }
  const Metric& metric() const { return metric_; }
  Session& session() { return *session_; }
  const Output& result() const { return result_; }

 private:
  Graph graph_;
  Metric metric_;
  Output y_true_, y_pred_, weight_, result_;
  Operation plain_, weighted_, reset_, init_;
  std::unique_ptr<Session> session_;
};

std::string RunSequence(Meter& meter, const Json& updates, const Json& wants, bool use_weights) {
  for (std::size_t i = 0; i < wants.size(); ++i) {
    const std::string error = meter.Update(updates[i], use_weights);
    if (wants[i].contains("raises")) {
      if (error.empty()) return StrCat("update ", i, ": no error");
      if (!wants[i].contains("state")) continue;
    } else if (!error.empty()) {
      return StrCat("update ", i, ": ", error);
    }
    const std::string why = meter.Compare(wants[i]);
    if (!why.empty()) return StrCat("update ", i, ": ", why);
  }
  return "";
}

std::string RunCase(const Json& c, const Json& updates) {
  std::optional<Metric> metric = MetricOf(c["metric"], Arguments(c["arguments"]));
  if (!metric) return "there is no such metric";
  if (metric->name() != c["name"].get<std::string>()) return "its name is " + metric->name();
  Meter meter(*std::move(metric), updates[0], c.contains("weighted"));
  if (std::string why = meter.Start(); !why.empty()) return why;
  const std::vector<Variable>& variables = meter.metric().variables();
  if (variables.size() != c["variables"].size()) return StrCat(variables.size(), " variables");
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::string want = c["variables"][i]["name"];
    if (!variables[i].name().ends_with("/" + want)) return "a variable is " + variables[i].name();
  }
  if (c.contains("result_before_any_update") && c["result_before_any_update"].is_object()) {
    auto first = meter.session().Eval(meter.result());
    if (!first.ok()) return first.status().ToString();
    const std::string why = Difference(*first, c["result_before_any_update"]["data"], {1e-5, 1e-6});
    if (!why.empty()) return "before any update: " + why;
  }
  std::string why = RunSequence(meter, updates, c["weighted"], true);
  if (!why.empty()) return "weighted " + why;
  if (why = meter.Reset(); !why.empty()) return why;
  why = RunSequence(meter, updates, c["unweighted"], false);
  return why.empty() ? "" : "unweighted " + why;
}

TEST(MetricsGoldenTest, StatesAndResultsAreKeras) {
  const Json golden = LoadGolden("metrics/metrics.json");
  Tally tally("metrics");
  for (const Json& c : golden["cases"]) {
    tally.Add(StrCat(c["metric"].get<std::string>(), c["arguments"].dump(), " of ",
                     c["batches"].get<std::string>()),
              RunCase(c, golden["batches"][c["batches"].get<std::string>()]));
  }
}

TEST(MetricsTest, ResultBeforeTheFirstUpdateIsAnError) {
  Graph graph;
  const Metric mean = metrics::Mean();
  mean.Result(graph.root());
  EXPECT_EQ(graph.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(graph.status().ToString().find("metric 'mean' has no variables yet"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace::testing
