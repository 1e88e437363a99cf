// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/status_macros.h"
#include "frontend/function_export.h"
#include "frontend/function_scope.h"
#include "frontend/graph_builder.h"
#include "millrace/functions.h"

namespace millrace {

struct GraphFunction::Signature {
  GraphState* graph = nullptr;
  std::string name;
  std::vector<FunctionArg> args;
  std::vector<DataType> result_dtypes;
  std::vector<PartialShape> result_shapes;
  std::vector<Output> captures;
  bool is_stateful = false;
};

namespace {

// Larger constants are passed to a body like any other value.
constexpr int64_t kMaxCopiedConstant = 64;
constexpr int kMaxNesting = 64;
// Attributes in which nodes keep what is known of their outputs where the op does not say.
constexpr char kOutputShapes[] = "_output_shapes";

bool IsArgName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// The graph of one body while its lambda runs, and for as long as somebody has handles to it.
class Body {
 public:
  // `outer` null: no graph around it.
  Body(const Scope* outer, std::string name, std::source_location where)
      : outer_(outer == nullptr ? nullptr : outer->graph()),
        name_(std::move(name)),
        where_(where),
        root_(graph_.root()) {
    SetBody(state(), outer_, [this](const Output& from) { return Capture(from); });
    if (outer_ == nullptr) return;
    state()->seed = outer_->seed;
    state()->last_op_seed = outer_->last_op_seed;
    if (outer_->graph->library() != nullptr) {
      state()->graph->set_library(outer_->graph->library());
    }
  }
  ~Body() {
    SetBody(state(), nullptr, nullptr);
    if (outer_ != nullptr) KeepBody(outer_, graph_.shared_state());
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  GraphState* state() { return graph_.state(); }
  const std::vector<ExportedArg>& args() const { return args_; }
  const std::vector<Output>& captures() const { return captures_; }
  const std::vector<Output>& results() const { return results_; }

  Status Build(const std::vector<FunctionArg>& args, const FunctionBuilder& body) {
    if (!body) return errors::InvalidArgument("there is no body: the std::function is empty");
    std::vector<Output> inside;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::string name = args[i].name.empty() ? StrCat("arg", i) : args[i].name;
      if (args[i].dtype == DataType::kInvalid || !IsArgName(name)) {
        return errors::InvalidArgument("argument ", i, " '", args[i].name,
                                       "' needs a type, and a name of letters, digits and _");
      }
      const bool taken = std::any_of(args_.begin(), args_.end(),
                                     [&](const ExportedArg& arg) { return arg.name == name; });
      if (taken) return errors::InvalidArgument("two arguments are called '", name, "'");
      MR_ASSIGN_OR_RETURN(const Output node, AddArg(name, BaseType(args[i].dtype), args[i].shape));
      inside.push_back(node);
    }
    MR_ASSIGN_OR_RETURN(
        results_, Guarded([&]() -> StatusOr<std::vector<Output>> { return body(root_, inside); }));
    MR_RETURN_IF_ERROR(graph_.status());
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].valid()) {
        return errors::InvalidArgument("result ", i, " is not a valid output");
      }
      StatusOr<Output> brought = BroughtInside(state(), results_[i]);
      if (!brought.ok()) {
        return WithMessage(brought.status(), StrCat("result ", i, ", ", Message(brought.status())));
      }
      results_[i] = *brought;
    }
    return CheckVariables();
  }

 private:
  StatusOr<Output> AddArg(const std::string& name, DataType dtype, const PartialShape& shape,
                          const HandleShape* handle = nullptr) {
    const Scope scope = root_.WithOpName(name).CalledFrom(where_);
    // A handle of which is known what is behind it: what reads it learns the shape.
    const Operation node =
        handle != nullptr
            ? scope.AddOp("VarHandleOp", {}, {{"dtype", handle->dtype}, {"shape", handle->shape}},
                          where_)
            : scope.AddOp("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, where_);
    MR_RETURN_IF_ERROR(graph_.status());
    args_.push_back({name, node.output(0)});
    return node.output(0);
  }

  StatusOr<Output> Capture(const Output& from) {
    const auto key = std::make_tuple(from.op().graph(), from.op().node(), from.index());
    if (const auto known = captured_.find(key); known != captured_.end()) return known->second;
    Output outside = from;
    if (outer_ != nullptr) {
      const StatusOr<Output> brought = BroughtInside(outer_, from);
      if (!brought.ok()) {
        return WithMessage(
            brought.status(),
            StrCat(Message(brought.status()), " than the one that the function '", name_,
                   "' is made in; what is made in the body of a function can be "
                   "used in that body only"));
      }
      outside = *brought;
    }
    MR_ASSIGN_OR_RETURN(const Output inside, StandIn(outside));
    captured_[key] = inside;
    return inside;
  }

  StatusOr<Output> StandIn(const Output& outside) {
    const Node& node = *outside.op().node();
    if (node.type() == "Const") {
      const AttrValue* const value = node.attrs().Find("value");
      const Tensor* const tensor = value == nullptr ? nullptr : value->tensor();
      if (tensor != nullptr && tensor->num_elements() <= kMaxCopiedConstant) {
        const Operation copy =
            root_.WithOpName("constant")
                .AddOp("Const", {}, {{"dtype", tensor->dtype()}, {"value", *tensor}}, where_);
        MR_RETURN_IF_ERROR(graph_.status());
        return copy.output(0);
      }
    }
    const HandleShape* handle =
        outside.dtype() == kResource
            ? outside.op().graph()->shapes.handle(outside.op().node(), outside.index())
            : nullptr;
    if (handle != nullptr && handle->dtype == DataType::kInvalid) handle = nullptr;
    std::string name = StrCat("captured", captures_.size());
    while (std::any_of(args_.begin(), args_.end(),
                       [&](const ExportedArg& arg) { return arg.name == name; })) {
      name += "_";
    }
    MR_ASSIGN_OR_RETURN(const Output inside,
                        AddArg(name, BaseType(outside.dtype()), outside.shape(), handle));
    captures_.push_back(outside);
    return inside;
  }

  // A variable lives under the name of its node in the graph: nodes of a body have none of their
  // own.
  Status CheckVariables() {
    for (const char* collection : {"variables", "local_variables"}) {
      const std::vector<Output> made = graph_.collection(collection);
      if (made.empty()) continue;
      return errors::InvalidArgument("the body makes the variable '", made[0].op().name(), "' (",
                                     made[0].op().node()->origin(),
                                     "): make it before the function, which may use it then");
    }
    return OkStatus();
  }

  GraphState* const outer_;
  const std::string name_;
  const std::source_location where_;
  Graph graph_;
  const Scope root_;
  std::vector<ExportedArg> args_;  // those that were asked for, then the captures
  std::vector<Output> captures_, results_;
  std::map<std::tuple<GraphState*, Node*, int>, Output> captured_;
};

