// SPDX-License-Identifier: Apache-2.0
// Layers: functions over scopes together with the variables that they train. millrace/layers.h has
// those that there are; one of your own derives from Layer.
//
// A layer's variables are made where it is first called and used by every later call, so that one
// model can be built twice in a graph: as it is trained, and as it predicts.
#ifndef MILLRACE_LAYER_H_
#define MILLRACE_LAYER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/graph.h"
#include "millrace/initializers.h"
#include "millrace/math.h"
#include "millrace/partitioners.h"
#include "millrace/variables.h"

namespace millrace {

// A scalar that is added to the loss: of a weight, or of what a layer makes.
// "millrace/layer_parts.h" has those that there are.
using Regularizer = std::function<Expr(const Expr& x)>;
// What a weight becomes after each update.
using Constraint = std::function<Expr(const Expr& weight)>;

// One way through the layers of a model: what they add their nodes with, and what they have to say
// besides their results. Belongs to one graph. Copies share what was said. Not thread-safe.
class Pass {
 public:
  // Nodes are made through `scope`, variables through `variables` (by default through `scope`):
  // passes that are to share names of variables are given the same.
  Pass(const Scope& scope, bool training);
  // Pass with another scope for variables.
  Pass(const Scope& scope, const Scope& variables, bool training);

  const Scope& scope() const { return scope_; }                    // for nodes
  const Scope& variable_scope() const { return variable_scope_; }  // for variables
  // Whether dropout drops, batch normalization looks at the batch and moving averages move.
  bool training() const { return training_; }
  // Makes layers compute as one of Keras' dtype policies says: "float32", "mixed_bfloat16" or
  // "mixed_float16" (docs/training.md). Weights stay float32; layers get them, and their inputs, in
  // the smaller type. Before a layer is called; another name is InvalidArgument in the graph's
  // status.
  void SetPrecision(std::string_view policy,
                    std::source_location where = std::source_location::current());
  // Makes layers cut the tables that they make (Layer::Table), each as the partitioner says. Before
  // a layer is called.
  void SetPartitioner(Partitioner partitioner);
  // What a layer is given its inputs and weights in: kFloat, kBfloat16 or kHalf.
  DataType compute_type() const { return compute_type_; }

  // What a step of this pass runs besides what is fetched: updates of moving averages, of states.
  void AddUpdate(const Operation& update);
  std::span<const Operation> updates() const;  // in the order of AddUpdate
  // A scalar that is added to the model's loss: regularizers of weights and of activity. One of a
  // 16-bit type becomes a float.
  void AddLoss(const Output& loss);
  std::span<const Output> losses() const;  // scalars, in the order of AddLoss
  // Which steps of sequences count, bools [batch, steps]; not valid: all. Within a layer that of
  // its (first) input, and after its call that of what it made: a layer that makes or ends masks
  // says so here, those between leave it as it is. Outside, that of the last layer called.
  const Output& mask() const { return mask_; }
  void set_mask(const Output& mask) { mask_ = mask; }  // not valid: all steps count
  // Makes this the pass of one of several replicas, before a layer is called: `local` says what the
  // replica reads and changes in place of a weight or state, and whether training changes it by
  // gradients. Keys of random ops are those of `first`, which goes through the same layers before
  // (null: this one draws them), moved on by the replica's number.
  using LocalVariable = std::function<Variable(const Variable& variable, bool trained)>;
  // Sets this pass up for replica `number`, as LocalVariable says.
  void SetReplica(int number, LocalVariable local, const Pass* first);

  // What SumOverReplicas does in the pass of one of several replicas, before a layer is called.
  using SumFunction = std::function<Output(const Output& value)>;
  void SetSumOverReplicas(SumFunction sum);  // used by SumOverReplicas from then on
  // The sum of what all replicas of all workers bring, in their order, and its derivative that of
  // all their losses; in a pass by itself the value. All replicas must make the same calls.
  Output SumOverReplicas(const Output& value) const;

