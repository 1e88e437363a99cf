// SPDX-License-Identifier: Apache-2.0
#include "millrace/layer.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/strings.h"
#include "model/layers/layer_util.h"

namespace millrace {

// ---- Pass --------------------------------------------------------------------------

struct Pass::Shared {
  using Key = std::pair<const Node*, int>;
  static Key KeyOf(const Output& x) { return {x.op().node(), x.index()}; }

  std::vector<Operation> updates;
  std::vector<Output> losses, outputs;
  std::map<Key, Output> masks;
  std::map<Key, std::string> makers;  // what layer made an output
  std::set<const Node*> regularized;  // variables
  bool is_mixed = false;              // whether any layer computes in a smaller type than float32
  // Of one of several replicas.
  int replica = 0;
  LocalVariable local;
  SumFunction sum;
  Partitioner partitioner;
  std::shared_ptr<Shared> first;
  std::map<const Layer*, std::vector<Output>> keys;  // that were drawn, in order
  std::map<const Layer*, std::size_t> keys_used;     // of those of the first

  Variable Local(const Variable& v, bool trained) const {
    return local && v.handle.valid() ? local(v, trained) : v;
  }
};

Pass::Pass(const Scope& scope, bool training) : Pass(scope, scope, training) { one_scope_ = true; }

Pass::Pass(const Scope& scope, const Scope& variables, bool training)
    : scope_(scope),
      variable_scope_(variables),
      training_(training),
      one_scope_(false),
      shared_(std::make_shared<Shared>()) {}

void Pass::AddUpdate(const Operation& update) { shared_->updates.push_back(update); }
std::span<const Operation> Pass::updates() const { return shared_->updates; }
void Pass::AddLoss(const Output& loss) {
  shared_->losses.push_back(
      layers::IsSmallFloat(loss.dtype()) ? layers::CastTo(scope_, loss, kFloat) : loss);
}
std::span<const Output> Pass::losses() const { return shared_->losses; }

void Pass::SetOutputs(std::vector<Output> outputs) { shared_->outputs = std::move(outputs); }
std::span<const Output> Pass::outputs() const { return shared_->outputs; }

void Pass::SetPrecision(std::string_view policy, std::source_location where) {
  const StatusOr<DataType> type = layers::ComputeTypeOf(policy);
  if (!type.ok()) return scope_.RecordError(type.status(), where);
  compute_type_ = *type;
  shared_->is_mixed = shared_->is_mixed || compute_type_ != kFloat;
}

void Pass::SetReplica(int number, LocalVariable local, const Pass* first) {
  shared_->replica = number;
  shared_->local = std::move(local);
  shared_->first = first != nullptr ? first->shared_ : nullptr;
}

void Pass::SetSumOverReplicas(SumFunction sum) { shared_->sum = std::move(sum); }

void Pass::SetPartitioner(Partitioner partitioner) {
  shared_->partitioner = std::move(partitioner);
}

Output Pass::SumOverReplicas(const Output& value) const {
  return shared_->sum ? shared_->sum(value) : value;
}

Output Pass::MaskOf(const Output& x) const {
  const auto it = shared_->masks.find(Shared::KeyOf(x));
  return it == shared_->masks.end() ? Output() : it->second;
}
void Pass::SetMaskOf(const Output& x, const Output& mask) {
  shared_->masks[Shared::KeyOf(x)] = mask;
}

// Floats among the inputs in this type, with their masks and makers.
std::vector<Output> Pass::Cast(std::span<const Output> inputs, DataType dtype) const {
  std::vector<Output> cast(inputs.begin(), inputs.end());
  for (Output& x : cast) {
    if (!x.valid() || !IsFloating(x.dtype()) || x.dtype() == dtype) continue;
    const Shared::Key before = Shared::KeyOf(x);
    x = layers::CastTo(scope_, x, dtype);
    if (!x.valid()) continue;
    const auto mask = shared_->masks.find(before);
    if (mask != shared_->masks.end()) shared_->masks[Shared::KeyOf(x)] = mask->second;
    const auto maker = shared_->makers.find(before);
    if (maker != shared_->makers.end()) shared_->makers[Shared::KeyOf(x)] = maker->second;
  }
  return cast;
}

// ---- Layer -------------------------------------------------------------------------

Layer::Layer(std::string name, std::source_location where)
    : name_(std::move(name)), made_at_(where) {}

std::string Layer::Description() const {
  return StrCat("'", name_.empty() ? layers::SnakeCase(kind()) : name_, "' (", kind(), ", made at ",
                layers::PlaceOf(made_at_), ")");
}

bool Layer::Begin(const Pass& pass, std::span<const Output> inputs, std::source_location where) {
  const Scope& scope = pass.scope();
  if (!scope.status().ok()) return false;
  if (variable_scope_ && variable_scope_->graph() != scope.graph()) {
    scope.RecordError(
        errors::FailedPrecondition("layer ", Description(),
                                   " belongs to the graph that it was first called in: make "
                                   "another layer for this graph"),
        where);
    return false;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].valid()) continue;
    scope.RecordError(errors::InvalidArgument("input ", i, " of layer ", Description(),
                                              " is not a valid output: the call that should have "
                                              "made it failed"),
                      where);
    return false;
  }
  if (name_.empty()) name_ = layers::SnakeCase(kind());
  return true;
}

