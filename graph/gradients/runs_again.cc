// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/runs_again.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/function_library.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

bool OnlyLooks(std::string_view op) {
  return op == "VarHandleOp" || op == "VariableShape" || op == "VarIsInitializedOp" ||
         op == "Placeholder";
}
bool ReadsVariable(std::string_view op) {
  return op == "ReadVariableOp" || op == "ResourceGather" || op == "ResourceGatherNd";
}
// What lives within one run of the function.
bool IsOfOneRun(std::string_view op) {
  return op.starts_with("TensorArray") || op.starts_with("Stack");
}

// The node or argument that an input names: of "node:output:0", "argument" and "^node".
std::string_view SourceOf(std::string_view input) {
  if (input.starts_with("^")) input.remove_prefix(1);
  return input.substr(0, input.find(':'));
}

// Variables of a function: "#2" is its argument 2, else what a VarHandleOp in it names.
struct Variables {
  std::map<std::string, std::string> read;  // whose values lead to a result, and by which node
  std::set<std::string> written;
};

class Inspection {
 public:
  explicit Inspection(const DataflowGraph& graph) : graph_(graph) {}

  // What a call of the function does to variables. A function that calls itself: what is known.
  StatusOr<Variables> Inspect(const std::string& function) {
    const FunctionLibrary* const library = graph_.library().get();
    const Function* const found = library == nullptr ? nullptr : library->Find(function);
    if (found == nullptr) return Variables();
    const auto [known, is_new] = inspected_.try_emplace(function);
    if (!is_new) return known->second;
    if (++depth_ > kMaxDepth) {
      return errors::ResourceExhausted("functions call each other more than ", kMaxDepth,
                                       " deep; the last one is ", function);
    }
    MR_ASSIGN_OR_RETURN(Variables variables, Look(found->def));
    --depth_;
    for (const auto& [variable, reader] : variables.read) {
      if (!variables.written.contains(variable)) continue;
      return errors::Unimplemented(
          "the gradient of a call runs its function again, but {{node ", reader, "}} in function ",
          function,
          " reads a variable that the function writes to: it may read the new value "
          "then. Read it outside and pass the value");
    }
    inspected_[function] = variables;
    return variables;
  }

 private:
  static constexpr int kMaxDepth = 500;
  using Nodes = std::map<std::string_view, const pb::NodeDef*>;

  StatusOr<Variables> Look(const pb::FunctionDef& def) {
    Nodes nodes;
    for (const pb::NodeDef& node : def.node_def()) nodes[node.name()] = &node;
    const std::set<std::string_view> used = LeadToResults(def, nodes);
    Variables variables;
    for (const pb::NodeDef& node : def.node_def()) {
      MR_ASSIGN_OR_RETURN(const Variables done, Do(def, nodes, node));
      variables.written.insert(done.written.begin(), done.written.end());
      if (used.contains(node.name())) variables.read.insert(done.read.begin(), done.read.end());
    }
    return variables;
  }

  static std::set<std::string_view> LeadToResults(const pb::FunctionDef& def, const Nodes& nodes) {
    std::set<std::string_view> used;
    std::vector<std::string_view> stack;
    for (const auto& [name, source] : def.ret()) stack.push_back(SourceOf(source));
    while (!stack.empty()) {
      const auto node = nodes.find(stack.back());
      stack.pop_back();
      if (node == nodes.end() || !used.insert(node->first).second) continue;
      for (const std::string& input : node->second->input()) {
        if (!input.starts_with("^")) stack.push_back(SourceOf(input));
      }
    }
    return used;
  }

  // What one node does, in the names of the function around it.
  StatusOr<Variables> Do(const pb::FunctionDef& def, const Nodes& nodes, const pb::NodeDef& node) {
    std::vector<std::string> callees;
    if (graph_.library()->Find(node.op()) != nullptr) callees.push_back(node.op());
    for (const auto& [name, value] : node.attr()) {
      if (value.has_func()) callees.push_back(value.func().name());
      for (const pb::NameAttrList& callee : value.list().func()) callees.push_back(callee.name());
    }
    Variables done;
    for (const std::string& callee : callees) {
      MR_ASSIGN_OR_RETURN(const Variables inside, Inspect(callee));
      const auto here = [&](const std::string& variable) {
        if (!variable.starts_with('#')) return variable;
        return VariableOf(def, nodes, node, std::stoi(variable.substr(1)) + FirstArgument(node));
      };
      for (const auto& [variable, reader] : inside.read) done.read[here(variable)] = node.name();
      for (const std::string& variable : inside.written) done.written.insert(here(variable));
    }
    if (!callees.empty()) return done;
    const OpInfo* const op = graph_.ops().Find(node.op());
    if (op == nullptr || !op->def.is_stateful() || OnlyLooks(node.op()) || IsOfOneRun(node.op())) {
      return done;
    }
    if (ReadsVariable(node.op())) {
      done.read[VariableOf(def, nodes, node, 0)] = node.name();
    } else if (op->def.output_arg().empty()) {
      for (int i = 0; i < node.input_size() && !node.input(i).starts_with("^"); ++i) {
        done.written.insert(VariableOf(def, nodes, node, i));
      }
    } else {
      return errors::Unimplemented("the gradient of a call runs its function again, but {{node ",
                                   node.name(), "}} (op: ", node.op(), ") in function ",
                                   def.signature().name(), " would give something else then");
    }
    return done;
  }

  static int FirstArgument(const pb::NodeDef& node) {
    const std::string& op = node.op();
    if (op == "For") return 2;  // the body's first argument is the number
    return op == "If" || op == "StatelessIf" || op == "Case" || op == "StatelessCase" ? 1 : 0;
  }

  // The variable whose handle is input `index` of the node; a name of its own if that is no handle.
  static std::string VariableOf(const pb::FunctionDef& def, const Nodes& nodes,
                                const pb::NodeDef& node, int index) {
    const pb::NodeDef* at = &node;
    constexpr int kMaxSteps = 100;
    for (int step = 0; step < kMaxSteps && index < at->input_size(); ++step) {
      const std::string_view source = SourceOf(at->input(index));
      for (int arg = 0; arg < def.signature().input_arg_size(); ++arg) {
        if (def.signature().input_arg(arg).name() == source) return StrCat("#", arg);
      }
      const auto found = nodes.find(source);
      if (found == nodes.end()) break;
      at = found->second;
      if (at->op() == "VarHandleOp") {
        const auto name = at->attr().find("shared_name");
        const std::string shared = name == at->attr().end() ? "" : name->second.s();
        return shared.empty() ? at->name() : shared;
      }
      if (at->op() != "Identity") break;
      index = 0;
    }
    return StrCat(node.name(), ":", index);
  }

  const DataflowGraph& graph_;
  std::map<std::string, Variables> inspected_;
  int depth_ = 0;
};

}  // namespace

Status CheckRunsAgain(const Node& node, const DataflowGraph& graph) {
  Inspection inspection(graph);
  if (graph.IsCall(node)) return inspection.Inspect(node.type()).status();
  std::vector<std::string> names;
  for (const auto& [name, value] : node.attrs()) AddMentioned(value, &names);
  for (const std::string& name : names) MR_RETURN_IF_ERROR(inspection.Inspect(name).status());
  return OkStatus();
}

}  // namespace millrace
