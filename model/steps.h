// SPDX-License-Identifier: Apache-2.0
// The steps that the loops of a model run: its graph, its session, and the functions of training,
// testing and predicting in it. Below this lies where a step runs; the loops of fit.cc, evaluate.cc
// and predict.cc lie above and know of neither.
#ifndef MODEL_STEPS_H_
#define MODEL_STEPS_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "millrace/checkpoint.h"
#include "millrace/data.h"
#include "millrace/distributed_values.h"
#include "millrace/iterator_position.h"
#include "millrace/keras_optimizers.h"
#include "millrace/model.h"
#include "millrace/partitioners.h"
#include "millrace/strategy.h"
#include "model/builds.h"
#include "model/step_inputs.h"

namespace millrace::model {

class NumericChecks;  // model/numeric_checks.h

class Steps {
 public:
  Steps(std::shared_ptr<Layer> root, const ModelOptions& options, std::source_location where);

  Status Compile(CompileOptions options);
  bool is_compiled() const { return compiled_.has_value(); }
  int64_t steps_per_execution() const { return compiled_->steps_per_execution; }

  // Of a function that reads a data set.
  struct DataOf {
    std::size_t number = 0;     // in the list of data sets
    std::vector<Output> feeds;  // of the iterator's initializer: what KnownDataset::form has
    std::optional<Callable> begin;
    Tensor first_position;  // of the first walk of all, where a later data set begins
    int64_t owner = 0;      // the last one that has begun
  };
  // A prepared step: with and without results. Valid until the model is compiled again.
  struct Function {
    std::vector<Output> feeds;
    Operation done;
    std::vector<Output> fetches;  // predictions, or what the metrics say after the step
    // What this worker, and what each has been told when the step began; of one that trains on
    // several workers.
    Output own_notice, notices;
    DatasetIterator iterator;   // of a data set; not valid for what is fed
    DistributedIterator parts;  // of one that comes in parts, which are taken before each step
    int64_t count = 0;          // of its batches: as a cardinality
    int64_t walks = 0;          // how often the iterator was made to begin
    std::optional<Callable> with_results, alone, position, set_position, take;
    struct Execution {  // several steps as one call; executions.cc
      std::vector<Output> feeds;
      Output count;  // of the steps that were made
      std::optional<Callable> with_results, alone, read_count;
    };
    std::optional<Execution> execution;
    DataOf data;
  };
  // The function for batches like this one, its first axis apart; made, and new variables given
  // their initial values, when it is first asked for.
  StatusOr<Function*> FunctionFor(Kind kind, const Batch& like);
  // The same for the next element of a data set. `change` may add inputs; `key` is another for each
  // that does something else.
  using ChangeInputs = std::function<Status(const Scope& scope, StepInputs* inputs)>;
  StatusOr<Function*> FunctionFor(Kind kind, const Dataset& dataset, const std::string& key,
                                  const ChangeInputs& change);
  // Takes the function's iterator to the begin of its data set.
  Status BeginData(Function* function);
  // The weights alone.
  Status Build(const std::vector<Model::InputSpec>& inputs);

  // Around a loop over batches; a callback may begin another one within it. FailedPrecondition for
  // a callback that does so for ever.
  Status BeginLoop();
  void EndLoop() { --loops_; }

  // One step. `logs`, if it is not null, gets the results of all metrics after it.
  Status Run(Function* function, std::span<const Tensor> feeds, Logs* logs);
  StatusOr<std::vector<Tensor>> Predict(Function* function, std::span<const Tensor> feeds);
  // Whether several steps of a function are one call of the graph.
  bool HasExecutions(const Function& function) const;
  // `steps` steps as one call: of what is fed, the next `batch_size` rows each. *done is how many
  // there were, also where one of them failed.
  Status Execute(Kind kind, Function* function, std::span<const Tensor> feeds, int64_t batch_size,
                 int64_t steps, Logs* logs, int64_t* done);
  // Takes the next batch of data that come in parts. OutOfRange if there is none for any worker.
  Status Take(Function* function);
  // What the metrics say now; of the kind of step that ran last.
  StatusOr<Logs> Results();
  Status ResetMetrics();
  // Rows of the steps since then; -1 where other replicas have seen some, and of no step at all.
  int64_t RowsSeen();
  // Weights become what the optimizer has averaged for them, if it does.
  Status FinishTraining();

