// SPDX-License-Identifier: Apache-2.0
// Models: layers together with how they are trained, evaluated and asked.
//
//   Model model(layers::Sequential({layers::Dense(128, {.activation = "relu"}),
//                                   layers::Dense(10)}));
//   Status status =
//       model.Compile({.optimizer = "adam", .loss = "mse", .metrics = {"mae"}});
//   StatusOr<History> history = model.Fit(x, y, {.epochs = 5});
//
// docs/fit.md is the guide; what Keras calls it stands at its end.
#ifndef MILLRACE_MODEL_H_
#define MILLRACE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "millrace/callbacks.h"
#include "millrace/data.h"
#include "millrace/fit_options.h"
#include "millrace/graph.h"
#include "millrace/layer.h"
#include "millrace/optimizers.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "millrace/training_run.h"
#include "millrace/variables.h"

namespace millrace {

class Strategy;  // millrace/strategy.h

struct ModelOptions {
  std::string name = "model";  // in messages about it
  // Of initial weights, random ops and the order of samples; 0: weights and random ops are
  // unseeded.
  int64_t seed = 0;
  SessionOptions session{};  // of the session that the model makes
  // Where replicas of the model run (docs/strategies.md); null: one replica. Every batch is then
  // the global one, of which each replica gets its part. With several workers all must make the
  // same calls; Predict alone concerns each by itself.
  std::shared_ptr<Strategy> strategy{};
  // What layers compute in, by the names of Keras' dtype policies: "float32", "mixed_bfloat16" or
  // "mixed_float16", with which Compile wraps the optimizer in LossScale. Weights stay float32, and
  // files of them, and exported models, are those of a float32 model; predictions are of the
  // smaller type (docs/training.md). InvalidArgument of the first call for another name.
  std::string precision = "float32";
};

// How weights are found again in a file: by the way to them through the layers, or by their names.
enum class WeightsFormat { kObjects, kNames };

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
  // Model of these layers; makes no nodes yet. `where` is what errors of building name.
  explicit Model(std::shared_ptr<Layer> root, const ModelOptions& options = {},
                 std::source_location where = std::source_location::current());
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Says how to train; again: anew, with optimizer and metrics of no history, and the weights that
  // there are. InvalidArgument lists the names if one is not known.
  Status Compile(CompileOptions options);

  // Trains. `y` has a tensor for each output of the model, in their order. FailedPrecondition
  // before Compile; InvalidArgument for what does not fit together.
  StatusOr<History> Fit(const Samples& x, const Samples& y, const FitOptions& options = {});
  // Loss and metrics over samples, in the order of their names.
  StatusOr<Logs> Evaluate(const Samples& x, const Samples& y, const EvaluateOptions& options = {});
  // Row i of the result belongs to row i of x. InvalidArgument if the model has several outputs.
  StatusOr<Tensor> Predict(const Samples& x, const PredictOptions& options = {});
  // The same for each output, in their order. OnPredictBatchEnd sees the first.
  StatusOr<std::vector<Tensor>> PredictOutputs(const Samples& x,
                                               const PredictOptions& options = {});

  // The same with a data set, whose elements are batches: the model's inputs (one, unless Build
  // said how many), a y for each output, and weights of samples, as far as there are any; Predict
  // leaves out what is behind the inputs. Steps read it in the graph and are fed nothing; every
  // epoch goes through it once. Options of batch sizes, order and sample weights are not looked at:
  // the data set says those. InvalidArgument for one without an end and without a number of steps.
  StatusOr<History> Fit(const Dataset& batches, const FitOptions& options = {});
  // Loss and metrics over the batches.
  StatusOr<Logs> Evaluate(const Dataset& batches, const EvaluateOptions& options = {});
  // Results of all batches, one behind the other.
  StatusOr<Tensor> Predict(const Dataset& batches, const PredictOptions& options = {});
  // The same for each output, in their order.
  StatusOr<std::vector<Tensor>> PredictOutputs(const Dataset& batches,
                                               const PredictOptions& options = {});

  // One step on all samples given, and what loss and metrics are of these alone.
  StatusOr<Logs> TrainOnBatch(const Samples& x, const Samples& y, const Tensor& sample_weight = {});
  // Loss and metrics of these samples; weights stay as they are.
  StatusOr<Logs> TestOnBatch(const Samples& x, const Samples& y, const Tensor& sample_weight = {});
  // Results for these samples, row i for row i of x.
  StatusOr<Tensor> PredictOnBatch(const Samples& x);
  // As Fit does before every epoch, and Evaluate before its samples.
  Status ResetMetrics();

  // Makes weights without data: a type and shape, first axis -1, for each input.
  struct InputSpec {
    PartialShape shape;       // with the batch as first axis, -1
    DataType dtype = kFloat;  // of what is fed
  };
  Status Build(const std::vector<InputSpec>& inputs);  // one for each input, in their order
  // Layers, their shapes and how many numbers their weights have, as layers::Summary.
  std::string Summary() const;

  // Empty before the model has seen data or Build was called.
  std::vector<Variable> weights() const;
  // Values in the order of weights(), parts of a table joined (JoinParts of
  // millrace/partitioners.h). InvalidArgument names a weight whose shape differs.
  StatusOr<std::vector<Tensor>> GetWeights();
  Status SetWeights(std::span<const Tensor> values);  // in the same order
  // Writes the weights to a checkpoint of this prefix: by the objects that have them, as stock
  // TensorFlow's Checkpoint reads them (docs/saving.md), or by their names. FailedPrecondition if
  // there are none yet. Of several workers all may save, or the chief alone (WorkerPrefix of
  // millrace/checkpoint_layout.h).
  Status SaveWeights(const std::string& prefix, WeightsFormat format = WeightsFormat::kObjects);
  // By the objects, and returns as soon as it has the values: a thread writes. Waits for the write
  // before, whose error it returns without saving anything. Workers that are not the chief do
  // nothing. SyncWeights waits; the error of the write, once.
  Status SaveWeightsAsync(const std::string& prefix);
  Status SyncWeights();  // OK if there is nothing to wait for
  // Of either format, or of another checkpoint that has the weights by their names. NotFound if
  // there is no such checkpoint, InvalidArgument for another type or shape, DataLoss for damaged
  // files: nothing has changed then. FailedPrecondition names a weight that is not in it; the
  // others have their values then.
  Status LoadWeights(const std::string& prefix);

  // FailedPrecondition before training was prepared (within Fit it is), and for a schedule.
  StatusOr<double> GetLearningRate();
  Status SetLearningRate(double rate);  // from the next step on; same errors
  // Of a value in the logs; kAuto if no metric of the model is called so.
  Direction DirectionOf(std::string_view name) const;

  // Set by callbacks: training ends after this batch. Reset by Fit.
  bool stop_training() const { return stop_training_; }
  void set_stop_training(bool stop) { stop_training_ = stop; }  // true: ends Fit after this batch

  // The call of Fit that is under way, for its callbacks; null if there is none.
  TrainingRun* training_run() const;

  const std::string& name() const;  // ModelOptions::name
  Layer* root() const;              // the layer that the model was made with
  Optimizer* optimizer() const;     // null before Compile
  // Nodes may be added, but for variables that training is to change.
  Graph& graph();
  Session* session();          // null before the model has seen data or Build was called
  Strategy& strategy() const;  // ModelOptions::strategy, or the default one

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
  bool stop_training_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_MODEL_H_
