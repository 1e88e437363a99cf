// SPDX-License-Identifier: Apache-2.0
// What a Model (millrace/model.h) is compiled, trained, evaluated and asked with.
#ifndef MILLRACE_FIT_OPTIONS_H_
#define MILLRACE_FIT_OPTIONS_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/callback.h"
#include "millrace/data.h"
#include "millrace/history.h"
#include "millrace/losses.h"
#include "millrace/metrics.h"
#include "millrace/optimizers.h"
#include "millrace/tensor.h"

namespace millrace {

// An optimizer, or its name in Keras ("sgd", "adam") with Keras' default rate.
class OptimizerSpec {
 public:
  OptimizerSpec(const char* name) : name_(name) {}             // NOLINT
  OptimizerSpec(std::string name) : name_(std::move(name)) {}  // NOLINT
  template <typename T>
    requires(std::derived_from<T, Optimizer>)
  OptimizerSpec(std::unique_ptr<T> optimizer) : optimizer_(std::move(optimizer)) {}  // NOLINT
  const std::string& name() const { return name_; }  // "" if it was not given by name
  const std::shared_ptr<Optimizer>& optimizer() const { return optimizer_; }  // null: by name

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
  const std::string& name() const { return name_; }        // "" if it was not given by name
  const std::optional<losses::Loss>& loss() const { return loss_; }      // empty: by name or none
  bool is_given() const { return loss_.has_value() || !name_.empty(); }  // false: none

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

  // Metric that is logged by its own name.
  MetricSpec(metrics::Metric metric)  // NOLINT
      : name_(metric.name()), metric_(std::move(metric)) {}
  // Metric that is logged as `name`; `direction` says which way it is better.
  MetricSpec(std::string name, metrics::Metric metric, Direction direction = Direction::kAuto)
      : name_(std::move(name)), metric_(std::move(metric)), direction_(direction) {}
  const std::string& name() const { return name_; }                         // that it is logged by
  const std::optional<metrics::Metric>& metric() const { return metric_; }  // empty: by name
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

// What outputs of a model have, by their names (layers::Functional with names).
template <typename T>
using ByOutput = std::map<std::string, T, std::less<>>;

// How Model::Compile sets training up, as keras.Model.compile.
struct CompileOptions {
  OptimizerSpec optimizer = "rmsprop";  // with Keras' default rate if by name
  // Of every output. What is minimised is the sum over the outputs.
  LossSpec loss{};
  std::vector<MetricSpec> metrics{};           // each sample counts once
  std::vector<MetricSpec> weighted_metrics{};  // samples count by their weights
  // Steps that are one call of the graph, with one call of the batch hooks: losses and weights are
  // those of single steps. With replicas or on other tasks steps are called one by one, and only
  // the hooks are fewer.
  int64_t steps_per_execution = 1;
  ReplicaLoss replica_loss = ReplicaLoss::kGlobalBatch;  // under a strategy only
  // Of single outputs, in addition to the above; InvalidArgument lists the outputs that there are.
  // An output that has no loss is not trained. A loss is multiplied by its weight, by default 1;
  // the "<output>_loss" that is logged is the loss before that.
  ByOutput<LossSpec> losses{};                         // in place of `loss`
  ByOutput<double> loss_weights{};                     // factors of the losses in the sum
  ByOutput<std::vector<MetricSpec>> output_metrics{},  // each sample counts once
      output_weighted_metrics{};                       // samples count by their weights
  // Steps look at every float that they compute. Where the loss or a gradient is not finite, the
  // weights stay as they are and the call ends with InvalidArgument, which names the node whose
  // value was the first that was not finite, and the line that made it. For finding such a node:
  // steps take longer.
  bool check_numerics = false;
  // Whether losses of ModelOptions::precision "mixed_float16" are scaled: the optimizer is wrapped
  // in LossScale, unless it is one. False: gradients below the range of a half are 0.
  bool auto_scale_loss = true;
};

// One tensor for each of a model's inputs, or of its outputs, samples along the first axis.
class Samples {
 public:
  Samples(Tensor x) : tensors_{std::move(x)} {}                 // NOLINT
  Samples(std::vector<Tensor> xs) : tensors_(std::move(xs)) {}  // NOLINT
  Samples(std::initializer_list<Tensor> xs) : tensors_(xs) {}   // several inputs or outputs
  std::span<const Tensor> tensors() const { return tensors_; }  // in the model's order

 private:
  std::vector<Tensor> tensors_;
};

// Samples that FitOptions::validation evaluates the model on.
struct ValidationData {
  Samples x;               // inputs
  Samples y;               // targets, one for each output
  Tensor sample_weight{};  // a number for each sample; not initialised: 1
};

// How Model::Fit trains, as keras.Model.fit.
struct FitOptions {
  // Default: 32, or what makes steps_per_epoch batches of the samples.
  std::optional<int64_t> batch_size{};
  // The number of the last epoch: epochs - initial_epoch are run.
  int64_t epochs = 1;
  int64_t initial_epoch = 0;  // number of the first epoch, from 0
  // Batches of an epoch. Given, the next epoch goes on in the data where the last one ended;
  // data that end within an epoch end it, with a warning that says what to change.
  std::optional<int64_t> steps_per_epoch{};
  // At most one of the three. The split is the last part of the samples, which are not trained on;
  // a data set has none.
  std::optional<ValidationData> validation{};
  std::optional<Dataset> validation_dataset{};     // batches, as those of Fit
  double validation_split = 0;                     // share of the samples, below 1; 0: none
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
  // A checkpoint that ModelCheckpoint has written of all of the training: goes on from there, as
  // BackupAndRestore would.
  std::string resume_from{};
  std::vector<Callback*> callbacks{};  // must outlive the call
  Verbose verbose = Verbose::kAuto;    // form of what is printed
};

// How Model::Evaluate goes through its samples.
struct EvaluateOptions {
  int64_t batch_size = 32;             // samples of a step; not looked at with a data set
  std::optional<int64_t> steps{};      // default: all batches
  Tensor sample_weight{};              // a number for each sample; not initialised: 1
  std::vector<Callback*> callbacks{};  // must outlive the call
  Verbose verbose = Verbose::kAuto;    // form of what is printed
};

// How Model::Predict goes through its samples.
struct PredictOptions {
  int64_t batch_size = 32;             // samples of a step; not looked at with a data set
  std::optional<int64_t> steps{};      // default: all batches
  std::vector<Callback*> callbacks{};  // must outlive the call
  Verbose verbose = Verbose::kSilent;  // form of what is printed
};

}  // namespace millrace

#endif  // MILLRACE_FIT_OPTIONS_H_
