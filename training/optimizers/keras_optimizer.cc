// SPDX-License-Identifier: Apache-2.0
#include "training/optimizers/keras_optimizer.h"

#include <algorithm>
#include <map>
#include <regex>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "training/optimizers/slot_optimizer.h"
#include "training/sharding/part_marks.h"

namespace millrace::optimizers {
namespace {

std::string PathName(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

Tensor ShapeTensor(const Shape& shape) {
  const std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::FromValues<int32_t>(dims, Shape({shape.rank()}));
}

// A weight and what the optimizer keeps for it.
struct Weight {
  Variable variable;
  Variable average, accumulator;  // without a handle unless they are kept
  std::vector<Variable> slots;
};

class KerasOptimizerImpl : public KerasOptimizer, public ChecksOptions {
 public:
  KerasOptimizerImpl(std::unique_ptr<Rule> rule, LearningRate rate, CommonOptions options)
      : rule_(std::move(rule)), rate_(std::move(rate)), o_(std::move(options)) {
    if (o_.name.empty()) o_.name = rule_->name();
  }

  StatusOr<Operation> ApplyGradients(const Scope& scope,
                                     std::span<const GradientAndVariable> gradients,
                                     const Variable* global_step,
                                     std::source_location where) override {
    return Build(scope.CalledFrom(where), gradients, Output(), global_step);
  }
  StatusOr<Operation> ApplyGradientsIf(const Scope& scope,
                                       std::span<const GradientAndVariable> gradients,
                                       const Output& condition, const Variable* global_step,
                                       std::source_location where) override {
    return Build(scope.CalledFrom(where), gradients, condition, global_step);
  }
  void ExcludeFromWeightDecay(std::vector<std::string> patterns) override {
    excluded_ = std::move(patterns);
  }
  Variable iterations() const override { return iteration_; }
  Variable learning_rate() const override { return rate_variable_; }
  std::vector<Variable> variables() const override { return variables_; }
  Operation FinalizeVariables(const Scope& scope, std::source_location where) override;
  Status CheckOptions() const override;

 private:
  // The values of one weight's variables after an update.
  struct Write {
    const Variable* variable;
    Output value;
    bool is_change = false;
  };
  // What all weights of one update share.
  struct Shared {
    Scope scope;
    Expr iteration;                       // as it was
    Expr step;                            // of updates, counts from 1, a float
    std::map<std::string, Output> rates;  // by device
    std::vector<Expr> globals;
    Output condition;  // not valid: always
    Output applies;    // not valid: always; this call applies what was accumulated
    std::vector<Operation> updates;
  };

  Status CheckGradients(std::span<const GradientAndVariable> gradients) const;
  void MakeVariables(const Scope& scope, std::span<const GradientAndVariable> gradients);
  Variable MakeSlotOf(const Scope& scope, const Variable& primary, const SlotSpec& spec,
                      const std::string& name);
  StatusOr<Operation> Build(const Scope& scope, std::span<const GradientAndVariable> gradients,
                            const Output& condition, const Variable* global_step);
  std::vector<GradientAndVariable> Prepare(Shared& all,
                                           std::span<const GradientAndVariable> gradients);
  std::vector<GradientAndVariable> Clip(const Shared& all,
                                        std::span<const GradientAndVariable> gradients) const;
  void UpdateGlobals(Shared& all);
  void UpdateWeight(Shared& all, const GradientAndVariable& raw, const GradientAndVariable& g);
  void UpdateRows(Shared& all, const GradientAndVariable& g);
  Output RateFor(Shared& all, const Scope& beside, const Variable& variable);
  void Issue(Shared& all, const Scope& beside, std::vector<Write> writes);
  bool Decays(const Variable& variable) const;
  bool KeepsRows(const GradientAndVariable& g) const;
  bool Clips() const;
  Weight& WeightOf(const Variable& variable) { return weights_.find(variable.name())->second; }

  const std::unique_ptr<Rule> rule_;
  const LearningRate rate_;
  CommonOptions o_;
  std::vector<std::string> excluded_;
  Variable iteration_, rate_variable_;
  std::vector<Variable> globals_;
  std::vector<Variable> variables_;
  std::map<std::string, Weight, std::less<>> weights_;
};

Status KerasOptimizerImpl::CheckOptions() const {
  OptionChecks checks(StrCat("optimizer '", o_.name, "'"));
  if (rate_.is_number()) checks.Finite("learning_rate", rate_.number());
  rule_->Check(checks);
  // A limit of 0 is none, as in Keras.
  checks.Finite("weight_decay", o_.weight_decay)
      .AtLeast("clip_norm", o_.clip_norm, 0)
      .AtLeast("global_clip_norm", o_.global_clip_norm, 0)
      .AtLeast("clip_value", o_.clip_value, 0)
      .AtLeast("ema_overwrite_frequency", static_cast<double>(o_.ema_overwrite_frequency), 0)
      .Above("loss_scale_factor", o_.loss_scale_factor, 0)
      .Patterns("ExcludeFromWeightDecay", excluded_);
  MR_RETURN_IF_ERROR(checks.status());
  if (o_.clip_norm.has_value() + o_.global_clip_norm.has_value() + o_.clip_value.has_value() > 1) {
    return errors::InvalidArgument(
        "optimizer '", o_.name,
        "': only one of clip_norm, global_clip_norm and clip_value can be set");
  }
  if (o_.use_ema && !(o_.ema_momentum >= 0 && o_.ema_momentum <= 1)) {
    return errors::InvalidArgument("optimizer '", o_.name,
                                   "': ema_momentum must lie between 0 and 1, not be ",
                                   o_.ema_momentum);
  }
  if (o_.gradient_accumulation_steps == 1 || o_.gradient_accumulation_steps < 0) {
    return errors::InvalidArgument("optimizer '", o_.name,
                                   "': gradient_accumulation_steps must be at least 2 (or 0), not ",
                                   o_.gradient_accumulation_steps);
  }
  return OkStatus();
}

Status KerasOptimizerImpl::CheckGradients(std::span<const GradientAndVariable> gradients) const {
  const bool any = std::any_of(gradients.begin(), gradients.end(),
                               [](const auto& g) { return g.gradient.valid(); });
  if (!any) {
    return errors::InvalidArgument(
        "no gradient for any variable: the loss depends on none of them");
  }
  for (const GradientAndVariable& g : gradients) {
    if (!g.variable.shape().AsShape()) {
      return errors::InvalidArgument("variable '", g.variable.name(), "' has no fully known shape");
    }
  }
  return OkStatus();
}

Variable KerasOptimizerImpl::MakeSlotOf(const Scope& scope, const Variable& primary,
                                        const SlotSpec& spec, const std::string& name) {
  const Scope beside = scope.ColocateWith(primary.handle).WithoutControlDependencies();
  const VariableOptions options{.trainable = false, .use_resource = primary.is_resource()};
  Variable slot;
  if (spec.like_weight) {
    slot = MakeVariable(beside, name, primary.initial_value, options);
  } else {
    const DataType dtype = spec.integer ? kInt32 : primary.dtype();
    const Output value = ops::Cast(beside, Tensor::Scalar<float>(spec.initial), dtype);
    slot = MakeVariable(
        beside, name,
        ops::Fill(beside, ShapeTensor(spec.shape ? *spec.shape : *primary.shape().AsShape()),
                  value),
        options);
  }
  MarkLike(primary, slot);
  variables_.push_back(slot);
  return slot;
}

// Once for each weight; in the order in which Keras makes them.
void KerasOptimizerImpl::MakeVariables(const Scope& scope,
                                       std::span<const GradientAndVariable> gradients) {
  std::vector<Variable> fresh;
  for (const GradientAndVariable& g : gradients) {
    if (weights_.try_emplace(g.variable.name(), Weight{g.variable, {}, {}, {}}).second) {
      fresh.push_back(g.variable);
    }
  }
  if (fresh.empty()) return;
  const VariableOptions options{.trainable = false, .use_resource = fresh[0].is_resource()};
  const Scope beside = scope.ColocateWith(fresh[0].handle).WithoutControlDependencies();
  const auto scalar = [&](const char* name, const Tensor& initial) {
    variables_.push_back(
        MakeVariable(beside, StrCat(o_.name, "/", name), Constant(beside, initial), options));
    return variables_.back();
  };
  const bool first = !iteration_.handle.valid();
  if (first) {
    iteration_ = scalar("iteration", Tensor::Scalar<int64_t>(0));
    if (rate_.is_number()) {
      rate_variable_ =
          scalar("learning_rate", Tensor::Scalar<float>(static_cast<float>(rate_.number())));
    }
  }
  const auto name = [&](const Variable& v, const std::string& slot) {
    return StrCat(o_.name, "/", PathName(v.name()), "_", slot);
  };
  for (const Variable& v : fresh) {
    if (o_.use_ema) WeightOf(v).average = MakeSlotOf(scope, v, {}, name(v, "average"));
  }
  for (const Variable& v : fresh) {
    if (o_.gradient_accumulation_steps == 0) break;
    WeightOf(v).accumulator = MakeSlotOf(scope, v, {}, name(v, "gradient_accumulator"));
  }
  for (int group = 0, left = 1; left > 0; ++group) {
    left = 0;
    for (const Variable& v : fresh) {
      for (const SlotSpec& spec : rule_->Slots(v)) {
        left += spec.group > group;
        if (spec.group != group) continue;
        WeightOf(v).slots.push_back(MakeSlotOf(scope, v, spec, name(v, spec.name)));
      }
    }
  }
  if (!first) return;
  for (const float initial : rule_->Globals()) {
    globals_.push_back(scalar("variable", Tensor::Scalar<float>(initial)));
  }
}

bool KerasOptimizerImpl::Decays(const Variable& variable) const {
  return std::none_of(excluded_.begin(), excluded_.end(), [&](const std::string& pattern) {
    return std::regex_search(variable.name(), std::regex(pattern));
  });
}

bool KerasOptimizerImpl::KeepsRows(const GradientAndVariable& g) const {
  return g.is_sparse() && rule_->IdleRows() && !o_.use_ema && o_.gradient_accumulation_steps == 0 &&
         !(rule_->WeightDecay(g.variable, o_.weight_decay) && Decays(g.variable));
}

Output KerasOptimizerImpl::RateFor(Shared& all, const Scope& beside, const Variable& variable) {
  Output& rate = all.rates[variable.handle.op().device()];
  if (rate.valid()) return rate;
  if (rate_.is_number()) return rate = rate_variable_.read;
  return rate = rate_.At(rate_.is_schedule() ? beside : all.scope, iteration_.read);
}

// What the rule gets: unscaled, whole unless it acts on rows, and with what was accumulated.
std::vector<GradientAndVariable> KerasOptimizerImpl::Prepare(
    Shared& all, std::span<const GradientAndVariable> gradients) {
  std::vector<GradientAndVariable> result;
  for (const GradientAndVariable& g : gradients) {
    if (!g.gradient.valid()) continue;
    const Scope beside = all.scope.ColocateWith(g.variable.handle);
    const bool rows = KeepsRows(g);
    GradientAndVariable used = g;
    if (!rows) {
      used = {DenseGradient(beside, g), g.variable};
    } else if (!rule_->IdleRows()->empty() && !Clips()) {
      used =
          SumDuplicates(beside, g);  // clipping does so itself, and a rule without slots is linear
    }
    if (o_.loss_scale_factor) {
      used.gradient = Expr(beside, used.gradient) / *o_.loss_scale_factor;
    }
    result.push_back(used);
  }
  return result;
}

bool KerasOptimizerImpl::Clips() const {
  return o_.clip_norm.value_or(0) > 0 || o_.global_clip_norm.value_or(0) > 0 ||
         o_.clip_value.value_or(0) > 0;
}

std::vector<GradientAndVariable> KerasOptimizerImpl::Clip(
    const Shared& all, std::span<const GradientAndVariable> gradients) const {
  if (o_.clip_norm && *o_.clip_norm > 0) return ClipByNorm(all.scope, gradients, *o_.clip_norm);
  if (o_.global_clip_norm && *o_.global_clip_norm > 0) {
    return ClipByGlobalNorm(all.scope, gradients, *o_.global_clip_norm);
  }
  if (o_.clip_value && *o_.clip_value > 0) return ClipByValue(all.scope, gradients, *o_.clip_value);
  return {gradients.begin(), gradients.end()};
}

// Writes when all that is written has been computed: nobody reads what is half of each.
void KerasOptimizerImpl::Issue(Shared& all, const Scope& beside, std::vector<Write> writes) {
  std::vector<Operation> computed;
  for (Write& write : writes) {
    const Expr value(beside, write.value);
    if (all.condition.valid()) {
      const Output otherwise =
          write.is_change ? ops::ZerosLike(beside, value) : write.variable->read;
      write.value = Expr(beside, all.condition).Select(value, otherwise);
    }
    computed.push_back(write.value.op());
  }
  const Scope after = beside.WithControlDependencies(computed);
  for (const Write& write : writes) {
    const Variable& v = *write.variable;
    if (!write.is_change) {
      all.updates.push_back(Assign(after, v, write.value));
    } else if (v.is_resource()) {
      all.updates.push_back(ops::AssignSubVariableOp(after, v.handle, write.value));
    } else {
      all.updates.push_back(ops::AssignSub(after, v.handle, write.value));
    }
  }
}

void KerasOptimizerImpl::UpdateGlobals(Shared& all) {
  for (std::size_t i = 0; i < globals_.size(); ++i) {
    const Scope beside = all.scope.ColocateWith(globals_[i].handle);
    const Expr value(beside, globals_[i].read);
    const Expr next = rule_->NextGlobal(static_cast<int>(i), value, all.step.In(beside));
    all.globals.push_back(next);
    const Output written =
        all.applies.valid() ? Expr(beside, all.applies).Select(next, value).output() : next;
    Issue(all, beside, {{&globals_[i], written}});
  }
}

// Rows that the gradient names are read, computed and written; of slots that decay the others are
// multiplied in one pass.
void KerasOptimizerImpl::UpdateRows(Shared& all, const GradientAndVariable& g) {
  const Variable& v = g.variable;
  const Weight& weight = WeightOf(v);
  const Scope beside = all.scope.ColocateWith(v.handle);
  const auto rows_of = [&](const Variable& x) {
    return Expr(beside, x.is_resource()
                            ? ops::ResourceGather(beside, x.handle, g.indices, x.dtype())
                            : ops::GatherV2(beside, x.read, g.indices, 0));
  };
  const auto if_wanted = [&](const Expr& value, const Output& otherwise) {
    return all.condition.valid() ? Expr(beside, all.condition).Select(value, otherwise) : value;
  };
  RuleArgs args{beside,
                v,
                Expr(beside, g.gradient),
                rows_of(v),
                Expr(beside, RateFor(all, beside, v)).Cast(v.dtype()),
                all.step.In(beside).Cast(v.dtype()),
                {},
                {}};
  for (const Variable& slot : weight.slots) args.slots.push_back(rows_of(slot));
  const RuleResult result = rule_->Apply(args);
  const std::vector<double> decays = *rule_->IdleRows();
  const Expr change = if_wanted(result.weight, ops::ZerosLike(beside, result.weight));
  std::vector<Operation> computed = {change.output().op()};
  std::vector<Expr> rows, wholes;
  for (std::size_t i = 0; i < weight.slots.size(); ++i) {
    rows.push_back(if_wanted(result.slots[i], args.slots[i]));
    const Expr before(beside, weight.slots[i].read);
    wholes.push_back(decays[i] == 1 ? before : if_wanted(before * decays[i], before));
    computed.push_back(rows[i].output().op());
    if (decays[i] != 1) computed.push_back(wholes[i].output().op());
  }
  const Scope after = beside.WithControlDependencies(computed);
  for (std::size_t i = 0; i < weight.slots.size(); ++i) {
    const Variable& slot = weight.slots[i];
    const Scope write =
        decays[i] == 1 ? after : beside.WithControlDependencies({Assign(after, slot, wholes[i])});
    all.updates.push_back(slot.is_resource()
                              ? ops::ResourceScatterUpdate(write, slot.handle, g.indices, rows[i])
                              : ops::ScatterUpdate(write, slot.handle, g.indices, rows[i]).op());
  }
  all.updates.push_back(v.is_resource()
                            ? ops::ResourceScatterSub(after, v.handle, g.indices, change)
                            : ops::ScatterSub(after, v.handle, g.indices, change).op());
}

// `raw`: before accumulation and clipping; its gradient is not valid if there is none.
void KerasOptimizerImpl::UpdateWeight(Shared& all, const GradientAndVariable& raw,
                                      const GradientAndVariable& g) {
  const Variable& v = raw.variable;
  const Weight& weight = WeightOf(v);
  const Scope beside = all.scope.ColocateWith(v.handle);
  const Expr before(beside, v.read);
  const auto if_applies = [&](const Expr& value, const Output& otherwise) {
    return all.applies.valid() ? Expr(beside, all.applies).Select(value, otherwise) : value;
  };
  std::vector<Write> writes;
  Expr after = before;
  if (raw.gradient.valid()) {
    const Expr rate = Expr(beside, RateFor(all, beside, v)).Cast(v.dtype());
    RuleArgs args{beside, v,    Expr(beside, g.gradient),
                  before, rate, all.step.In(beside).Cast(v.dtype()),
                  {},     {}};
    const std::optional<double> decay =
        Decays(v) ? rule_->WeightDecay(v, o_.weight_decay) : std::nullopt;
    std::optional<Expr> decayed;
    if (decay) {
      decayed = before * *decay * rate;
      args.w = before - *decayed;
    }
    for (const Variable& slot : weight.slots) args.slots.emplace_back(beside, slot.read);
    for (const Expr& global : all.globals)
      args.globals.push_back(global.In(beside).Cast(v.dtype()));
    const RuleResult result = rule_->Apply(args);
    for (std::size_t i = 0; i < result.slots.size(); ++i) {
      writes.push_back({&weight.slots[i], if_applies(result.slots[i], args.slots[i])});
    }
    const Expr value = result.is_change ? args.w - result.weight : result.weight;
    after = if_applies(value, before);
    // With averages that may replace it, the weight is written below.
    if (!o_.use_ema || o_.ema_overwrite_frequency == 0) {
      if (result.is_change) {
        const Expr change = decayed ? *decayed + result.weight : result.weight;
        writes.push_back(
            {&v, all.applies.valid() ? if_applies(change, ops::ZerosLike(beside, change)) : change,
             true});
      } else {
        writes.push_back({&v, after});
      }
    }
    if (all.applies.valid()) {
      const Expr sum = Expr(beside, weight.accumulator.read) + raw.gradient;
      writes.push_back(
          {&weight.accumulator, if_applies(Expr(beside, ops::ZerosLike(beside, sum)), sum)});
    }
  }
  if (o_.use_ema) {
    // The first average is the weight itself.
    const Expr count = all.step.In(beside);
    const Expr keep = ((count > 1.0f).Cast(kFloat) * o_.ema_momentum).Cast(v.dtype());
    const Expr average = keep * Expr(beside, weight.average.read) + (1.0 - keep) * after;
    writes.push_back({&weight.average, average});
    if (o_.ema_overwrite_frequency > 0) {
      const Expr due =
          Expr(beside, ops::FloorMod(beside, count, static_cast<float>(o_.ema_overwrite_frequency)))
              .Equal(0.0f);
      writes.push_back({&v, due.Select(average, after)});
    }
  }
  Issue(all, beside, std::move(writes));
}

StatusOr<Operation> KerasOptimizerImpl::Build(const Scope& scope,
                                              std::span<const GradientAndVariable> gradients,
                                              const Output& condition,
                                              const Variable* global_step) {
  MR_RETURN_IF_ERROR(CheckOptions());
  MR_RETURN_IF_ERROR(CheckGradients(gradients));
  if (iteration_.handle.valid() && iteration_.handle.op().graph() != scope.graph()) {
    return errors::FailedPrecondition("optimizer '", o_.name,
                                      "' belongs to the graph that it was first used in: make "
                                      "another one for this model or graph");
  }
  MakeVariables(scope, gradients);
  MR_RETURN_IF_ERROR(scope.status());
  const Scope s = scope.Named(o_.name);
  const Expr iteration(s, iteration_.read);
  const int64_t every = o_.gradient_accumulation_steps;
  const Expr updates = every > 0 ? Expr(s, ops::FloorDiv(s, iteration, every)) : iteration;
  Shared all{s, iteration, updates.Cast(kFloat) + 1.0f, {}, {}, condition, Output(), {}};
  if (every > 0) {
    all.applies = Expr(s, ops::FloorMod(s, iteration + int64_t{1}, every)).Equal(int64_t{0});
  }
  const std::vector<GradientAndVariable> raw = Prepare(all, gradients);
  std::vector<GradientAndVariable> ready = raw;
  for (GradientAndVariable& g : ready) {
    if (every == 0) break;
    const Scope beside = s.ColocateWith(g.variable.handle);
    g.gradient = (Expr(beside, g.gradient) + WeightOf(g.variable).accumulator.read) /
                 static_cast<double>(every);
  }
  ready = Clip(all, ready);
  UpdateGlobals(all);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    MR_RETURN_IF_ERROR(scope.status());
    if (raw[i].is_sparse()) {
      UpdateRows(all, ready[i]);
    } else {
      UpdateWeight(all, raw[i], ready[i]);
    }
  }
  for (const GradientAndVariable& g : gradients) {
    if (!g.gradient.valid() && o_.use_ema) UpdateWeight(all, g, g);
  }
  MR_RETURN_IF_ERROR(scope.status());
  const Scope after = s.WithControlDependencies(all.updates);
  const auto counted = [&](const Variable& counter, const Scope& where) {
    if (!condition.valid()) return AssignAdd(where, counter, Tensor::Scalar<int64_t>(1));
    return AssignAdd(where, counter,
                     Expr(where.ColocateWith(counter.handle), condition).Cast(kInt64).output());
  };
  const Operation count = counted(iteration_, after.WithOpName("count"));
  const Operation done =
      global_step == nullptr
          ? Group(s.WithScopeName(), {count})
          : counted(*global_step, s.WithControlDependencies({count}).WithScopeName());
  MR_RETURN_IF_ERROR(scope.status());
  return done;
}

Operation KerasOptimizerImpl::FinalizeVariables(const Scope& scope, std::source_location where) {
  const Scope s = scope.CalledFrom(where).Named(StrCat(o_.name, "_finalize"));
  std::vector<Operation> writes;
  for (const auto& [name, weight] : weights_) {
    if (!weight.average.handle.valid()) continue;
    writes.push_back(Assign(s, weight.variable, weight.average.read));
  }
  return Group(s.WithScopeName(), writes);
}

}  // namespace

std::unique_ptr<KerasOptimizer> MakeKerasOptimizer(std::unique_ptr<Rule> rule,
                                                   const LearningRate& rate,
                                                   const CommonOptions& options) {
  return std::make_unique<KerasOptimizerImpl>(std::move(rule), rate, options);
}

}  // namespace millrace::optimizers
