// SPDX-License-Identifier: Apache-2.0
// Variables, their initial values, and the ops that programs of every kind need.
#ifndef MILLRACE_VARIABLES_H_
#define MILLRACE_VARIABLES_H_

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/ops.h"

namespace millrace {

// Names of the collections that training and sessions read.
inline constexpr char kVariables[] = "variables";  // all but local ones
// What optimizers change unless they are told otherwise.
inline constexpr char kTrainableVariables[] = "trainable_variables";
inline constexpr char kLocalVariables[] = "local_variables";  // of each worker: not in kVariables
inline constexpr char kGlobalStep[] = "global_step";          // at most one, see GlobalStep

// A variable: lives on its device between steps, under its node's name.
struct Variable {
  Output handle;          // a reference output, or a resource handle
  Output read;            // its value ("<name>/read")
  Operation initializer;  // assigns the initial value ("<name>/Assign")
  Output initial_value;   // what the initializer assigns

  // The handle's node's name, scopes included.
  const std::string& name() const { return handle.op().name(); }
  // The type of the elements.
  DataType dtype() const { return read.dtype(); }
  // That of `read`.
  PartialShape shape() const { return read.shape(); }
  // Whether the handle is a resource; false: a reference.
  bool is_resource() const { return handle.dtype() == kResource; }
};

// How MakeVariable makes one.
struct VariableOptions {
  bool trainable = true;      // in kTrainableVariables, too, unless it is local
  bool local = false;         // per worker, in kLocalVariables instead of kVariables
  bool use_resource = false;  // VarHandleOp instead of the reference variable of TF 1
  std::string container{};    // group of resources that holds it; "": the default one
};

// A variable called `name` within the scope. Its dtype and shape are those of the initial
// value, whose shape must be fully known (InvalidArgument in the graph's status otherwise).
Variable MakeVariable(const Scope& scope, std::string_view name, const Output& initial_value,
                      const VariableOptions& options = {},
                      std::source_location where = std::source_location::current());
// Assigns; runs on the variable's device. Yields the new value (not valid for a resource).
Operation Assign(const Scope& scope, const Variable& variable, const Input& value,
                 std::source_location where = std::source_location::current());
// Adds `value`; otherwise as Assign.
Operation AssignAdd(const Scope& scope, const Variable& variable, const Input& value,
                    std::source_location where = std::source_location::current());
// True once it has a value; runs on the variable's device.
Output IsInitialized(const Scope& scope, const Variable& variable,
                     std::source_location where = std::source_location::current());

// The int64 counter of training steps, called "global_step", not trainable; the one the
// graph has already, if any.
Variable GlobalStep(const Scope& scope,
                    std::source_location where = std::source_location::current());

// The variables of a collection, in order of creation.
std::vector<Variable> Variables(const Graph& graph, std::string_view collection = kVariables);
// Those of the scope's graph.
std::vector<Variable> Variables(const Scope& scope, std::string_view collection = kVariables);

// Of normal values.
struct RandomOptions {
  float mean = 0.0f;    // added to each value
  float stddev = 1.0f;  // standard deviation, before anything is cut off
  int64_t seed = 0;     // 0: from the graph's seed, or unseeded
};
// A node that has a copy of `value`.
Output Constant(const Scope& scope, const Tensor& value,
                std::source_location where = std::source_location::current());
// Zeros of a shape and type.
Output Zeros(const Scope& scope, const Shape& shape, DataType dtype = kFloat,
             std::source_location where = std::source_location::current());
// Normal values, those beyond two standard deviations drawn again.
Output TruncatedNormal(const Scope& scope, const Shape& shape, const RandomOptions& options = {},
                       std::source_location where = std::source_location::current());
// Normal floats, new ones in each step.
Output RandomNormal(const Scope& scope, const Shape& shape, const RandomOptions& options = {},
                    std::source_location where = std::source_location::current());
// Floats spread evenly over [low, high), new ones in each step. Seed 0: as in RandomOptions.
Output RandomUniform(const Scope& scope, const Shape& shape, float low, float high,
                     int64_t seed = 0,
                     std::source_location where = std::source_location::current());

// A value that every step which needs it must be fed; axes that are not known may vary.
Output Placeholder(const Scope& scope, DataType dtype, const PartialShape& shape,
                   std::source_location where = std::source_location::current());
// Mean or sum over all axes, or over the given ones.
Output ReduceMean(const Scope& scope, const Output& x, std::vector<int32_t> axes = {},
                  std::source_location where = std::source_location::current());
// The sum; axes count from the end if negative.
Output ReduceSum(const Scope& scope, const Output& x, std::vector<int32_t> axes = {},
                 std::source_location where = std::source_location::current());
// Loss per row of logits [n, classes] against labels [n, classes] that sum to 1 per row.
Output SoftmaxCrossEntropy(const Scope& scope, const Output& logits, const Output& labels,
                           std::source_location where = std::source_location::current());
// Against integer labels [n].
Output SparseSoftmaxCrossEntropy(const Scope& scope, const Output& logits, const Output& labels,
                                 std::source_location where = std::source_location::current());

// A NoOp that runs after all of `ops`.
Operation Group(const Scope& scope, std::span<const Operation> ops,
                std::source_location where = std::source_location::current());
// The same for a list in braces.
inline Operation Group(const Scope& scope, std::initializer_list<Operation> ops,
                       std::source_location where = std::source_location::current()) {
  return Group(scope, std::span(ops.begin(), ops.size()), where);
}
// Runs the initializers of all variables of a collection; called "init".
Operation InitializeVariables(const Scope& scope, std::string_view collection = kVariables,
                              std::source_location where = std::source_location::current());
// A string vector: the names of those that have no value yet, each as "name @ task".
// Every check runs where its variable is.
Output ReportUninitializedVariables(const Scope& scope, std::string_view collection = kVariables,
                                    std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_VARIABLES_H_
