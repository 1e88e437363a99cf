// SPDX-License-Identifier: Apache-2.0
// Functions of a graph, made of lambdas: callable, and what data sets, branches and loops take.
//
//   const GraphFunction twice = DefineFunction(
//       scope, "twice", {{kFloat, {}}},
//       [](const Scope& s, std::span<const Output> x) {
//         return std::vector<Output>{ops::Mul(s, x[0], 2.0f)};
//       });
//   const std::vector<Output> y = twice(scope, {x});
//
// The body is a graph of its own: nodes come through the scope that the lambda is given. Outputs
// of the graph around it may be used there; their values at the time of the call are what the body
// sees (they are arguments that every call passes on). Outputs of the body cannot be used outside:
// what leaves it is what the lambda returns. A function cannot call itself: the definition of a
// function that would is refused; loops are in millrace/control_flow.h.
#ifndef MILLRACE_FUNCTIONS_H_
#define MILLRACE_FUNCTIONS_H_

#include <functional>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/graph.h"

namespace millrace {

// An argument of a function.
struct FunctionArg {
  DataType dtype = DataType::kInvalid;  // has to be given
  PartialShape shape{};                 // what the body may rely on; unknown: anything
  std::string name{};                   // letters, digits and _; "": made up
};

// Adds the nodes of a body through `scope` and returns the results. Called once for a definition,
// before DefineFunction returns. `args` are there during the call only.
using FunctionBuilder =
    std::function<std::vector<Output>(const Scope& scope, std::span<const Output> args)>;

// What a definition has besides its body.
struct FunctionOptions {
  // Of the definition: {"_noinline", true} keeps the body out of the graphs that call it.
  std::vector<std::pair<std::string, AttrValue>> attrs{};
};

// A function of one graph: a handle, cheap to copy, valid as long as the graph's nodes live. One
// that stands for a failed definition is not valid; calling it adds nothing. As thread-safe as the
// graph.
class GraphFunction {
 public:
  GraphFunction() = default;

  // Whether it stands for a function: false of a failed definition and of GraphFunction().
  bool valid() const { return signature_ != nullptr; }
  // In the graph's library; unlike the wanted one if that was taken ("twice_1").
  const std::string& name() const;
  // What attributes of ops take: f of MapDataset, then_branch of If.
  FunctionName attr() const { return {name(), {}}; }
  // Without the captures.
  const std::vector<FunctionArg>& args() const;
  const std::vector<DataType>& result_dtypes() const;      // of each result, in order
  const std::vector<PartialShape>& result_shapes() const;  // as inferred while building
  // Outputs of the graph around it that the body uses, in the order in which they follow the
  // arguments; ops that take functions want them as "other_arguments" or at the end of the inputs.
  const std::vector<Output>& captures() const;
  // Whether the body has effects or reads what others change: calls are then not merged or dropped.
  bool is_stateful() const;

  // Calls it: adds one node and returns its outputs. Constants become the types of the arguments.
  // InvalidArgument in the graph's status, with `where`: another number of arguments, other types,
  // shapes that contradict those of the arguments. FailedPrecondition: a function of another graph,
  // or one that is not defined yet, as within its own body. Gradients() goes through.
  std::vector<Output> operator()(
      const Scope& scope, std::span<const Input> args,
      std::source_location where = std::source_location::current()) const;
  std::vector<Output> operator()(
      const Scope& scope, std::initializer_list<Input> args,
      std::source_location where = std::source_location::current()) const {
    return (*this)(scope, std::span(args.begin(), args.size()), where);
  }

 private:
  friend class FunctionMaker;  // frontend/function_builder.cc
  struct Signature;
  std::shared_ptr<const Signature> signature_;
};

// Adds a function to the graph's library. On an error the graph's status says what is wrong, with
// the line in the body or `where`: InvalidArgument for arguments without type, two of one name,
// results that are not valid, variables made in the body (they live in graphs: make them before,
// and use them); what ops say of their inputs.
GraphFunction DefineFunction(const Scope& scope, std::string_view name,
                             std::vector<FunctionArg> args, const FunctionBuilder& body,
                             const FunctionOptions& options = {},
                             std::source_location where = std::source_location::current());

// What the body would give: types and shapes, without a graph. The lambda is called in a graph that
// is thrown away; outputs of any other graph may be used. The errors are those of DefineFunction.
struct FunctionResults {
  std::vector<DataType> dtypes;      // of each result, in order
  std::vector<PartialShape> shapes;  // of each result, as far as they can be inferred
};
// Builds the body without defining a function; see FunctionResults.
StatusOr<FunctionResults> TryFunction(std::string_view name, const std::vector<FunctionArg>& args,
                                      const FunctionBuilder& body,
                                      std::source_location where = std::source_location::current());

// What the branch number `index` (an int32 scalar) computes, the last one for an index that there
// is no branch for. Only that one runs. The branches return as many results of the same types; they
// may use outputs made before. Gradients() goes through. Errors as of DefineFunction, and the
// result is then empty.
std::vector<Output> Case(const Scope& scope, const Output& index,
                         std::span<const std::function<std::vector<Output>(const Scope&)>> branches,
                         std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_FUNCTIONS_H_