// The layer's own policy, or the pass's; none, with an error, for an unknown name.
std::optional<DataType> Layer::PolicyOf(const Pass& pass, std::source_location where) const {
  if (precision_.empty()) return pass.compute_type_;
  const StatusOr<DataType> type = layers::ComputeTypeOf(precision_);
  if (type.ok()) return *type;
  pass.scope().RecordError(
      WithMessage(type.status(), StrCat("layer ", Description(), ": ", Message(type.status()))),
      where);
  return std::nullopt;
}

Output Layer::operator()(Pass& pass, const Output& x, std::source_location where) {
  return (*this)(pass, std::span(&x, 1), where);
}

Output Layer::operator()(Pass& pass, std::span<const Output> inputs, std::source_location where) {
  if (!Begin(pass, inputs, where)) return Output();
  const std::optional<DataType> policy = PolicyOf(pass, where);
  if (!policy) return Output();
  const Scope scope = pass.scope().CalledFrom(where).Named(name_);
  const bool first = !variable_scope_;
  const bool one_scope = first && pass.one_scope_;
  if (first) {
    const Scope variables =
        one_scope ? scope : pass.variable_scope().CalledFrom(where).Named(name_);
    variable_scope_ = variables.WithoutControlDependencies();
  }
  Pass inner = pass;
  inner.scope_ = scope;
  inner.variable_scope_ = *variable_scope_;
  inner.one_scope_ = one_scope;
  inner.trainable_ = pass.trainable_ && trainable_;
  inner.mask_ = inputs.empty() ? Output() : pass.MaskOf(inputs[0]);
  inner.compute_type_ = *policy == kFloat || computes_in(*policy) ? *policy : kFloat;
  pass.shared_->is_mixed = pass.shared_->is_mixed || *policy != kFloat;
  std::vector<Output> cast(inputs.begin(), inputs.end());
  if (pass.shared_->is_mixed) {
    if (autocast_) cast = inner.Cast(cast, *policy);
    if (inner.compute_type_ != *policy) cast = inner.Cast(cast, kFloat);
  }
  Output y;
  const Status called = Guarded([&] {
    y = Call(inner, cast, where);
    return OkStatus();
  });
  if (!called.ok()) {
    scope.RecordError(WithMessage(called, StrCat("layer ", Description(), ": ", Message(called))),
                      where);
  }
  if (!scope.status().ok()) return Output();
  if (!y.valid()) {
    scope.RecordError(errors::Internal("layer ", Description(), " made no output"), where);
    return Output();
  }
  if (inner.compute_type_ != *policy && IsFloating(y.dtype())) {
    y = layers::CastTo(scope, y, *policy);
  }
  return Finish(pass, inner, y);
}

