// SPDX-License-Identifier: Apache-2.0
#include "eager/program.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// An argument or result of the body, by its place.
StatusOr<Node*> AddEnd(DataflowGraph* graph, const char* op, DataType type, int index,
                       const std::string& device) {
  AttrMap attrs;
  attrs.Set("T", BaseType(type));
  attrs.Set("index", index);
  MR_ASSIGN_OR_RETURN(Node* const node, graph->AddNode(graph->NewName(op), op, std::move(attrs)));
  node->set_assigned_device(device);
  return node;
}

}  // namespace

StatusOr<std::shared_ptr<const EagerProgram>> EagerProgram::Make(const ProgramEnv& env,
                                                                 const FunctionBody& body) {
  if (env.admit != nullptr) {
    const Status admitted = env.admit(*body.graph);
    if (!admitted.ok()) return Annotate(admitted, StrCat(" (", env.worker->task, ")"));
  }
  std::shared_ptr<EagerProgram> made(new EagerProgram);
  for (const Node* node : body.graph->OpNodes()) {
    const std::string& type = node->type();
    if (type == "_Arg" || type == "_Retval") continue;
    const bool transfers = type == "_Send" || type == "_Recv";
    made->communicates_ = made->communicates_ || transfers;
    made->is_stateful_ = made->is_stateful_ || (node->is_stateful() && !transfers);
    Device* const device = env.resources->FindDevice(node->assigned_device());
    if (device != nullptr &&
        std::find(made->devices_.begin(), made->devices_.end(), device) == made->devices_.end()) {
      made->devices_.push_back(device);
    }
  }
  made->runtime_ = MakeRef<FunctionRuntime>(*env.worker, env.resources, body.graph->library());
  MR_ASSIGN_OR_RETURN(made->function_, made->runtime_->MakePlaced(body));
  return std::shared_ptr<const EagerProgram>(std::move(made));
}

StatusOr<std::unique_ptr<FunctionBody>> MakeOpBody(
    const OpRegistry& ops, const std::shared_ptr<const FunctionLibrary>& library,
    const std::string& name, AttrMap attrs, const std::string& device) {
  auto body = std::make_unique<FunctionBody>();
  body->name = name;
  body->graph = std::make_unique<DataflowGraph>(&ops);
  body->graph->set_library(library);
  DataflowGraph* const graph = body->graph.get();
  MR_ASSIGN_OR_RETURN(Node* const node, graph->AddNode(name, name, std::move(attrs)));
  node->set_assigned_device(device);
  for (int i = 0; i < node->num_inputs(); ++i) {
    MR_ASSIGN_OR_RETURN(Node* const arg, AddEnd(graph, "_Arg", node->input_types()[i], i, device));
    MR_RETURN_IF_ERROR(graph->AddEdge(arg, 0, node, i).status());
    body->args.push_back(arg);
  }
  for (int i = 0; i < node->num_outputs(); ++i) {
    MR_ASSIGN_OR_RETURN(Node* const result,
                        AddEnd(graph, "_Retval", node->output_types()[i], i, device));
    MR_RETURN_IF_ERROR(graph->AddEdge(node, i, result, 0).status());
    body->results.push_back(result);
  }
  graph->FixSourceAndSink();
  return body;
}

}  // namespace millrace
