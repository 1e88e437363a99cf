// SPDX-License-Identifier: Apache-2.0
#include "eager/part_export.h"

#include <map>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/body_names.h"
#include "graph/graph_def_io.h"

namespace millrace {
namespace {

class PartExporter {
 public:
  StatusOr<pb::RegisterFunctionOp> Run(const FunctionBody& part) {
    signature().set_name(part.name);
    for (std::size_t i = 0; i < part.args.size(); ++i) {
      const std::string name = StrCat("millrace_arg_", i);
      args_[part.args[i]] = name;
      AddArg(name, part.args[i]->output_types()[0], signature().add_input_arg());
    }
    for (std::size_t i = 0; i < part.results.size(); ++i) {
      const std::string name = StrCat("millrace_result_", i);
      AddArg(name, part.results[i]->input_types()[0], signature().add_output_arg());
      MR_ASSIGN_OR_RETURN((*def().mutable_ret())[name], NameOf(*part.results[i], 0));
    }
    for (const Node* node : part.graph->OpNodes()) {
      if (node->type() != "_Arg" && node->type() != "_Retval") MR_RETURN_IF_ERROR(AddNode(*node));
    }
    if (part.graph->library() != nullptr) part.graph->library()->ToProto(op_.mutable_library());
    op_.set_is_component_function(true);
    return std::move(op_);
  }

 private:
  pb::FunctionDef& def() { return *op_.mutable_function_def(); }
  pb::OpDef& signature() { return *def().mutable_signature(); }

  static void AddArg(const std::string& name, DataType type, pb::OpDef::ArgDef* arg) {
    arg->set_name(name);
    arg->set_type(static_cast<pb::DataType>(BaseType(type)));
  }

  // Of what input `i` of the node reads.
  StatusOr<std::string> NameOf(const Node& node, int i) const {
    const Edge* const edge = node.input_edge(i);
    if (edge == nullptr) {
      return errors::Internal("input ", i, " of ", node.name(), " is not connected");
    }
    const auto arg = args_.find(edge->src);
    if (arg != args_.end()) return arg->second;
    return BodyTensorName(*edge->src, edge->src_output);
  }

  Status AddNode(const Node& node) {
    pb::NodeDef& written = *def().add_node_def();
    ExportNode(node, {}, &written);
    for (int i = 0; i < node.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(*written.add_input(), NameOf(node, i));
    }
    for (const Edge* edge : node.in_edges()) {
      if (!edge->IsControl() || !edge->src->IsOp()) continue;
      const auto arg = args_.find(edge->src);
      written.add_input(StrCat("^", arg != args_.end() ? arg->second : edge->src->name()));
    }
    if (!node.is_stateful()) return OkStatus();
    signature().set_is_stateful(true);
    signature().add_control_output(node.name());
    (*def().mutable_control_ret())[node.name()] = node.name();
    return OkStatus();
  }

  std::map<const Node*, std::string> args_;
  pb::RegisterFunctionOp op_;
};

}  // namespace

StatusOr<pb::RegisterFunctionOp> ExportPart(const FunctionBody& part) {
  return PartExporter().Run(part);
}

}  // namespace millrace