Output Layer::Finish(Pass& outer, Pass& inner, const Output& y) {
  output_shape_ = y.shape();
  outer.mask_ = supports_masking() ? inner.mask_ : Output();
  inner.SetMaskOf(y, outer.mask_);
  inner.shared_->makers[Pass::Shared::KeyOf(y)] = Description();
  if (activity_regularizer_) {
    const Scope s = inner.scope().Named("ActivityRegularizer");
    const bool is_small = layers::IsSmallFloat(y.dtype());
    Expr loss = activity_regularizer_(Expr(s, is_small ? layers::CastTo(s, y, kFloat) : y));
    if (!output_shape_.has_rank() || output_shape_.rank() > 0) {
      const Expr batch(
          s, ops::StridedSlice(s, ops::Shape(s, y), {0}, {1}, {1}, {.shrink_axis_mask = 1}));
      loss = loss.DivNoNan(batch.Cast(loss.dtype()));
    }
    inner.AddLoss(loss);
  }
  return y;
}

void Layer::CollectWeights(bool trainable_only, std::vector<const OwnWeight*>* weights) const {
  if (trainable_only && !trainable_) return;
  for (const bool trainable : {true, false}) {
    if (trainable_only && !trainable) continue;
    for (const OwnWeight& w : own_weights_) {
      if (w.trainable != trainable) continue;
      if (std::find(weights->begin(), weights->end(), &w) == weights->end()) weights->push_back(&w);
    }
  }
  for (const Layer* layer : layers()) layer->CollectWeights(trainable_only, weights);
}

void Layer::CollectStates(std::vector<Variable>* states) const {
  const auto add = [&](const Variable& v) {
    const bool known = std::any_of(states->begin(), states->end(),
                                   [&](const Variable& other) { return other.handle == v.handle; });
    if (!known) states->push_back(v);
  };
  if (seeds_) add(seeds_->state());
  for (const auto& [name, variable] : own_states_) add(variable);
  for (const Layer* layer : layers()) layer->CollectStates(states);
}

void Layer::AddVariables(const OwnWeight& weight, std::vector<Variable>* variables) {
  if (!weight.whole) return variables->push_back(weight.variable);
  for (const VariablePart& part : weight.whole->parts) variables->push_back(part.variable);
}

std::vector<Variable> Layer::weights() const {
  std::vector<const OwnWeight*> all;
  CollectWeights(/*trainable_only=*/false, &all);
  std::vector<Variable> variables;
  for (const OwnWeight* w : all) AddVariables(*w, &variables);
  return variables;
}

std::vector<Variable> Layer::trainable_weights() const {
  std::vector<const OwnWeight*> all;
  CollectWeights(/*trainable_only=*/true, &all);
  std::vector<Variable> variables;
  for (const OwnWeight* w : all) AddVariables(*w, &variables);
  return variables;
}

std::vector<Variable> Layer::non_trainable_weights() const {
  std::vector<const OwnWeight*> all, trained;
  CollectWeights(/*trainable_only=*/false, &all);
  CollectWeights(/*trainable_only=*/true, &trained);
  std::vector<Variable> variables;
  for (const OwnWeight* w : all) {
    if (std::find(trained.begin(), trained.end(), w) == trained.end()) {
      AddVariables(*w, &variables);
    }
  }
  return variables;
}

std::vector<Variable> Layer::variables() const {
  std::vector<Variable> all = weights();
  CollectStates(&all);
  return all;
}

int64_t Layer::CountParams() const {
  int64_t count = 0;
  for (const Variable& v : weights()) count += v.shape().AsShape().value_or(Shape()).num_elements();
  return count;
}

Operation Layer::ApplyConstraints(const Scope& outer, std::source_location where) const {
  std::vector<const OwnWeight*> all;
  CollectWeights(/*trainable_only=*/true, &all);
  const Scope scope = outer.CalledFrom(where);
  std::vector<Operation> assigned;
  for (const OwnWeight* w : all) {
    if (!w->constraint) continue;
    if (w->whole) {
      const Expr now(scope, ReadSharded(scope, *w->whole));
      assigned.push_back(AssignSharded(scope, *w->whole, w->constraint(now)));
      continue;
    }
    const Scope beside = scope.ColocateWith(w->variable.handle);
    const Output now = layers::ReadNow(beside, w->variable);
    assigned.push_back(Assign(scope, w->variable, w->constraint(Expr(beside, now)).output()));
  }
  return assigned.empty() ? Operation() : Group(scope.WithOpName("constraints"), assigned);
}