  std::vector<Variable> weights() const {
    return root_ != nullptr ? root_->weights() : std::vector<Variable>();
  }
  StatusOr<std::vector<Tensor>> GetWeights();
  Status SetWeights(std::span<const Tensor> values);
  // All variables of the graph by name: what the layers, the optimizer and the metrics have.
  StatusOr<std::map<std::string, Tensor>> ReadVariables();
  // `values` has more than these. InvalidArgument names what is missing or does not fit; nothing
  // has changed then.
  Status CheckVariables(const std::map<std::string, Tensor>& values) const;
  Status WriteVariables(const std::map<std::string, Tensor>& values);
  // The signal of the notice that Fit heeds after the last step of training: KnowsNotices.
  int notice() const;
  // A number of every worker, in their order: a step of all of them.
  StatusOr<std::vector<int64_t>> OfAllWorkers(int64_t value);
  // Where the function's iterator is (millrace/iterator_position.h).
  StatusOr<Tensor> PositionOf(Function* function);
  Status SetPositionOf(Function* function, const Tensor& position);
  Status SaveWeights(const std::string& prefix, WeightsFormat format);
  Status SaveWeightsAsync(const std::string& prefix);
  Status SyncWeights();
  Status LoadWeights(const std::string& prefix);
  StatusOr<double> GetLearningRate();
  Status SetLearningRate(double rate);
  Direction DirectionOf(std::string_view name) const;

  // The number of classes if y of this output has class numbers that a loss indexes with; -1 if
  // not.
  int64_t num_classes(std::size_t output) const {
    return output < num_classes_.size() ? num_classes_[output] : -1;
  }
  // Whether a label that is no class is a mistake: a loss that was named leaves out none.
  bool checks_labels(std::size_t output) const {
    return compiled_ && compiled_->losses[output].has_defaults;
  }
  // As layers::Functional has them; {""} for a model with one.
  const std::vector<std::string>& output_names() const { return output_names_; }
  Graph& graph() { return graph_; }
  Session* session() { return session_ ? &*session_ : nullptr; }
  Layer* root() const { return root_.get(); }
  Optimizer* optimizer() const { return compiled_ ? compiled_->optimizer.get() : nullptr; }
  const ModelOptions& options() const { return options_; }
  Strategy& strategy() const { return *strategy_; }

 private:
  struct Measure {
    std::string name;      // in the logs
    std::string known_as;  // the name of a metric that is chosen by shapes
    std::optional<metrics::Metric> metric;
    Direction direction = Direction::kAuto;
    bool is_weighted = false;
    std::size_t output = 0;
    bool is_loss = false;  // the mean of the output's loss
  };
  struct OutputLoss {
    std::optional<losses::Loss> loss;
    bool has_defaults = false;
    float weight = 1;
  };
  struct Compiled {
    std::shared_ptr<Optimizer> optimizer;
    std::vector<OutputLoss> losses;  // of each output
    std::vector<Measure> measures;   // the first is the loss
    int64_t steps_per_execution = 1;
    ReplicaLoss replica_loss = ReplicaLoss::kGlobalBatch;
    bool check_numerics = false;
  };
  struct Predicted {  // one output
    Output y_pred, mask;
    Output loss;  // not weighed; not valid where there is none
  };
  struct Passed {  // what one pass through the layers made
    std::vector<Predicted> outputs;
    Output added_loss;  // of layers; not valid where there is none
    Output loss;        // of all
    std::vector<Operation> updates;
  };
  struct Shard {  // what one replica has of a batch
    StepInputs inputs;
    Output rows;  // how many, a float scalar
  };
  class ReplicaViews;
  struct Replicas {  // the passes of all replicas of this process
    std::vector<Scope> scopes;
    std::vector<Shard> shards;
    std::vector<Passed> passed;
    Output rows;                        // of the global batch, a float scalar
    bool depend_on_each_other = false;  // the loss of one on what another's layers compute
  };