// How many bodies are around each other here: a definition that defines itself has no end.
int Nesting(GraphState* graph) {
  int depth = 0;
  for (; OuterGraph(graph) != nullptr; graph = OuterGraph(graph)) ++depth;
  return depth;
}

GraphState* OutermostOf(GraphState* graph) {
  while (OuterGraph(graph) != nullptr) graph = OuterGraph(graph);
  return graph;
}

bool IsIn(GraphState* graph, const GraphState* around) {
  while (graph != nullptr && graph != around) graph = OuterGraph(graph);
  return graph == around;
}

// Free among functions and ops. Functions that are being defined are not in a library yet: their
// names are kept with those of nodes, with a blank in front, which no node has.
std::string NewFunctionName(GraphState* graph, std::string_view wanted) {
  std::string clean;
  for (const char c : wanted) clean += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (clean.empty() || !std::isalpha(static_cast<unsigned char>(clean[0]))) clean = "f_" + clean;
  for (;;) {
    const std::string name = OutermostOf(graph)->UniqueName(StrCat(" ", clean)).substr(1);
    if (!graph->graph->LookupOp(name).ok()) return name;
  }
}

Status AddToLibrary(const GraphState& body, pb::FunctionDef def, GraphState* graph) {
  pb::FunctionDefLibrary added;
  // Functions that were made in the body.
  if (body.graph->library() != nullptr && body.graph->library() != graph->graph->library()) {
    for (const auto& function : body.graph->library()->functions()) {
      const auto& there = graph->graph->library();
      if (there == nullptr || there->Find(function->name()) == nullptr) {
        *added.add_function() = function->def;
      }
    }
  }
  *added.add_function() = std::move(def);
  MR_ASSIGN_OR_RETURN(auto extended, FunctionLibrary::Extend(graph->graph->library(), added));
  graph->graph->set_library(std::move(extended));
  return OkStatus();
}

