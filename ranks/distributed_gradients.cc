// SPDX-License-Identifier: Apache-2.0
// Gradients of all ranks, and the variables that ranks begin with.
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/data_parallel.h"
#include "millrace/sparse_gradients.h"
#include "ranks/group_state.h"
#include "ranks/joined_steps.h"

namespace millrace::dp {
namespace {

StatusOr<std::shared_ptr<ProcessGroup>> GroupOf(const std::shared_ptr<ProcessGroup>& group) {
  if (group != nullptr) return group;
  return World();
}

StatusOr<std::shared_ptr<ProcessGroup>> GroupOf(const GradientOptions& options) {
  if (options.op != ReduceOp::kMean && options.op != ReduceOp::kSum) {
    return errors::InvalidArgument("GradientOptions.op is the ", ReduceOpName(options.op),
                                   ": gradients are averaged (kMean) or summed (kSum)");
  }
  return GroupOf(options.group);
}

DataType WireType(DataType dtype, GradientCompression compression) {
  if (compression == GradientCompression::kNone || (dtype != kFloat && dtype != kDouble)) {
    return dtype;
  }
  return compression == GradientCompression::kFp16 ? kHalf : kBfloat16;
}

Output DividedBy(const Scope& scope, const Output& value, int count) {
  return ops::RealDiv(
      scope, value,
      ops::Cast(scope, Constant(scope, Tensor::Scalar<int32_t>(count)), value.dtype()));
}

// A gradient has its variable's shape, known or not.
Output WithShapeOf(const Scope& scope, const GradientAndVariable& of) {
  if (!of.gradient.valid() || of.gradient.shape().IsFullyDefined()) return of.gradient;
  return ops::EnsureShape(scope, of.gradient, of.variable.shape());
}

// Reduces `values` as they are, or rounded for the way.
class GradientReducer {
 public:
  GradientReducer(ProcessGroup& group, const GradientOptions& options, const Scope& scope,
                  std::source_location where)
      : group_(group), options_(options), scope_(scope), where_(where) {}

  std::vector<Output> Reduce(std::span<const Output> values, std::span<const std::string> names) {
    std::vector<Output> sent(values.begin(), values.end());
    // What is not rounded is divided when it has been added up.
    ReduceOp op = options_.op;
    const bool compress = options_.compression != GradientCompression::kNone;
    if (compress) op = ReduceOp::kSum;
    for (Output& value : sent) {
      if (!value.valid() || !compress) continue;
      if (const Status s = CheckMean(options_.op, value.dtype()); !s.ok()) {
        scope_.RecordError(s, where_);  // which all ranks are told of
      }
      if (options_.op == ReduceOp::kMean) value = DividedBy(scope_, value, group_.size());
      const DataType wire = WireType(value.dtype(), options_.compression);
      if (wire != value.dtype()) value = ops::Cast(scope_, value, wire);
    }
    std::vector<Output> reduced = GroupParts::Reduce(GroupParts::Of(group_), scope_, op, sent,
                                                     names, "gradients", where_, &packs_);
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      if (reduced[i].valid() && reduced[i].dtype() != values[i].dtype()) {
        reduced[i] = ops::Cast(scope_, reduced[i], values[i].dtype());
      }
    }
    return options_.allow_join ? AfterAllTold(reduced) : reduced;
  }

  // All ranks' rows.
  SparseGradient Gather(const SparseGradient& rows, const std::string& name) {
    const std::vector<Output> both = {rows.values, rows.indices};
    const std::vector<Output> all = group_.AllGather(scope_, both, name, where_);
    if (!all[0].valid()) return {};
    return {options_.op == ReduceOp::kMean ? DividedBy(scope_, all[0], group_.size()) : all[0],
            all[1]};
  }

 private:
  // Values that are there once all ranks have told whether they train.
  std::vector<Output> AfterAllTold(const std::vector<Output>& values) {
    std::vector<int32_t> own(static_cast<std::size_t>(group_.size()), 0);
    own[static_cast<std::size_t>(group_.rank())] = 1;
    const Output active = Constant(
        scope_, Tensor::FromValues<int32_t>(own, Shape({static_cast<int64_t>(own.size())})));
    std::vector<ReducePack> told;
    const Output all =
        GroupParts::Reduce(GroupParts::Of(group_), scope_, ReduceOp::kSum, std::span(&active, 1),
                           {}, "ranks that train", where_, &told)[0];
    if (!all.valid()) return values;
    if (!told.empty()) {
      RememberSteps({options_.group != nullptr ? options_.group : World().value_or(nullptr),
                     told[0], packs_});
    }
    const Scope behind = scope_.WithControlDependencies({all.op()});
    std::vector<Output> results;
    for (const Output& value : values) {
      results.push_back(value.valid() ? ops::Identity(behind, value) : value);
    }
    return results;
  }

  ProcessGroup& group_;
  const GradientOptions& options_;
  const Scope scope_;
  const std::source_location where_;
  std::vector<ReducePack> packs_;
};

// What runs behind a step's check that the variables have values at the root: all ranks learn which
// one has none, while those that wait for a broadcast would wait for their limit.
Scope BehindCheck(const Scope& scope, ProcessGroup& group, std::span<const Variable> variables,
                  const std::vector<std::string>& names, int root, std::source_location where) {
  const Shape shape({static_cast<int64_t>(variables.size())});
  Output own = Zeros(scope, shape, kInt32);
  if (group.rank() == root) {
    std::vector<Input> flags;
    for (const Variable& variable : variables) {
      flags.emplace_back(ops::Cast(scope, IsInitialized(scope, variable), kInt32));
    }
    own = ops::Pack(scope, flags);
  }
  const Output flags =
      GroupParts::Reduce(GroupParts::Of(group), scope, ReduceOp::kSum, std::span(&own, 1), {},
                         "which variables have values", where)[0];
  if (!flags.valid()) return scope;
  const Output missing =
      ops::GatherV2(scope, Tensor::FromValues<std::string>(names, shape),
                    ops::Reshape(scope, ops::Where(scope, ops::Equal(scope, flags, 0)), {-1}), 0);
  const Output none = ops::Equal(scope, ops::Size(scope, missing), 0);
  const Operation check =
      ops::Assert(scope, none, {StrCat("variables without a value at rank ", root, ": "), missing});
  return scope.WithControlDependencies({check});
}

class RanksOptimizer final : public Optimizer {
 public:
  RanksOptimizer(std::unique_ptr<Optimizer> inner, GradientOptions options)
      : inner_(std::move(inner)), options_(std::move(options)) {}