  // A data set that functions were made for. One that is gone leaves its nodes to the next that is
  // made in the same way, so that programs may make data sets again and again.
  struct KnownDataset {
    std::weak_ptr<const DatasetStage> stage;
    std::optional<DatasetForm> form;  // if others may take its place
    int64_t owner = 0;                // how many have done so
  };
  std::size_t NumberOf(const Dataset& dataset);
  bool RunsHere() const;

  Status MakeInputs(const std::vector<Model::InputSpec>& inputs);
  StatusOr<StepInputs> InputsFor(Kind kind, const Batch& like);
  Status CheckLike(const Output& placeholder, const Tensor& value, std::string_view what) const;
  StatusOr<StepInputs> InputsFor(Kind kind, const Dataset& dataset, Function* made);
  Status CheckComponents(const Dataset& dataset);
  StepInputs InputsOf(Kind kind, const Scope& scope, std::span<const Output> components);
  StatusOr<Function> MakeFunction(Kind kind, const StepInputs& inputs);
  // Counts a function that was made, and says so if it is not the first of its kind.
  void TellOfBuild(Kind kind, const Builds::Signature& signature);
  StatusOr<Passed> GoThrough(Kind kind, const StepInputs& inputs, Pass* pass);
  Status AddDataLoss(const Scope& scope, const StepInputs& inputs, std::size_t output,
                     Passed* passed);
  StatusOr<OutputLoss> LossOf(const CompileOptions& options, const std::string& output) const;
  Status AddMeasures(const std::vector<MetricSpec>& specs, bool is_weighted, std::size_t output,
                     Compiled* compiled) const;
  Status CheckOutputNames(const CompileOptions& options) const;
  Status CheckPrecision() const;
  Status ScaleLosses(std::shared_ptr<Optimizer>* optimizer) const;
  Status MakeExecution(Kind kind, Function* function);
  void AddInputs(const StepInputs& inputs, NumericChecks* checks) const;
  // What fails where the loss or a gradient is not finite, if that is to be checked: NumericChecks.
  Operation AddCheck(const Scope& scope, const NumericChecks& checks, std::vector<Output> decisive,
                     std::span<const GradientAndVariable> gradients,
                     std::span<const Operation> updates) const;
  StatusOr<Operation> MeasureLoss(std::size_t measure, const Scope& scope, const Output& loss,
                                  const Output& rows);
  StatusOr<Operation> MeasureOutput(const Scope& scope, const Scope& measures, Measure* measure,
                                    const StepInputs& inputs, const Predicted& predicted);
  // After `previous`, if it is valid: sums grow in one order.
  StatusOr<std::vector<Operation>> Measures(const Scope& scope, const StepInputs& inputs,
                                            const Passed& passed, const Operation& previous);
  StatusOr<std::vector<GradientAndVariable>> GradientsOf(const Scope& scope, const Output& loss,
                                                         std::vector<Variable> variables);
  StatusOr<Operation> Apply(const Scope& scope, std::span<const GradientAndVariable> gradients,
                            std::vector<Operation> before);