// That of this name, made if there is none; null with an error in the graph's status.
Layer::OwnWeight* Layer::FindWeight(Pass& pass, std::string_view name, const Shape& shape,
                                    const WeightOptions& options, const Partitioner& partitioner,
                                    std::source_location where) {
  const auto it = std::find_if(own_weights_.begin(), own_weights_.end(),
                               [&](const OwnWeight& w) { return w.name == name; });
  if (it != own_weights_.end()) {
    const PartialShape known = it->whole ? PartialShape(it->whole->shape) : it->variable.shape();
    if (known.IsCompatibleWith(shape)) return &*it;
    pass.scope().RecordError(
        errors::InvalidArgument("layer ", Description(), " needs a ", name, " of shape ",
                                shape.DebugString(), " for this input, and has one of shape ",
                                known.DebugString(), " since its first call"),
        where);
    return nullptr;
  }
  const auto dims = shape.dims();
  // Sizes are int32 in the graph.
  if (!shape.is_valid() || std::any_of(dims.begin(), dims.end(), [](int64_t dim) {
        return dim > std::numeric_limits<int32_t>::max();
      })) {
    pass.scope().RecordError(
        errors::InvalidArgument("layer ", Description(), " needs a ", name, " of [",
                                StrJoin(std::vector<int64_t>(dims.begin(), dims.end()), ","),
                                "] numbers, which is more than there can be"),
        where);
    return nullptr;
  }
  const bool trainable = options.trainable && pass.trainable_ && trainable_;
  const VariableOptions how{.trainable = trainable};
  OwnWeight made{std::string(name),   Variable(),         trainable,
                 options.regularizer, options.constraint, std::nullopt};
  if (partitioner) {
    // The same values as those of one variable.
    const Scope s = variable_scope_->CalledFrom(where);
    const Output value = options.initializer(
        s.WithoutControlDependencies().Named(StrCat(name, "/Initializer")), shape);
    made.whole = MakeShardedVariable(s, name, value, partitioner, how, where);
    if (!pass.scope().status().ok() || made.whole->parts.empty()) return nullptr;
    made.variable = made.whole->parts[0].variable;
  } else {
    made.variable = MakeVariable(*variable_scope_, name, shape, options.initializer, how, where);
  }
  if (!made.variable.handle.valid()) return nullptr;
  own_weights_.push_back(std::move(made));
  return &own_weights_.back();
}

// Once in a step, of what this pass sees of the weight.
void Layer::AddRegularizer(Pass& pass, const OwnWeight& weight, const Variable& own,
                           const ShardedVariable* whole) const {
  const bool is_first = pass.shared_->regularized.insert(weight.variable.handle.op().node()).second;
  if (!is_first || !weight.regularizer || !weight.trainable) return;
  const Scope s = pass.scope().Named(StrCat(weight.name, "/Regularizer"));
  pass.AddLoss(weight.regularizer(Expr(s, whole == nullptr ? own.read : ReadSharded(s, *whole))));
}

Variable Layer::Weight(Pass& pass, std::string_view name, const Shape& shape,
                       const WeightOptions& options, std::source_location where) {
  // What layers assign to, such as moving averages, is in one piece.
  const Partitioner& partitioner = pass.shared_->partitioner;
  const bool is_cut = options.trainable && IsForAllWeights(partitioner);
  const OwnWeight* const weight =
      FindWeight(pass, name, shape, options, is_cut ? partitioner : Partitioner(), where);
  if (weight == nullptr) return Variable();
  // Beside the variable: less has to be sent.
  const auto read = [&](const Variable& v) {
    if (!options.autocast || pass.compute_type_ == kFloat || !IsFloating(v.dtype())) return v.read;
    return layers::CastTo(pass.scope().ColocateWith(v.handle), v.read, pass.compute_type_);
  };
  if (weight->whole && weight->whole->parts.size() > 1) {
    ShardedVariable own = *weight->whole;
    std::vector<Input> rows;
    for (VariablePart& part : own.parts) {
      part.variable = pass.shared_->Local(part.variable, weight->trainable);
      rows.emplace_back(read(part.variable));
    }
    AddRegularizer(pass, *weight, Variable(), &own);
    Variable all = own.parts[0].variable;
    all.read = ops::ConcatV2(pass.scope(), rows, 0);
    return all;
  }
  Variable v = pass.shared_->Local(weight->variable, weight->trainable);
  AddRegularizer(pass, *weight, v, nullptr);
  v.read = read(v);
  return v;
}