  StatusOr<std::vector<GradientAndVariable>> ComputeGradients(const Scope& scope,
                                                              const Output& loss,
                                                              std::vector<Variable> variables,
                                                              std::source_location where) override {
    MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> own,
                        inner_->ComputeGradients(scope, loss, std::move(variables), where));
    return AllReduceGradients(scope, own, options_, where);
  }
  StatusOr<Operation> ApplyGradients(const Scope& scope,
                                     std::span<const GradientAndVariable> gradients,
                                     const Variable* global_step,
                                     std::source_location where) override {
    return inner_->ApplyGradients(scope, gradients, global_step, where);
  }
  std::vector<Variable> variables() const override { return inner_->variables(); }

 private:
  const std::unique_ptr<Optimizer> inner_;
  const GradientOptions options_;
};

}  // namespace

StatusOr<std::vector<Output>> DistributedGradients(const Scope& scope, std::span<const Output> ys,
                                                   std::span<const Output> xs,
                                                   const GradientOptions& options,
                                                   std::source_location where) {
  MR_ASSIGN_OR_RETURN(const auto group, GroupOf(options));
  MR_ASSIGN_OR_RETURN(const std::vector<Output> own, Gradients(scope, ys, xs, {}, where));
  std::vector<std::string> names;
  for (const Output& x : xs) names.push_back(x.valid() ? x.op().name() : "");
  std::vector<Output> reduced = GradientReducer(*group, options, scope, where).Reduce(own, names);
  MR_RETURN_IF_ERROR(scope.status());
  return reduced;
}

StatusOr<std::vector<GradientAndVariable>> AllReduceGradients(
    const Scope& scope, std::span<const GradientAndVariable> gradients,
    const GradientOptions& options, std::source_location where) {
  MR_ASSIGN_OR_RETURN(const auto group, GroupOf(options));
  std::vector<GradientAndVariable> result(gradients.begin(), gradients.end());
  GradientReducer reducer(*group, options, scope, where);
  std::vector<Output> dense(result.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < result.size(); ++i) {
    GradientAndVariable& of = result[i];
    names.push_back(of.variable.handle.valid() ? of.variable.name() : "");
    if (of.is_sparse() && options.sparse_as_dense) {
      of = {DenseGradient(scope, of), of.variable};
    }
    if (of.is_sparse() && options.allow_join) {
      return errors::InvalidArgument("the gradient of ", names.back(),
                                     " is one of rows, which ranks cannot stand aside from: set "
                                     "GradientOptions.sparse_as_dense with allow_join");
    }
    if (!of.is_sparse()) dense[i] = WithShapeOf(scope, of);
  }
  const std::vector<Output> reduced = reducer.Reduce(dense, names);
  for (std::size_t i = 0; i < result.size(); ++i) {
    GradientAndVariable& of = result[i];
    if (of.is_sparse()) {
      const SparseGradient rows = reducer.Gather({of.gradient, of.indices}, names[i]);
      of.gradient = rows.values;
      of.indices = rows.indices;
    } else {
      of.gradient = reduced[i];
    }
  }
  MR_RETURN_IF_ERROR(scope.status());
  return result;
}

std::unique_ptr<Optimizer> DistributedOptimizer(std::unique_ptr<Optimizer> inner,
                                                const GradientOptions& options) {
  return std::make_unique<RanksOptimizer>(std::move(inner), options);
}

StatusOr<Operation> BroadcastVariables(const Scope& outer, std::span<const Variable> variables,
                                       int root_rank, const std::shared_ptr<ProcessGroup>& of,
                                       std::source_location where) {
  MR_ASSIGN_OR_RETURN(const auto group, GroupOf(of));
  const Scope scope = outer.CalledFrom(where).Named("BroadcastVariables");
  std::vector<std::string> names;
  for (const Variable& variable : variables) {
    names.push_back(variable.handle.valid() ? variable.name() : "");
  }
  const Scope checked =
      variables.empty() ? scope : BehindCheck(scope, *group, variables, names, root_rank, where);
  std::vector<Output> values;
  for (const Variable& variable : variables) {
    values.push_back(group->rank() != root_rank ? variable.read
                     : variable.is_resource()
                         ? ops::ReadVariableOp(checked, variable.handle, variable.dtype())
                         : ops::Identity(checked, variable.handle));
  }
  const std::vector<Output> sent = GroupParts::Broadcast(GroupParts::Of(*group), checked, values,
                                                         names, root_rank, "variables", where);
  MR_RETURN_IF_ERROR(scope.status());
  std::vector<Operation> done;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    done.push_back(group->rank() == root_rank ? sent[i].op()
                                              : Assign(scope, variables[i], sent[i]));
  }
  const Operation all = Group(scope, done, where);
  MR_RETURN_IF_ERROR(scope.status());
  return all;
}

}  // namespace millrace::dp