  // replicas.cc: the same for several replicas.
  StatusOr<Function> MakeReplicated(Kind kind, const StepInputs& inputs);
  std::vector<StepInputs> SplitInputs(const StepInputs& inputs, const Scope& scope, bool alone);
  Output SumThatHasADerivative(ReplicaContext* context, const Output& value);
  StatusOr<Replicas> GoThroughAll(Kind kind, const StepInputs& inputs, const Scope& scope,
                                  ReplicaViews* views);
  std::vector<Output> Objectives(const Scope& scope, const Replicas& replicas, Output* measured);
  Output CountsOf(const Scope& scope, const Shard& shard, const Passed& passed, std::size_t output);
  void AddDataObjectives(const Scope& scope, const Replicas& replicas, std::size_t output,
                         std::vector<Output>* exact, std::vector<Output>* equal);
  StatusOr<std::vector<std::vector<GradientAndVariable>>> GradientsOfReplicas(
      const Scope& scope, const Replicas& replicas, std::span<const Output> objectives,
      ReplicaViews* views);
  StatusOr<std::vector<GradientAndVariable>> SumOfGradients(const Scope& scope,
                                                            const Replicas& replicas,
                                                            std::span<const Output> objectives,
                                                            ReplicaViews* views,
                                                            Function* function);
  StatusOr<Operation> TakeStep(const Scope& scope, const Replicas& replicas,
                               std::span<const Output> objectives,
                               std::span<const Operation> measured, const NumericChecks& checks,
                               ReplicaViews* views, Function* function);
  // `changed`, and what gives weights that it may have changed to their copies after it.
  std::vector<Operation> UpdateMirrors(const Scope& scope, const Operation& changed);
  std::vector<Output> ReadResultsOfAll(const Scope& scope, std::vector<Operation>* after);
  Status ShareInitialValues(std::span<const Variable> fresh);

  // notices.cc: `gradients` get one more, of what this worker has been told.
  void AddNotice(const Scope& scope, std::vector<PerReplica>* gradients, Function* function);
  Tensor OwnNotice() const;
  Status HearNotices(const Tensor& notices);

  Scope RootScope() { return strategy_->RootScope(graph_.root()); }
  std::vector<Output> ReadResults(const Scope& after);
  std::vector<ShardedVariable> AllVariables() const;
  // What is read, or assigned, of a variable of JoinParts.
  Output WholeOf(const Scope& scope, const ShardedVariable& variable) const;
  Operation AssignTo(const Scope& scope, const ShardedVariable& variable,
                     const Output& value) const;
  StatusOr<Checkpoint*> WeightsFile();
  Status Start();  // the session, and initial values of new variables
  StatusOr<std::vector<Variable>> Initialize(std::initializer_list<const char*> collections);
  Status FillLogs(std::span<const Tensor> results, Logs* logs) const;
  StatusOr<Callable> MakeCallable(std::span<const Output> feeds, std::span<const Output> fetches,
                                  std::span<const Operation> targets);
  optimizers::KerasOptimizer* keras_optimizer() const;

  const std::shared_ptr<Layer> root_;
  const ModelOptions options_;
  const std::source_location where_;
  const std::shared_ptr<Strategy> strategy_;
  Graph graph_;
  Scope variables_, measures_;
  std::optional<Session> session_;
  std::optional<Compiled> compiled_;
  std::vector<Output> x_, x_cast_;
  std::map<std::string, Output> labels_;  // placeholders by type and shape
  std::map<int, Output> sample_weights_;  // by rank
  std::map<std::string, Function> functions_;
  Builds builds_;
  std::vector<KnownDataset> datasets_;  // their functions are kept, by their places here
  std::set<std::string, std::less<>> initialized_;
  std::map<const Optimizer*, Operation> finalize_;
  std::map<std::string, Variable, std::less<>> copies_;  // of what replicas change, by their names
  const std::vector<std::string> output_names_;
  std::vector<int64_t> num_classes_;  // of each output
  std::optional<Callable> reset_, results_, set_weights_, set_rate_, get_weights_, of_all_workers_;
  // For so many variables as there are names.
  std::vector<std::string> variable_names_;
  std::optional<Callable> read_variables_, write_variables_;
  std::unique_ptr<Checkpoint> weights_file_;
  std::vector<Tensor> fetched_;  // keeps its memory from step to step
  int loops_ = 0;                // that are under way, within each other
  int notice_of_all_ = 0;        // with several workers: of the last step of training
};

}  // namespace millrace::model

#endif  // MODEL_STEPS_H_
