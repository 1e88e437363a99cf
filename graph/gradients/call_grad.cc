// SPDX-License-Identifier: Apache-2.0
// Derivatives of nodes that run functions: SymbolicGradient of the function, which is made when
// that node is put into a graph or first run. Branches and loops, calls by name, and calls that
// take variables become functions of their own first, which consist of that one node.
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "graph/function_library.h"
#include "graph/gradients/grad_util.h"
#include "graph/gradients/runs_again.h"
#include "graph/graph_def_io.h"

namespace millrace {
namespace {

bool IsPartitionedCall(std::string_view op) {
  return op == "PartitionedCall" || op == "StatefulPartitionedCall";
}

// A function that does what the node does. Of variables it is given it reads the value too, so
// that the derivative has their shapes.
class FunctionOfNode {
 public:
  explicit FunctionOfNode(GradContext& c) : c_(c), node_(*c.op().node()) {}

  StatusOr<FunctionName> Define(const std::vector<DataType>& variables) {
    GraphState& state = *c_.scope().graph();
    std::string name = "function_of_";
    for (const char ch : node_.name())
      name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
    name = state.UniqueName(name);
    pb::FunctionDefLibrary library;
    pb::FunctionDef& def = *library.add_function();
    pb::OpDef& signature = *def.mutable_signature();
    signature.set_name(name);
    signature.set_is_stateful(node_.is_stateful());
    pb::NodeDef& node = *def.add_node_def();
    node.set_name("node");
    node.set_op(node_.type());
    for (const auto& [key, value] : node_.attrs()) {
      AttrToProto(value, &(*node.mutable_attr())[key]);
    }
    (*node.mutable_attr())["_lower_using_switch_merge"].set_b(true);
    node.mutable_attr()->erase("_class");
    for (int i = 0; i < node_.num_inputs(); ++i) {
      const std::string arg = StrCat("x", i);
      AddArg(arg, BaseType(node_.input_types()[i]), signature.add_input_arg());
      node.add_input(arg);
      if (variables[i] == DataType::kInvalid) continue;
      pb::NodeDef& read = *def.add_node_def();
      read.set_name(StrCat("read", i));
      read.set_op("ReadVariableOp");
      read.add_input(arg);
      AttrToProto(AttrValue(variables[i]), &(*read.mutable_attr())["dtype"]);
    }
    MR_RETURN_IF_ERROR(AddResults(&def));
    MR_ASSIGN_OR_RETURN(auto extended, FunctionLibrary::Extend(state.graph->library(), library));
    state.graph->set_library(std::move(extended));
    return FunctionName{name, {}};
  }

 private:
  static void AddArg(const std::string& name, DataType type, pb::OpDef::ArgDef* arg) {
    arg->set_name(name);
    pb::AttrValue value;
    AttrToProto(AttrValue(type), &value);
    arg->set_type(value.type());
  }
  // Outputs are named by the op's signature.
  Status AddResults(pb::FunctionDef* def) {
    const pb::OpDef& op = node_.op().def;
    for (int i = 0; i < node_.num_outputs(); ++i) {
      AddArg(StrCat("y", i), BaseType(node_.output_types()[i]),
             def->mutable_signature()->add_output_arg());
    }
    int index = 0;
    for (const pb::OpDef::ArgDef& arg : op.output_arg()) {
      int begin = 0, end = 0;
      MR_RETURN_IF_ERROR(ArgRange(op, node_.attrs(), arg.name(), /*is_input=*/false, &begin, &end));
      for (int i = begin; i < end; ++i, ++index) {
        (*def->mutable_ret())[StrCat("y", index)] = StrCat("node:", arg.name(), ":", i - begin);
      }
    }
    return OkStatus();
  }

  GradContext& c_;
  const Node& node_;
};

}  // namespace

Status CallGrad(GradContext& c) {
  const Node& node = *c.op().node();
  const GraphState& state = *c.scope().graph();
  MR_RETURN_IF_ERROR(CheckRunsAgain(node, *state.graph));
  const Scope& s = c.scope();
  std::vector<Input> inputs;
  std::vector<DataType> types, variables(c.op().num_inputs(), DataType::kInvalid);
  bool takes_variables = false;
  for (int i = 0; i < c.op().num_inputs(); ++i) {
    const Output x = c.x(i);
    inputs.push_back(x);
    types.push_back(BaseType(x.dtype()));
    if (types.back() != kResource) continue;
    types.back() = kFloat;
    if (x.op().type().starts_with("TensorArray")) {
      return errors::Unimplemented("the gradient of a call that takes a tensor array (", x.name(),
                                   ")");
    }
    if (!c.needs_dx(i)) continue;
    const HandleShape* const handle = state.shapes.handle(x.op().node(), x.index());
    if (handle == nullptr || handle->dtype == DataType::kInvalid) {
      return errors::Unimplemented("the gradient of a call that takes a resource of unknown type (",
                                   x.name(), ")");
    }
    types.back() = variables[i] = handle->dtype;
    takes_variables = true;
  }
  FunctionName function;
  if (IsPartitionedCall(node.type()) && !takes_variables) {
    MR_ASSIGN_OR_RETURN(function, node.attrs().Get<FunctionName>("f"));
  } else {
    MR_ASSIGN_OR_RETURN(function, FunctionOfNode(c).Define(variables));
  }
  for (int i = 0; i < c.op().num_outputs(); ++i) {
    inputs.push_back(c.dy(i).valid() ? c.dy(i) : ops::ZerosLike(s, c.y(i)));
  }
  const std::vector<Output> dxs = ops::SymbolicGradient(s, inputs, types, function);
  MR_RETURN_IF_ERROR(s.status());
  for (int i = 0; i < c.op().num_inputs(); ++i) {
    if (c.needs_dx(i)) c.set_dx(i, dxs[i]);
  }
  return OkStatus();
}

void RegisterCallGradients(GradientRegistry& r) {
  for (const char* op : {"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "If",
                         "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile"}) {
    r.Register(op, CallGrad);
  }
}

}  // namespace millrace