Status InFunction(const Status& status, std::string_view name) {
  return Annotate(status, StrCat(" in the function '", name, "'"));
}

}  // namespace

class FunctionMaker {
 public:
  using Signature = GraphFunction::Signature;

  static StatusOr<GraphFunction> Define(const Scope& scope, std::string_view wanted,
                                        std::vector<FunctionArg> args, const FunctionBuilder& build,
                                        const FunctionOptions& options,
                                        std::source_location where) {
    GraphState* const graph = scope.graph();
    if (Nesting(graph) >= kMaxNesting) {
      return errors::InvalidArgument("the definition of the function '", wanted, "' is within ",
                                     kMaxNesting, " others: does its body define it again? A ",
                                     "function cannot contain itself; loops are made by WhileLoop");
    }
    const std::string name = NewFunctionName(graph, wanted);
    Body body(&scope, name, where);
    const Status built = body.Build(args, build);
    if (!built.ok()) return InFunction(built, name);
    StatusOr<pb::FunctionDef> def =
        ExportFunction(*body.state(), name, body.args(), body.results());
    if (!def.ok()) return InFunction(def.status(), name);
    for (const auto& [key, value] : options.attrs) {
      AttrToProto(value, &(*def->mutable_attr())[key]);
    }
    auto signature = std::make_shared<Signature>();
    signature->graph = graph;
    signature->name = name;
    for (std::size_t i = 0; i < args.size(); ++i) args[i].name = body.args()[i].name;
    signature->args = std::move(args);
    for (const Output& result : body.results()) {
      signature->result_dtypes.push_back(BaseType(result.dtype()));
      signature->result_shapes.push_back(result.shape());
    }
    signature->captures = body.captures();
    signature->is_stateful = def->signature().is_stateful();
    graph->last_op_seed = std::max(graph->last_op_seed, body.state()->last_op_seed);
    MR_RETURN_IF_ERROR(AddToLibrary(*body.state(), *std::move(def), graph));
    GraphFunction function;
    function.signature_ = std::move(signature);
    return function;
  }

  static StatusOr<FunctionResults> Try(std::string_view name, const std::vector<FunctionArg>& args,
                                       const FunctionBuilder& build, std::source_location where) {
    Body body(nullptr, std::string(name), where);
    const Status built = body.Build(args, build);
    if (!built.ok()) return InFunction(built, name);
    const StatusOr<pb::FunctionDef> def =
        ExportFunction(*body.state(), std::string(name), body.args(), body.results());
    if (!def.ok()) return InFunction(def.status(), name);
    FunctionResults results;
    for (const Output& result : body.results()) {
      results.dtypes.push_back(BaseType(result.dtype()));
      results.shapes.push_back(result.shape());
    }
    return results;
  }

