// Models: layers together with how they are trained, evaluated and asked.
//
//   Model model(layers::Sequential({layers::Dense(128, {.activation = "relu"}),
//   layers::Dense(10)})); Status status = model.Compile({.optimizer = "adam", .loss = "mse",
//   .metrics = {"mae"}}); StatusOr<History> history = model.Fit(x, y, {.epochs = 5});
//
// docs/fit.md is the guide; what Keras calls it stands at its end.
#ifndef MILLRACE_MODEL_H_
#define MILLRACE_MODEL_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/callbacks.h"
#include "millrace/data.h"
#include "millrace/graph.h"
#include "millrace/layer.h"
#include "millrace/losses.h"
#include "millrace/metrics.h"
#include "millrace/optimizers.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "millrace/variables.h"

namespace millrace {

class Strategy;  // millrace/strategy.h

// An optimizer, or its name in Keras ("sgd", "adam") with Keras' default rate.
class OptimizerSpec {
 public:
  OptimizerSpec(const char* name) : name_(name) {}             // NOLINT
  OptimizerSpec(std::string name) : name_(std::move(name)) {}  // NOLINT
  template <typename T>
    requires(std::derived_from<T, Optimizer>)
  OptimizerSpec(std::unique_ptr<T> optimizer) : optimizer_(std::move(optimizer)) {}  // NOLINT
  const std::string& name() const { return name_; }
  const std::shared_ptr<Optimizer>& optimizer() const { return optimizer_; }

 private:
  std::string name_;
  std::shared_ptr<Optimizer> optimizer_;
};

// A loss, or its name in Keras ("mse", "binary_crossentropy").
class LossSpec {
 public:
  LossSpec() = default;                                    // none: what the layers add is all
  LossSpec(const char* name) : name_(name) {}              // NOLINT
  LossSpec(std::string name) : name_(std::move(name)) {}   // NOLINT
  LossSpec(losses::Loss loss) : loss_(std::move(loss)) {}  // NOLINT
  const std::string& name() const { return name_; }
  const std::optional<losses::Loss>& loss() const { return loss_; }
  bool is_given() const { return loss_.has_value() || !name_.empty(); }

 private:
  std::string name_;
  std::optional<losses::Loss> loss_;
};

// A metric, or its name in Keras. "accuracy" and "crossentropy" are what fits the shapes: binary
// for one output, sparse for class numbers, else categorical. It is logged by its own name, or
// the name that is given here.
class MetricSpec {
 public:
  MetricSpec(const char* name) : name_(name) {}             // NOLINT
  MetricSpec(std::string name) : name_(std::move(name)) {}  // NOLINT
  MetricSpec(metrics::Metric metric)                        // NOLINT
      : name_(metric.name()), metric_(std::move(metric)) {}
  MetricSpec(std::string name, metrics::Metric metric, Direction direction = Direction::kAuto)
      : name_(std::move(name)), metric_(std::move(metric)), direction_(direction) {}
  const std::string& name() const { return name_; }
  const std::optional<metrics::Metric>& metric() const { return metric_; }
  Direction direction() const { return direction_; }  // kAuto: as metrics of its name do

