// SPDX-License-Identifier: Apache-2.0
#include "frontend/function_export.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/body_names.h"
#include "graph/graph_def_io.h"

namespace millrace {
namespace {

// Stateful ops that need not run where nobody uses what they give.
bool OnlyReads(const Node& node) {
  static constexpr std::string_view kOps[] = {"ReadVariableOp", "VarHandleOp",        "Variable",
                                              "VariableV2",     "VarIsInitializedOp", "_Arg",
                                              "VariableShape",  "TensorArraySizeV3"};
  return std::find(std::begin(kOps), std::end(kOps), node.type()) != std::end(kOps);
}

class Exporter {
 public:
  explicit Exporter(const std::vector<ExportedArg>& args) {
    for (const ExportedArg& arg : args) args_[arg.node.op().node()] = arg.name;
  }

  StatusOr<pb::FunctionDef> Run(const GraphState& body, const std::string& name,
                                const std::vector<ExportedArg>& args,
                                const std::vector<Output>& results) {
    signature().set_name(name);
    for (const ExportedArg& arg : args) {
      SetArg(arg.name, arg.node.dtype(), signature().add_input_arg());
    }
    for (const Node* node : body.graph->OpNodes()) {
      if (!args_.contains(node)) MR_RETURN_IF_ERROR(AddNode(*body.graph, *node));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string result = StrCat("result", i);
      SetArg(result, results[i].dtype(), signature().add_output_arg());
      MR_ASSIGN_OR_RETURN((*def_.mutable_ret())[result],
                          NameOf(*results[i].op().node(), results[i].index()));
    }
    return std::move(def_);
  }

 private:
  pb::OpDef& signature() { return *def_.mutable_signature(); }

  static void SetArg(const std::string& name, DataType dtype, pb::OpDef::ArgDef* arg) {
    pb::AttrValue value;
    AttrToProto(AttrValue(BaseType(dtype)), &value);
    arg->set_name(name);
    arg->set_type(value.type());
  }

  // How inputs of a body are written: "argument", "node:output:index".
  StatusOr<std::string> NameOf(const Node& node, int output) const {
    if (const auto arg = args_.find(&node); arg != args_.end()) return arg->second;
    return BodyTensorName(node, output);
  }

  Status AddNode(const DataflowGraph& graph, const Node& node) {
    if (node.type() == "Placeholder") {
      return errors::InvalidArgument("the placeholder ", node.name(), " (", node.origin(),
                                     ") is in a function, where nothing can be fed: make it an ",
                                     "argument, or make it before the function");
    }
    pb::NodeDef& def = *def_.add_node_def();
    ExportNode(node, {}, &def);
    DropOuterGroups(graph, node, &def);
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Edge* const edge = node.input_edge(i);
      if (edge == nullptr) {
        return errors::InvalidArgument("input ", i, " of ", node.name(), " is not connected");
      }
      MR_ASSIGN_OR_RETURN(*def.add_input(), NameOf(*edge->src, edge->src_output));
    }
    for (const Edge* edge : node.in_edges()) {
      if (!edge->IsControl() || !edge->src->IsOp() || args_.contains(edge->src)) continue;
      def.add_input(StrCat("^", edge->src->name()));
    }
    if (!node.is_stateful()) return OkStatus();
    signature().set_is_stateful(true);
    if (OnlyReads(node)) return OkStatus();
    (*def_.mutable_control_ret())[node.name()] = node.name();
    signature().add_control_output(node.name());
    return OkStatus();
  }

  // Nodes of the graph around it are not there to be followed.
  static void DropOuterGroups(const DataflowGraph& graph, const Node& node, pb::NodeDef* def) {
    if (!node.attrs().Has("_class")) return;
    std::vector<std::string> groups = node.attrs().GetOr<std::vector<std::string>>("_class", {});
    std::erase_if(groups, [&](const std::string& group) {
      constexpr std::string_view kGroup = "loc:@";
      return group.starts_with(kGroup) && graph.FindNode(group.substr(kGroup.size())) == nullptr;
    });
    def->mutable_attr()->erase("_class");
    if (!groups.empty()) AttrToProto(AttrValue(groups), &(*def->mutable_attr())["_class"]);
  }

  std::map<const Node*, std::string> args_;
  pb::FunctionDef def_;
};

}  // namespace

StatusOr<pb::FunctionDef> ExportFunction(const GraphState& body, const std::string& name,
                                         const std::vector<ExportedArg>& args,
                                         const std::vector<Output>& results) {
  return Exporter(args).Run(body, name, args, results);
}

}  // namespace millrace