ShardedVariable Layer::Table(Pass& pass, std::string_view name, const Shape& shape,
                             const WeightOptions& options, std::source_location where) {
  const OwnWeight* const weight =
      FindWeight(pass, name, shape, options, pass.shared_->partitioner, where);
  if (weight == nullptr) return ShardedVariable();
  ShardedVariable table{.name = std::string(name), .shape = shape, .parts = {}};
  if (!weight->whole) {
    table.parts.push_back(
        {pass.shared_->Local(weight->variable, weight->trainable), 0, shape.dim(0)});
    AddRegularizer(pass, *weight, table.parts[0].variable, nullptr);
    return table;
  }
  for (const VariablePart& part : weight->whole->parts) {
    table.parts.push_back(part);
    table.parts.back().variable = pass.shared_->Local(part.variable, weight->trainable);
  }
  AddRegularizer(pass, *weight, Variable(), &table);
  return table;
}

Variable Layer::State(Pass& pass, std::string_view name, const Shape& shape,
                      const initializers::Initializer& initializer, std::source_location where) {
  for (const auto& [own, variable] : own_states_) {
    if (own != name) continue;
    if (variable.shape().IsCompatibleWith(shape)) return pass.shared_->Local(variable, false);
    pass.scope().RecordError(
        errors::InvalidArgument("layer ", Description(), " keeps a ", name, " of shape ",
                                variable.shape().DebugString(), ", and this input needs one of ",
                                shape.DebugString()),
        where);
    return Variable();
  }
  const Variable v =
      MakeVariable(*variable_scope_, name, shape, initializer, {.trainable = false}, where);
  if (v.handle.valid()) own_states_.emplace_back(name, v);
  return pass.shared_->Local(v, false);
}

Output Layer::NextSeed(Pass& pass, initializers::Seed seed) {
  if (!seeds_) seeds_.emplace(variable_scope_->Named("seed_generator"), seed);
  if (!seeds_->state().handle.valid()) return Output();
  Pass::Shared& shared = *pass.shared_;
  Output key;
  if (shared.first != nullptr) {
    const std::vector<Output>& drawn = shared.first->keys[this];
    const std::size_t next = shared.keys_used[this]++;
    if (next < drawn.size()) key = drawn[next];
  }
  if (!key.valid()) {
    key = seeds_->Next(pass.scope());
    shared.keys[this].push_back(key);
  }
  if (shared.replica == 0) return key;
  // The first half is the seed, the second counts the keys: replicas differ in the first.
  const int64_t moved = int64_t{shared.replica} << 32;
  return ops::Add(pass.scope(), key, {moved, int64_t{0}});
}

void Layer::set_activity_regularizer(Regularizer regularizer) {
  activity_regularizer_ = std::move(regularizer);
}

void Layer::RecordBadInput(Pass& pass, const Output& input, std::string_view expected,
                           std::source_location where) const {
  const auto it = pass.shared_->makers.find(Pass::Shared::KeyOf(input));
  const std::string maker = it == pass.shared_->makers.end() ? StrCat("'", input.name(), "'")
                                                             : StrCat("layer ", it->second);
  pass.scope().RecordError(
      errors::InvalidArgument("layer ", Description(), " takes ", expected, ", not ",
                              input.shape().DebugString(), ", which ", maker, " made"),
      where);
}

void Layer::NameLayers(std::span<Layer* const> layers) {
  std::set<std::string> taken;
  std::map<std::string, int> count;
  std::set<const Layer*> seen;
  for (const Layer* layer : layers) {
    if (!layer->name_.empty()) taken.insert(layer->name_);
  }
  for (Layer* layer : layers) {
    if (!seen.insert(layer).second || !layer->name_.empty()) continue;
    const std::string stem = layers::SnakeCase(layer->kind());
    std::string name;
    do {
      const int n = count[stem]++;
      name = n == 0 ? stem : StrCat(stem, "_", n);
    } while (!taken.insert(name).second);
    layer->name_ = name;
  }
}

}  // namespace millrace