  // The mask of what a layer made in this pass, or of what it was set for.
  Output MaskOf(const Output& x) const;
  void SetMaskOf(const Output& x, const Output& mask);  // what MaskOf(x) then gives
  // What a model of several outputs has made, in the order of their names.
  void SetOutputs(std::vector<Output> outputs);
  std::span<const Output> outputs() const;  // of SetOutputs; empty: none were set

 private:
  friend class Layer;
  struct Shared;  // by all passes that come of one
  std::vector<Output> Cast(std::span<const Output> inputs, DataType dtype) const;

  Scope scope_;
  Scope variable_scope_;
  bool training_;
  bool one_scope_;         // for nodes and variables
  bool trainable_ = true;  // whether all layers around the one that is called are
  DataType compute_type_ = kFloat;
  Output mask_;
  std::shared_ptr<Shared> shared_;
};

// A layer by itself or of other layers. Belongs to the first graph that it is called in: a call in
// another one is FailedPrecondition in that graph's status. Not thread-safe.
class Layer {
 public:
  // "" takes the kind's name in snake_case, as Keras does; a model makes it unique ("dense_1").
  // `where` is the line that made it, which errors name.
  explicit Layer(std::string name, std::source_location where = std::source_location::current());
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }  // prefix of its variables and nodes
  // Before the first call.
  void set_name(std::string name) { name_ = std::move(name); }
  // As Keras calls it: "Dense", "BatchNormalization".
  virtual std::string kind() const = 0;

  // What the layer makes of one input. Its nodes and variables stand under its name; the graph's
  // status has what is wrong, with `where`.
  Output operator()(Pass& pass, const Output& x,
                    std::source_location where = std::source_location::current());
  // Of several inputs, such as a merge's or an attention's.
  Output operator()(Pass& pass, std::span<const Output> inputs,
                    std::source_location where = std::source_location::current());
  Output operator()(Pass& pass, std::initializer_list<Output> inputs,
                    std::source_location where = std::source_location::current()) {
    return (*this)(pass, std::span(inputs.begin(), inputs.size()), where);
  }

