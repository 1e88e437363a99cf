// SPDX-License-Identifier: Apache-2.0
#include "eager/function_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "device/device_name.h"
#include "eager/part_export.h"
#include "graph/functions/function_body.h"
#include "graph/functions/function_inline.h"
#include "graph/lowering/lower_functions.h"
#include "partitioner/partition.h"
#include "placer/placer.h"
#include "worker/placer_kernels.h"

namespace millrace {

std::string TaskOfDevice(const std::string& device) {
  const StatusOr<DeviceName> name = DeviceName::Parse(device);
  return name.ok() ? TaskName(*name) : "";
}

namespace {

Status CheckArgs(const FunctionBody& body, const PlanInput& input) {
  const std::size_t count =
      input.arg_widths.empty() ? input.arg_devices.size() : input.arg_widths.size();
  if (body.args.size() == count) return OkStatus();
  return errors::InvalidArgument("function ", input.function.name, " takes ", body.args.size(),
                                 " arguments, the call has ", count);
}

// Which of the devices the node asks for; the first one if it asks for none of them.
std::size_t FindOwnDevice(const Node& node, std::span<const std::string> devices) {
  const StatusOr<DeviceName> wanted = DeviceName::Parse(node.requested_device());
  if (!wanted.ok() || wanted->empty()) return 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const StatusOr<DeviceName> device = DeviceName::Parse(devices[i]);
    if (device.ok() && wanted->Matches(*device)) return i;
  }
  return 0;
}

// Gives a packed argument a node for each of its inputs; the arguments are the inputs then.
Status Unpack(const PlanInput& input, FunctionBody* body) {
  if (input.arg_widths.empty()) return OkStatus();
  DataflowGraph& graph = *body->graph;
  std::vector<Node*> args;
  for (std::size_t i = 0; i < body->args.size(); ++i) {
    Node* const arg = body->args[i];
    const std::span devices =
        std::span(input.arg_devices)
            .subspan(args.size(), static_cast<std::size_t>(input.arg_widths[i]));
    std::vector<Node*> own = {arg};
    while (own.size() < devices.size()) {
      MR_ASSIGN_OR_RETURN(own.emplace_back(), graph.AddNodeLike(graph.NewName(arg->name()), *arg));
    }
    const std::vector<Edge*> edges(arg->out_edges().begin(), arg->out_edges().end());
    for (Edge* edge : edges) {
      Node* const reader = edge->dst;
      const std::size_t which = edge->IsControl() ? 0 : FindOwnDevice(*reader, devices);
      if (which == 0) continue;
      const int slot = edge->dst_input;
      graph.RemoveEdge(edge);
      MR_RETURN_IF_ERROR(graph.AddEdge(own[which], 0, reader, slot).status());
    }
    args.insert(args.end(), own.begin(), own.end());
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    args[i]->mutable_attrs().Set("index", static_cast<int64_t>(i));
  }
  body->args = std::move(args);
  return OkStatus();
}

// The node that asks for the device of a result, behind identities that ask for nothing; null if
// none does.
const Node* WhoPlacesResult(const Node& result, std::vector<Node*>* identities) {
  const Edge* edge = result.input_edge(0);
  while (edge != nullptr && edge->src->type() == "Identity" &&
         edge->src->requested_device().empty()) {
    identities->push_back(edge->src);
    edge = edge->src->input_edge(0);
  }
  if (edge == nullptr || edge->src->requested_device().empty()) return nullptr;
  return edge->src;
}

// Results stay where they are asked to be made, as with TensorFlow.
void PinEnds(const PlanInput& input, FunctionBody* body) {
  for (std::size_t i = 0; i < body->args.size(); ++i) {
    body->args[i]->set_assigned_device(input.arg_devices[i]);
  }
  for (Node* result : body->results) {
    std::vector<Node*> identities;
    const Node* const source = WhoPlacesResult(*result, &identities);
    if (source == nullptr) continue;
    result->set_requested_device(source->requested_device());
    for (Node* identity : identities) identity->set_requested_device(source->requested_device());
  }
}

// Takes away the nodes that keep the name and outputs of what was lowered, so that these can be
// fetched: nobody fetches from a body, and one node cannot be with resources of several tasks. Who
// waits for such a node waits for its inputs.
Status DropStandIns(DataflowGraph* graph) {
  for (Node* node : graph->OpNodes()) {
    const auto is_data = [](const Edge* edge) { return !edge->IsControl(); };
    if (!node->attrs().Has(kStandsForInputs) ||
        std::any_of(node->out_edges().begin(), node->out_edges().end(), is_data)) {
      continue;
    }
    MR_ASSIGN_OR_RETURN(Node* const waits,
                        graph->AddNode(graph->NewName(node->name()), "NoOp", AttrMap()));
    for (const Edge* edge : node->in_edges()) {
      if (edge->src->IsOp()) graph->AddControlEdge(edge->src, waits);
    }
    for (const Edge* edge : node->out_edges()) {
      if (edge->dst->IsOp()) graph->AddControlEdge(waits, edge->dst);
    }
    graph->RemoveNode(node);
  }
  graph->FixSourceAndSink();
  return OkStatus();
}

Status PlaceBody(const ProgramEnv& env, const PlanInput& input, DataflowGraph* graph) {
  PlacerInput placing;
  const std::string task = TaskOfDevice(input.device);
  for (const auto& [name, type] : input.cluster->devices) {
    placing.devices.push_back({name, type, TaskOfDevice(name) == task});
  }
  SetKernels(env.worker->kernels, &placing);
  placing.default_local_device = input.device;
  placing.allow_soft_placement = true;
  return Place(graph, placing, nullptr);
}

// The arguments or results of one part, numbered anew; returns the numbers that they had.
StatusOr<std::vector<int>> Renumber(const char* op, DataflowGraph* graph,
                                    std::vector<Node*>* ends) {
  std::vector<std::pair<int, Node*>> found;
  for (Node* node : graph->OpNodes()) {
    if (node->type() != op) continue;
    MR_ASSIGN_OR_RETURN(const int64_t index, node->attrs().Get<int64_t>("index"));
    found.emplace_back(static_cast<int>(index), node);
  }
  std::sort(found.begin(), found.end());
  std::vector<int> numbers;
  ends->clear();
  for (const auto& [number, node] : found) {
    node->mutable_attrs().Set("index", static_cast<int64_t>(numbers.size()));
    numbers.push_back(number);
    ends->push_back(node);
  }
  return numbers;
}

class Planner {
 public:
  Planner(const ProgramEnv& env, const PlanInput& input)
      : env_(env), input_(input), plan_(std::make_shared<FunctionPlan>()) {}

