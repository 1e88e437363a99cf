// SPDX-License-Identifier: Apache-2.0
#include "millrace/variables.h"

#include "base/errors.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "frontend/initial_shape.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

struct Seeds {
  int64_t graph = 0, op = 0;
};

// As TensorFlow's Python derives the two seeds of a random op: with a graph seed only, ops
// count up; with an op seed only, the graph's part is a fixed default.
Seeds NextSeeds(const Scope& scope, int64_t op_seed) {
  GraphState& state = *scope.graph();
  if (op_seed == 0 && state.seed == 0) return {};
  if (op_seed == 0) return {state.seed, ++state.last_op_seed};
  return {state.seed != 0 ? state.seed : 87654321, op_seed};
}

Tensor ShapeTensor(const Shape& shape) {
  const std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::FromValues<int32_t>(dims, Shape({shape.rank()}));
}

Tensor AxesTensor(const Output& x, std::vector<int32_t> axes) {
  if (axes.empty() && x.shape().has_rank()) {
    for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  }
  return Tensor::FromValues<int32_t>(axes, Shape({static_cast<int64_t>(axes.size())}));
}

Output Scaled(const Scope& scope, const Output& standard, const RandomOptions& options,
              std::source_location where) {
  Output value = standard;
  if (options.stddev != 1.0f) value = ops::Mul(scope, value, options.stddev, where);
  if (options.mean != 0.0f) value = ops::Add(scope, value, options.mean, where);
  return value;
}

Output Reduce(bool mean, const Scope& scope, const Output& x, std::vector<int32_t> axes,
              std::source_location where) {
  if (!x.valid()) return Output();
  if (axes.empty() && !x.shape().has_rank()) {
    const Output all = ops::Range(scope, 0, ops::Rank(scope, x, where), 1, where);
    return mean ? ops::Mean(scope, x, all, {}, where) : ops::Sum(scope, x, all, {}, where);
  }
  const Tensor t = AxesTensor(x, std::move(axes));
  return mean ? ops::Mean(scope, x, t, {}, where) : ops::Sum(scope, x, t, {}, where);
}

// Collections hold handles; the rest of a variable is found by the names of its nodes.
Variable FromHandle(GraphState* state, const Output& handle) {
  const auto find = [&](std::string_view suffix) {
    return Operation(state, state->graph->FindNode(StrCat(handle.op().name(), suffix)));
  };
  Variable v;
  v.handle = handle;
  v.read = find("/read").output(0);
  if (!v.read.valid()) v.read = find("/Read/ReadVariableOp").output(0);  // TensorFlow's
  v.initializer = find("/Assign");
  v.initial_value = v.initializer.input(1);
  return v;
}

// What a scope must add to its prefix to get `full`, the name of a node that was asked to be
// called `name`: that, or that with "_<number>".
std::string_view LeafName(std::string_view full, std::string_view name) {
  const auto starts_at = [&](std::size_t length) {
    const std::size_t begin = full.size() - length;
    return begin == 0 || full[begin - 1] == '/';
  };
  if (full.ends_with(name) && starts_at(name.size())) return full.substr(full.size() - name.size());
  const std::size_t number = full.size() - full.rfind('_');
  return full.substr(full.size() - number - name.size());
}

std::vector<Variable> FromCollection(GraphState* state, std::string_view collection) {
  std::vector<Variable> variables;
  const auto it = state->collections.find(collection);
  if (it == state->collections.end()) return variables;
  for (const Output& handle : it->second) variables.push_back(FromHandle(state, handle));
  return variables;
}

}  // namespace