  static Status CheckCall(const Scope& scope, const Signature* f, std::span<const Input> args) {
    if (f == nullptr) {
      return errors::FailedPrecondition(
          "the function that is called is not defined: its definition failed, or this is its own "
          "body; a function cannot call itself, loops are made by WhileLoop");
    }
    // A body that is only tried belongs to no graph: outputs and functions of any will do.
    if (!IsIn(scope.graph(), f->graph) && !IsBody(OutermostOf(scope.graph()))) {
      return errors::FailedPrecondition("the function '", f->name, "' belongs to another graph");
    }
    if (args.size() != f->args.size()) {
      return errors::InvalidArgument("the function '", f->name, "' takes ", f->args.size(),
                                     " arguments, not ", args.size());
    }
    for (std::size_t i = 0; i < args.size(); ++i) {
      const FunctionArg& wanted = f->args[i];
      const bool constant = args[i].is_constant();
      if (!constant && !args[i].output().valid()) continue;  // AddOp says so
      const PartialShape shape =
          constant ? PartialShape(args[i].value().shape()) : args[i].output().shape();
      if (!constant && BaseType(args[i].output().dtype()) != BaseType(wanted.dtype)) {
        return errors::InvalidArgument("argument ", i, " ('", wanted.name, "') of the function '",
                                       f->name, "' is ", DataTypeName(BaseType(wanted.dtype)),
                                       ", not ", DataTypeName(BaseType(args[i].output().dtype())));
      }
      if (!wanted.shape.IsCompatibleWith(shape)) {
        return errors::InvalidArgument("argument ", i, " ('", wanted.name, "') of the function '",
                                       f->name, "' has shape ", wanted.shape.DebugString(),
                                       ", not ", shape.DebugString());
      }
    }
    return OkStatus();
  }

  // `inputs`: arguments and captures.
  static std::vector<Output> Call(const Scope& scope, const Signature& f,
                                  const std::vector<Input>& inputs, std::source_location where) {
    std::vector<DataType> types;
    for (const FunctionArg& arg : f.args) types.push_back(BaseType(arg.dtype));
    for (const Output& capture : f.captures) types.push_back(BaseType(capture.dtype()));
    const Operation call =
        scope.AddOpWithLists(f.is_stateful ? "StatefulPartitionedCall" : "PartitionedCall",
                             std::vector<std::vector<Input>>{inputs},
                             {{"Tin", AttrValue(types)},
                              {"Tout", AttrValue(f.result_dtypes)},
                              {"f", AttrValue(FunctionName{f.name, {}})},
                              {kOutputShapes, AttrValue(f.result_shapes)}},
                             where);
    return OutputsOf(call);
  }

  static StatusOr<std::vector<Output>> Branches(
      const Scope& scope, const Output& index,
      std::span<const std::function<std::vector<Output>(const Scope&)>> branches,
      std::source_location where) {
    if (branches.empty()) return errors::InvalidArgument("a Case needs at least one branch");
    std::vector<GraphFunction> functions;
    std::vector<Output> captures;  // of all, each once
    bool stateful = false;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      const auto body = [&](const Scope& inside, std::span<const Output>) {
        return branches[i] ? branches[i](inside) : std::vector<Output>();
      };
      MR_ASSIGN_OR_RETURN(GraphFunction f, Define(scope, StrCat("branch", i), {}, body, {}, where));
      functions.push_back(f);
      if (f.result_dtypes() != functions[0].result_dtypes()) {
        return errors::InvalidArgument("branch ", i, " of a Case gives ", f.result_dtypes().size(),
                                       " results, not the ", functions[0].result_dtypes().size(),
                                       " of branch 0, or other types");
      }
      stateful |= f.is_stateful();
      for (const Output& capture : f.captures()) {
        if (std::find(captures.begin(), captures.end(), capture) == captures.end()) {
          captures.push_back(capture);
        }
      }
    }
    std::vector<FunctionName> names;
    for (const GraphFunction& f : functions) {
      MR_ASSIGN_OR_RETURN(const GraphFunction all, TakingAll(scope, f, captures, where));
      names.push_back(all.attr());
    }
    std::vector<DataType> types;
    for (const Output& capture : captures) types.push_back(BaseType(capture.dtype()));
    std::vector<PartialShape> shapes = functions[0].result_shapes();
    for (const GraphFunction& f : functions) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (!(shapes[i] == f.result_shapes()[i])) shapes[i] = PartialShape();
      }
    }
    const Operation node = scope.AddOpWithLists(
        stateful ? "Case" : "StatelessCase",
        std::vector<std::vector<Input>>{{index}, {captures.begin(), captures.end()}},
        {{"branches", AttrValue(names)},
         {"Tin", AttrValue(types)},
         {"Tout", AttrValue(functions[0].result_dtypes())},
         {"output_shapes", AttrValue(shapes)},
         {"_lower_using_switch_merge", AttrValue(true)}},
        where);
    MR_RETURN_IF_ERROR(scope.status());
    return OutputsOf(node);
  }

 private:
  static std::vector<Output> OutputsOf(const Operation& op) {
    std::vector<Output> outputs;
    for (int i = 0; i < op.num_outputs(); ++i) outputs.push_back(op.output(i));
    return outputs;
  }

  // A function that calls `f`, which captures some of `captures`, and takes all of them.
  static StatusOr<GraphFunction> TakingAll(const Scope& scope, const GraphFunction& f,
                                           const std::vector<Output>& captures,
                                           std::source_location where) {
    if (f.captures() == captures) return f;
    std::vector<FunctionArg> args;
    for (const Output& capture : captures) {
      args.push_back({BaseType(capture.dtype()), capture.shape(), ""});
    }
    const auto body = [&](const Scope& inside, std::span<const Output> all) {
      std::vector<Input> inputs;
      for (const Output& capture : f.captures()) {
        inputs.push_back(
            all[std::find(captures.begin(), captures.end(), capture) - captures.begin()]);
      }
      return Call(inside, *f.signature_, inputs, where);
    };
    return Define(scope, f.name(), std::move(args), body, {}, where);
  }
};