  StatusOr<std::shared_ptr<const FunctionPlan>> Run(std::unique_ptr<FunctionBody> body) {
    MR_RETURN_IF_ERROR(LowerBody(nullptr, body.get()));
    MR_RETURN_IF_ERROR(DropStandIns(body->graph.get()));
    MR_RETURN_IF_ERROR(Unpack(input_, body.get()));
    PinEnds(input_, body.get());
    // Nobody else is asked for what nobody reads.
    for (Node* arg : body->args) {
      const bool is_read = std::any_of(arg->out_edges().begin(), arg->out_edges().end(),
                                       [](const Edge* edge) { return edge->dst->IsOp(); });
      if (!is_read && TaskOfDevice(arg->assigned_device()) != env_.worker->task) {
        body->graph->RemoveNode(arg);
      }
    }
    MR_RETURN_IF_ERROR(PlaceBody(env_, input_, body->graph.get()));
    plan_->result_devices.resize(body->results.size());
    for (std::size_t i = 0; i < body->results.size(); ++i) {
      const std::string& device = body->results[i]->assigned_device();
      if (TaskOfDevice(device) != env_.worker->task) plan_->result_devices[i] = device;
    }
    const std::string name = body->name;
    MR_ASSIGN_OR_RETURN(std::vector<Partition> parts, CutByTask(*body->graph));
    for (Partition& part : parts) {
      FunctionBody cut;
      cut.name = name;
      cut.graph = std::move(part.graph);
      MR_RETURN_IF_ERROR(part.location == env_.worker->task ? AddOwn(std::move(cut))
                                                            : AddRemote(part.location, &cut));
    }
    return std::shared_ptr<const FunctionPlan>(std::move(plan_));
  }