Variable MakeVariable(const Scope& scope, std::string_view name, const Output& initial_value,
                      const VariableOptions& options, std::source_location where) {
  Variable v;
  v.initial_value = initial_value;
  if (!initial_value.valid()) return v;
  const auto shape = InitialShape(scope, name, initial_value, where);
  if (!shape) return v;
  const DataType dtype = BaseType(initial_value.dtype());
  const Scope named = scope.WithOpName(name);
  if (options.use_resource) {
    v.handle = ops::VarHandleOp(named, dtype, *shape, {.container = options.container}, where);
  } else {
    v.handle = ops::VariableV2(named, *shape, dtype, {.container = options.container}, where);
  }
  if (!v.handle.valid()) return v;
  const std::string& full = v.handle.op().name();
  // The node's own name is known only now; without its scopes, namesakes would share one state.
  if (options.use_resource) v.handle.op().node()->mutable_attrs().Set("shared_name", full);
  // The nodes around a variable carry its full name, whatever the scope's prefix.
  const Scope beside = scope.ColocateWith(v.handle).WithoutControlDependencies();
  const std::string leaf(LeafName(full, name));
  if (options.use_resource) {
    v.initializer = ops::AssignVariableOp(beside.WithOpName(leaf + "/Assign"), v.handle,
                                          initial_value, {}, where);
    v.read = ops::ReadVariableOp(beside.WithOpName(leaf + "/read"), v.handle, dtype, where);
  } else {
    v.initializer =
        ops::Assign(beside.WithOpName(leaf + "/Assign"), v.handle, initial_value, {}, where);
    v.read = ops::Identity(beside.WithOpName(leaf + "/read"), v.handle, where);
  }
  auto& collections = scope.graph()->collections;
  collections[options.local ? kLocalVariables : kVariables].push_back(v.handle);
  if (options.trainable && !options.local) collections[kTrainableVariables].push_back(v.handle);
  return v;
}

Operation Assign(const Scope& scope, const Variable& variable, const Input& value,
                 std::source_location where) {
  const Scope s = scope.ColocateWith(variable.handle);
  if (variable.is_resource()) return ops::AssignVariableOp(s, variable.handle, value, {}, where);
  return ops::Assign(s, variable.handle, value, {}, where);
}

Operation AssignAdd(const Scope& scope, const Variable& variable, const Input& value,
                    std::source_location where) {
  const Scope s = scope.ColocateWith(variable.handle);
  if (variable.is_resource()) return ops::AssignAddVariableOp(s, variable.handle, value, where);
  return ops::AssignAdd(s, variable.handle, value, {}, where);
}

Output IsInitialized(const Scope& scope, const Variable& variable, std::source_location where) {
  const Scope s = scope.ColocateWith(variable.handle);
  if (variable.is_resource()) return ops::VarIsInitializedOp(s, variable.handle, where);
  return ops::IsVariableInitialized(s, variable.handle, where);
}

Variable GlobalStep(const Scope& scope, std::source_location where) {
  GraphState* state = scope.graph();
  const auto it = state->collections.find(kGlobalStep);
  if (it != state->collections.end() && !it->second.empty()) {
    return FromHandle(state, it->second.front());
  }
  const Scope s = scope.WithoutControlDependencies().CalledFrom(where);
  const Output zero =
      Constant(s.WithOpName("global_step/initial_value"), Tensor::Scalar<int64_t>(0));
  Variable step = MakeVariable(s, "global_step", zero, {.trainable = false});
  if (step.handle.valid()) state->collections[kGlobalStep].push_back(step.handle);
  return step;
}

std::vector<Variable> Variables(const Graph& graph, std::string_view collection) {
  return FromCollection(graph.state(), collection);
}
std::vector<Variable> Variables(const Scope& scope, std::string_view collection) {
  return FromCollection(scope.graph(), collection);
}

Output Constant(const Scope& scope, const Tensor& value, std::source_location where) {
  return ops::Const(scope, value, value.dtype(), where);
}

Output Zeros(const Scope& scope, const Shape& shape, DataType dtype, std::source_location where) {
  const Output zero = ops::Cast(scope, Tensor::Scalar<float>(0.0f), dtype, {}, where);
  return ops::Fill(scope, ShapeTensor(shape), zero, where);
}