const std::string& GraphFunction::name() const {
  static const std::string none;
  return valid() ? signature_->name : none;
}
const std::vector<FunctionArg>& GraphFunction::args() const {
  static const std::vector<FunctionArg> none;
  return valid() ? signature_->args : none;
}
const std::vector<DataType>& GraphFunction::result_dtypes() const {
  static const std::vector<DataType> none;
  return valid() ? signature_->result_dtypes : none;
}
const std::vector<PartialShape>& GraphFunction::result_shapes() const {
  static const std::vector<PartialShape> none;
  return valid() ? signature_->result_shapes : none;
}
const std::vector<Output>& GraphFunction::captures() const {
  static const std::vector<Output> none;
  return valid() ? signature_->captures : none;
}
bool GraphFunction::is_stateful() const { return valid() && signature_->is_stateful; }

std::vector<Output> GraphFunction::operator()(const Scope& scope, std::span<const Input> args,
                                              std::source_location where) const {
  if (!scope.status().ok()) return {};
  const Status fits = FunctionMaker::CheckCall(scope, signature_.get(), args);
  if (!fits.ok()) {
    scope.RecordError(fits, where);
    return {};
  }
  std::vector<Input> inputs(args.begin(), args.end());
  inputs.insert(inputs.end(), signature_->captures.begin(), signature_->captures.end());
  return FunctionMaker::Call(scope, *signature_, inputs, where);
}

GraphFunction DefineFunction(const Scope& scope, std::string_view name,
                             std::vector<FunctionArg> args, const FunctionBuilder& body,
                             const FunctionOptions& options, std::source_location where) {
  if (!scope.status().ok()) return GraphFunction();
  StatusOr<GraphFunction> function =
      FunctionMaker::Define(scope, name, std::move(args), body, options, where);
  if (function.ok()) return *std::move(function);
  scope.RecordError(function.status(), where);
  return GraphFunction();
}

std::vector<Output> Case(const Scope& scope, const Output& index,
                         std::span<const std::function<std::vector<Output>(const Scope&)>> branches,
                         std::source_location where) {
  if (!scope.status().ok()) return {};
  StatusOr<std::vector<Output>> results = FunctionMaker::Branches(scope, index, branches, where);
  if (results.ok()) return *std::move(results);
  scope.RecordError(results.status(), where);
  return {};
}

StatusOr<FunctionResults> TryFunction(std::string_view name, const std::vector<FunctionArg>& args,
                                      const FunctionBuilder& body, std::source_location where) {
  return FunctionMaker::Try(name, args, body, where);
}

}  // namespace millrace