  // Takes the whole body as it is.
  StatusOr<std::shared_ptr<const FunctionPlan>> TakeWhole(std::unique_ptr<FunctionBody> body) {
    for (Node* node : body->graph->OpNodes()) {
      const std::string& wanted = node->requested_device();
      node->set_assigned_device(wanted.empty() ? input_.device : wanted);
    }
    plan_->result_devices.resize(body->results.size());
    MR_RETURN_IF_ERROR(AddOwn(std::move(*body)));
    return std::shared_ptr<const FunctionPlan>(std::move(plan_));
  }

 private:
  StatusOr<std::vector<Partition>> CutByTask(const DataflowGraph& graph) const {
    int next_name = 0;
    PartitionOptions cut;
    cut.node_to_location = [](const Node& node) { return TaskOfDevice(node.assigned_device()); };
    cut.new_name = [&next_name](std::string_view prefix) {
      return StrCat(prefix, "_S", next_name++);
    };
    cut.get_incarnation = [this](std::string_view device) -> uint64_t {
      const auto it = input_.cluster->incarnations.find(device);
      return it == input_.cluster->incarnations.end() ? 0 : it->second;
    };
    return PartitionGraph(graph, cut);
  }

  Status AddOwn(FunctionBody body) {
    MR_ASSIGN_OR_RETURN(plan_->own_args, Renumber("_Arg", body.graph.get(), &body.args));
    MR_ASSIGN_OR_RETURN(plan_->own_results, Renumber("_Retval", body.graph.get(), &body.results));
    MR_ASSIGN_OR_RETURN(plan_->own, EagerProgram::Make(env_, body));
    return OkStatus();
  }

  Status AddRemote(const std::string& task, FunctionBody* body) {
    auto part = std::make_unique<RemotePart>();
    part->task = task;
    part->device = body->graph->OpNodes().front()->assigned_device();
    part->name = StrCat(input_.part_prefix, "_", plan_->remote.size());
    body->name = part->name;
    MR_ASSIGN_OR_RETURN(part->args, Renumber("_Arg", body->graph.get(), &body->args));
    MR_ASSIGN_OR_RETURN(part->results, Renumber("_Retval", body->graph.get(), &body->results));
    MR_ASSIGN_OR_RETURN(part->registration, ExportPart(*body));
    plan_->remote.push_back(std::move(part));
    return OkStatus();
  }

  const ProgramEnv& env_;
  const PlanInput& input_;
  std::shared_ptr<FunctionPlan> plan_;
};

}  // namespace

StatusOr<std::shared_ptr<const FunctionPlan>> PlanFunction(const ProgramEnv& env,
                                                           const PlanInput& input) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<FunctionBody> body,
                      InstantiateFunction(*env.worker->ops, input.library, input.function));
  MR_RETURN_IF_ERROR(CheckArgs(*body, input));
  return Planner(env, input).Run(std::move(body));
}

StatusOr<std::shared_ptr<const FunctionPlan>> PlanComponent(const ProgramEnv& env,
                                                            const PlanInput& input) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<FunctionBody> body,
                      InstantiateFunction(*env.worker->ops, input.library, input.function));
  MR_RETURN_IF_ERROR(CheckArgs(*body, input));
  return Planner(env, input).TakeWhole(std::move(body));
}

}  // namespace millrace