Output TruncatedNormal(const Scope& scope, const Shape& shape, const RandomOptions& options,
                       std::source_location where) {
  const Scope s = scope.Named("truncated_normal");
  const Seeds seeds = NextSeeds(scope, options.seed);
  return Scaled(s,
                ops::TruncatedNormal(s, ShapeTensor(shape), kFloat,
                                     {.seed = seeds.graph, .seed2 = seeds.op}, where),
                options, where);
}

Output RandomNormal(const Scope& scope, const Shape& shape, const RandomOptions& options,
                    std::source_location where) {
  const Scope s = scope.Named("random_normal");
  const Seeds seeds = NextSeeds(scope, options.seed);
  return Scaled(s,
                ops::RandomStandardNormal(s, ShapeTensor(shape), kFloat,
                                          {.seed = seeds.graph, .seed2 = seeds.op}, where),
                options, where);
}

Output RandomUniform(const Scope& scope, const Shape& shape, float low, float high, int64_t seed,
                     std::source_location where) {
  const Scope s = scope.Named("random_uniform");
  const Seeds seeds = NextSeeds(scope, seed);
  const Output unit = ops::RandomUniform(s, ShapeTensor(shape), kFloat,
                                         {.seed = seeds.graph, .seed2 = seeds.op}, where);
  return ops::Add(s, ops::Mul(s, unit, high - low, where), low, where);
}

Output Placeholder(const Scope& scope, DataType dtype, const PartialShape& shape,
                   std::source_location where) {
  return ops::Placeholder(scope, dtype, {.shape = shape}, where);
}

Output ReduceMean(const Scope& scope, const Output& x, std::vector<int32_t> axes,
                  std::source_location where) {
  return Reduce(/*mean=*/true, scope, x, std::move(axes), where);
}
Output ReduceSum(const Scope& scope, const Output& x, std::vector<int32_t> axes,
                 std::source_location where) {
  return Reduce(/*mean=*/false, scope, x, std::move(axes), where);
}

Output SoftmaxCrossEntropy(const Scope& scope, const Output& logits, const Output& labels,
                           std::source_location where) {
  return ops::SoftmaxCrossEntropyWithLogits(scope, logits, labels, where).loss;
}
Output SparseSoftmaxCrossEntropy(const Scope& scope, const Output& logits, const Output& labels,
                                 std::source_location where) {
  return ops::SparseSoftmaxCrossEntropyWithLogits(scope, logits, labels, where).loss;
}

Operation Group(const Scope& scope, std::span<const Operation> ops, std::source_location where) {
  return ops::NoOp(scope.WithControlDependencies(ops), where);
}

Operation InitializeVariables(const Scope& scope, std::string_view collection,
                              std::source_location where) {
  std::vector<Operation> initializers;
  for (const Variable& v : Variables(scope, collection)) initializers.push_back(v.initializer);
  return Group(scope.WithOpName("init"), initializers, where);
}

Output ReportUninitializedVariables(const Scope& scope, std::string_view collection,
                                    std::source_location where) {
  const Scope s = scope.Named("report_uninitialized_variables").CalledFrom(where);
  std::vector<Input> flags;
  std::vector<std::string> names;
  for (const Variable& v : Variables(scope, collection)) {
    flags.push_back(ops::LogicalNot(s, IsInitialized(s, v)));
    const std::string& device = v.handle.op().device();
    names.push_back(device.empty() ? v.name() : StrCat(v.name(), " @ ", device));
  }
  const Tensor all =
      Tensor::FromValues<std::string>(names, Shape({static_cast<int64_t>(names.size())}));
  if (flags.empty()) return Constant(s, all);
  const Output missing = ops::Where(s, ops::Pack(s, flags));
  return ops::Gather(s, all, ops::Reshape(s, missing, {-1}));
}

}  // namespace millrace