 private:
  std::string name_;
  std::optional<metrics::Metric> metric_;
  Direction direction_ = Direction::kAuto;
};

// What replicas' losses weigh in the step that is taken.
enum class ReplicaLoss {
  kGlobalBatch,  // as one replica with the whole batch: each sample counts the same
  // As Keras does: each replica the same, so that samples of a smaller part count more, and moving
  // averages are those of the first replica.
  kMeanOfReplicas,
};

struct CompileOptions {
  OptimizerSpec optimizer = "rmsprop";
  LossSpec loss{};
  std::vector<MetricSpec> metrics{};           // each sample counts once
  std::vector<MetricSpec> weighted_metrics{};  // samples count by their weights
  // Steps between two calls of batch hooks. The steps themselves are the same for every number:
  // they are run one by one, so that this saves calls of hooks and nothing else.
  int64_t steps_per_execution = 1;
  ReplicaLoss replica_loss = ReplicaLoss::kGlobalBatch;
};

// One tensor for each of a model's inputs, samples along the first axis.
class Samples {
 public:
  Samples(Tensor x) : tensors_{std::move(x)} {}                 // NOLINT
  Samples(std::vector<Tensor> xs) : tensors_(std::move(xs)) {}  // NOLINT
  Samples(std::initializer_list<Tensor> xs) : tensors_(xs) {}
  std::span<const Tensor> tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

struct ValidationData {
  Samples x;
  Tensor y;
  Tensor sample_weight{};  // a number for each sample; not initialised: 1
};

struct FitOptions {
  // Default: 32, or what makes steps_per_epoch batches of the samples.
  std::optional<int64_t> batch_size{};
  // The number of the last epoch: epochs - initial_epoch are run.
  int64_t epochs = 1;
  int64_t initial_epoch = 0;
  // Batches of an epoch. Given, the next epoch goes on in the data where the last one ended;
  // data that end within an epoch end it, with a warning that says what to change.
  std::optional<int64_t> steps_per_epoch{};
  // At most one of the three. The split is the last part of the samples, which are not trained on;
  // a data set has none.
  std::optional<ValidationData> validation{};
  std::optional<Dataset> validation_dataset{};
  double validation_split = 0;
  std::optional<int64_t> validation_steps{};       // default: all batches
  std::optional<int64_t> validation_batch_size{};  // default: batch_size
  int64_t validation_freq = 1;                     // epochs between two validations
  std::vector<int64_t> validation_epochs{};        // instead: after these epochs, counted from 1
  // Weights of the classes that y names (by number, or by the largest of a row); 1 for a class that
  // is not named. Not together with sample_weight.
  std::map<int64_t, double> class_weight{};
  Tensor sample_weight{};  // a number for each sample
  // A new order of the samples for every pass over them, drawn from the pass's number and
  // ModelOptions::seed: a second run is the same.
  bool shuffle = true;
  std::vector<Callback*> callbacks{};  // must outlive the call
  Verbose verbose = Verbose::kAuto;
};

struct EvaluateOptions {
  int64_t batch_size = 32;
  std::optional<int64_t> steps{};  // default: all batches
  Tensor sample_weight{};
  std::vector<Callback*> callbacks{};
  Verbose verbose = Verbose::kAuto;
};

struct PredictOptions {
  int64_t batch_size = 32;
  std::optional<int64_t> steps{};
  std::vector<Callback*> callbacks{};
  Verbose verbose = Verbose::kSilent;
};

struct ModelOptions {
  std::string name = "model";
  int64_t seed = 0;  // of random ops and of the order of samples; 0: random ops are unseeded
  SessionOptions session{};
  // Where replicas of the model run (docs/strategies.md); null: one replica. Every batch is then
  // the global one, of which each replica gets its part. With several workers all must make the
  // same calls; Predict alone concerns each by itself.
  std::shared_ptr<Strategy> strategy{};
};

// A graph with the layers that `root` is made of, such as layers::Sequential, and a session. Its
// nodes are made when it first sees data: every later call brings samples of the same types and
// shapes, the first axis apart (InvalidArgument names both). Batches may differ in size. Floats of
// other sizes are cast to float.
//
// Errors of building are the graph's, with the place where the model was made, and stay: fix the
// layers and make another model. Errors of a step leave the model as the steps before left it.
// Not thread-safe. Neither copied nor moved: callbacks keep its address.
class Model {
 public:
  explicit Model(std::shared_ptr<Layer> root, const ModelOptions& options = {},
                 std::source_location where = std::source_location::current());
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Says how to train; again: anew, with optimizer and metrics of no history, and the weights that
  // there are. InvalidArgument lists the names if one is not known.
  Status Compile(CompileOptions options);

  // Trains. FailedPrecondition before Compile; InvalidArgument for what does not fit together.
  StatusOr<History> Fit(const Samples& x, const Tensor& y, const FitOptions& options = {});
  // Loss and metrics over samples, in the order of their names.
  StatusOr<Logs> Evaluate(const Samples& x, const Tensor& y, const EvaluateOptions& options = {});
  // Row i of the result belongs to row i of x.
  StatusOr<Tensor> Predict(const Samples& x, const PredictOptions& options = {});

  // The same with a data set, whose elements are batches: the model's inputs (one, unless Build
  // said how many), y, and weights of samples, as far as there are any; Predict leaves out what is
  // behind the inputs. Steps read it in the graph and are fed nothing; every epoch goes through it
  // once. Options of batch sizes, order and sample weights are not looked at: the data set says
  // those. InvalidArgument for one without an end and without a number of steps.
  StatusOr<History> Fit(const Dataset& batches, const FitOptions& options = {});
  StatusOr<Logs> Evaluate(const Dataset& batches, const EvaluateOptions& options = {});
  StatusOr<Tensor> Predict(const Dataset& batches, const PredictOptions& options = {});

  // One step on all samples given, and what loss and metrics are of these alone.
  StatusOr<Logs> TrainOnBatch(const Samples& x, const Tensor& y, const Tensor& sample_weight = {});
  StatusOr<Logs> TestOnBatch(const Samples& x, const Tensor& y, const Tensor& sample_weight = {});
  StatusOr<Tensor> PredictOnBatch(const Samples& x);
  // As Fit does before every epoch, and Evaluate before its samples.
  Status ResetMetrics();

  // Makes weights without data: a type and shape, first axis -1, for each input.
  struct InputSpec {
    PartialShape shape;
    DataType dtype = kFloat;
  };
  Status Build(const std::vector<InputSpec>& inputs);
  // Layers, their shapes and how many numbers their weights have, as layers::Summary.
  std::string Summary() const;

  // Empty before the model has seen data or Build was called.
  std::vector<Variable> weights() const;
  // Values in the order of weights(). InvalidArgument names a weight whose shape differs.
  StatusOr<std::vector<Tensor>> GetWeights();
  Status SetWeights(std::span<const Tensor> values);
  // FailedPrecondition before training was prepared (within Fit it is), and for a schedule.
  StatusOr<double> GetLearningRate();
  Status SetLearningRate(double rate);
  // Of a value in the logs; kAuto if no metric of the model is called so.
  Direction DirectionOf(std::string_view name) const;

  // Set by callbacks: training ends after this batch. Reset by Fit.
  bool stop_training() const { return stop_training_; }
  void set_stop_training(bool stop) { stop_training_ = stop; }

  const std::string& name() const;
  Layer* root() const;
  Optimizer* optimizer() const;
  // Nodes may be added, but for variables that training is to change.
  Graph& graph();
  Session* session();  // null before the model has seen data or Build was called
  Strategy& strategy() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
  bool stop_training_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_MODEL_H_