  // All variables in the order in which Keras lists them, and of those what is trained and what is
  // not; of a table that was cut (JoinParts) each part. Empty before the first call.
  std::vector<Variable> weights() const;
  std::vector<Variable> trainable_weights() const;      // empty if not trainable()
  std::vector<Variable> non_trainable_weights() const;  // all others of weights()
  // The weights and what else is kept between steps: seeds of dropout, states of stateful layers.
  std::vector<Variable> variables() const;
  // Elements of all weights.
  int64_t CountParams() const;
  // false: weights keep their values whatever is trained, and batch normalization predicts. Said
  // before the first call.
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }  // of the layers within too
  // A dtype policy for this layer and those within, whatever that of the pass is: "float32" for a
  // last layer whose predictions are to have all their digits. "": the pass's. Before a call.
  void set_precision(std::string policy) { precision_ = std::move(policy); }
  // The layers that this one is made of, empty for most.
  virtual std::vector<Layer*> layers() const { return {}; }
  // Of a model with several outputs, whose calls say them to Pass::SetOutputs; else none.
  virtual std::vector<std::string> output_names() const { return {}; }

  // What the last call made; unknown before.
  const PartialShape& output_shape() const { return output_shape_; }
  bool is_called() const { return variable_scope_.has_value(); }  // at least once
  // Brings the weights within their constraints: to be run after each update. Not valid if no
  // weight has one.
  Operation ApplyConstraints(const Scope& scope,
                             std::source_location where = std::source_location::current()) const;
  // "'dense_1' (Dense, made at net.cc:12)".
  std::string Description() const;

 protected:
  // Adds the nodes of one call through a pass whose scopes have the layer's name.
  virtual Output Call(Pass& pass, std::span<const Output> inputs, std::source_location where) = 0;
  // Whether what the layer makes has the mask that pass.mask() has after Call. Where not, it has
  // none.
  virtual bool supports_masking() const { return true; }
  // Whether Call can have its inputs and weights in this type, kBfloat16 or kHalf. Where not, it
  // has them in float32, and what it makes is cast to the type.
  virtual bool computes_in(DataType) const { return true; }
  // false: inputs of floats are not rounded to the smaller type first. So do layers made of layers,
  // which leave it to those, and layers whose inputs are numbers of things.
  void set_autocast(bool autocast) { autocast_ = autocast; }

  // Properties of a variable made by Weight.
  struct WeightOptions {
    initializers::Initializer initializer;  // first value
    Regularizer regularizer{};              // loss of the weight
    Constraint constraint{};                // applied after each update
    bool trainable = true;                  // false: no gradients, such as moving averages
    bool autocast = true;  // read in pass.compute_type(); false: as it is, such as a table's rows
  };
  // The variable of this name ("kernel"): made by the first call; the same one in every later call,
  // whose shape must be that of the first. Without a handle on an error.
  Variable Weight(Pass& pass, std::string_view name, const Shape& shape,
                  const WeightOptions& options, std::source_location where);
  // The same for a weight of which rows are taken by their numbers (LookupSharded): in the parts
  // that the pass' partitioner says when it is first made, all of which are weights of the layer.
  // Without parts on an error.
  ShardedVariable Table(Pass& pass, std::string_view name, const Shape& shape,
                        const WeightOptions& options, std::source_location where);
  // A variable that is not counted among the weights, such as a state.
  Variable State(Pass& pass, std::string_view name, const Shape& shape,
                 const initializers::Initializer& initializer, std::source_location where);
  // Whether this pass may change the weights: all layers around this one are trainable, and it is.
  bool is_trained(const Pass& pass) const { return pass.trainable_ && trainable_; }
  // A key of stateless random ops, another one in each step, from a seed of the layer's own.
  Output NextSeed(Pass& pass, initializers::Seed seed);
  // Of what the layer makes, for each sample of a batch; one over the batch's size of it is a loss.
  void set_activity_regularizer(Regularizer regularizer);
  // InvalidArgument in the graph's status, with the layer, its line and what made the input:
  // "layer 'dense' (...) takes <expected>, not [?,3,4] of 'flatten' (...)".
  void RecordBadInput(Pass& pass, const Output& input, std::string_view expected,
                      std::source_location where) const;
  // Names those that have none, each once: "dense", "dense_1", ... as a model does with its layers.
  static void NameLayers(std::span<Layer* const> layers);

 private:
  struct OwnWeight {
    std::string name;
    Variable variable;
    bool trainable;
    Regularizer regularizer;
    Constraint constraint;
    std::optional<ShardedVariable>
        whole{};  // of a table that was cut; `variable` is its first part
  };
  OwnWeight* FindWeight(Pass& pass, std::string_view name, const Shape& shape,
                        const WeightOptions& options, const Partitioner& partitioner,
                        std::source_location where);
  void AddRegularizer(Pass& pass, const OwnWeight& weight, const Variable& own,
                      const ShardedVariable* whole) const;
  static void AddVariables(const OwnWeight& weight, std::vector<Variable>* variables);
  bool Begin(const Pass& pass, std::span<const Output> inputs, std::source_location where);
  std::optional<DataType> PolicyOf(const Pass& pass, std::source_location where) const;
  Output Finish(Pass& outer, Pass& inner, const Output& y);
  void CollectWeights(bool trainable_only, std::vector<const OwnWeight*>* weights) const;
  void CollectStates(std::vector<Variable>* states) const;

  std::string name_;
  const std::source_location made_at_;
  bool trainable_ = true, autocast_ = true;
  std::string precision_;
  std::optional<Scope> variable_scope_;  // since the first call
  std::vector<OwnWeight> own_weights_;
  std::vector<std::pair<std::string, Variable>> own_states_;
  std::optional<initializers::SeedGenerator> seeds_;
  Regularizer activity_regularizer_;
  PartialShape output_shape_;
};

}  // namespace millrace

#endif  // MILLRACE_LAYER_H_
