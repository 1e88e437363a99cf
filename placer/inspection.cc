// SPDX-License-Identifier: Apache-2.0
#include "placer/inspection.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/functions/function_body.h"
#include "graph/functions/isolate_calls.h"
#include "placer/colocation.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxDepth = 100;

std::string InNode(std::string_view name) { return StrCat("{{node ", name, "}}"); }
std::string InFunction(std::string_view name) { return StrCat("{{function_node ", name, "}}"); }

}  // namespace

StatusOr<const IoGroups*> Inspection::Look(const DataflowGraph& graph, const Node& call) {
  const auto function = call.attrs().GetOr<FunctionName>("f", {});
  MR_RETURN_IF_ERROR(CheckStack(call, function.name));
  std::string key = FunctionKey(function);
  if (const auto known = known_.find(key); known != known_.end()) return known->second.get();
  if (graph.library() == nullptr || graph.library()->Find(function.name) == nullptr) {
    return errors::InvalidArgument("Failed to find function \"", function.name,
                                   "\" in function library, called by ", InNode(call.name()));
  }
  stack_.push_back({stack_.empty() ? "" : stack_.back().callee, call.name(), function.name});
  StatusOr<IoGroups> groups = LookInto(graph, function);
  stack_.pop_back();
  if (!groups.ok()) {
    return Annotate(groups.status(), StrCat("\n\t in ", InFunction(function.name), ", called by ",
                                            InNode(call.name())));
  }
  auto made = std::make_unique<IoGroups>(*std::move(groups));
  return known_.emplace(std::move(key), std::move(made)).first->second.get();
}

Status Inspection::CheckStack(const Node& call, const std::string& callee) const {
  const bool is_open = std::any_of(stack_.begin(), stack_.end(),
                                   [&](const Frame& frame) { return frame.callee == callee; });
  if (!is_open && stack_.size() < kMaxDepth) return OkStatus();
  if (!is_open) {
    return errors::ResourceExhausted("functions that return resources call each other more than ",
                                     kMaxDepth, " deep; the last one is ", callee);
  }
  std::string calls;
  for (const Frame& frame : stack_) {
    StrAppend(&calls, "\n  ",
              frame.function.empty() ? "Graph" : StrCat("Function ", InFunction(frame.function)),
              " contains node ", InNode(frame.node), "\n  Node ", InNode(frame.node),
              " calls function ", InFunction(frame.callee));
  }
  return errors::Unimplemented(
      "Recursive function calls are not supported. Node ", InNode(call.name()),
      " inside the body of ", InFunction(stack_.back().callee), " calls function ",
      InFunction(callee), " which is already present in the call stack:", calls);
}

StatusOr<IoGroups> Inspection::LookInto(const DataflowGraph& graph, const FunctionName& function) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<FunctionBody> body,
                      InstantiateFunction(graph.ops(), graph.library(), function));
  MR_RETURN_IF_ERROR(IsolateCalls(2, body->graph.get()));
  Colocation groups(*body->graph, input_, table_, nullptr, this);
  MR_RETURN_IF_ERROR(groups.Build());
  IoGroups io;
  io.function = function.name;
  absl::flat_hash_map<int, int> numbers;  // by root
  const auto number = [&](const Node& node) {
    const auto [slot, added] =
        numbers.try_emplace(groups.GroupOf(node), static_cast<int>(io.requests.size()));
    if (added) io.requests.push_back(groups.RequestOf(node));
    return slot->second;
  };
  for (const Node* arg : body->args) io.of_arg.push_back(number(*arg));
  for (const Node* result : body->results) io.of_result.push_back(number(*result));
  return io;
}

// The part of Colocation that asks it.

Status Colocation::LookIntoCalls() {
  if (graph_.library() == nullptr) return OkStatus();
  // The last one first: TensorFlow goes through a hash set of them, into which new ones go in
  // front.
  for (int id = graph_.num_node_ids() - 1; id >= 0; --id) {
    const Node* node = graph_.node(id);
    if (node == nullptr || !node->IsOp() || !ReturnsResources(*node)) continue;
    const StatusOr<const IoGroups*> groups = inspection_->Look(graph_, *node);
    Status status = groups.status();
    if (status.ok()) status = Apply(**groups, *node);
    if (!status.ok()) {
      culprit_ = node;
      return status;
    }
  }
  return OkStatus();
}

Status Colocation::Apply(const IoGroups& groups, const Node& call) {
  if (static_cast<int>(groups.of_arg.size()) != call.num_inputs() ||
      static_cast<int>(groups.of_result.size()) != call.num_outputs()) {
    return errors::InvalidArgument(
        "{{node ", call.name(), "}} has ", call.num_inputs(), " inputs and ", call.num_outputs(),
        " outputs, but its function ", groups.function, " takes ", groups.of_arg.size(),
        " arguments and returns ", groups.of_result.size());
  }
  struct Neighbour {
    const Node* node;
    bool takes_resource;  // from the call
    std::string what;
  };
  std::vector<std::vector<Neighbour>> neighbours(groups.requests.size());
  for (int i = 0; i < call.num_inputs(); ++i) {
    const Edge* edge = call.input_edge(i);
    if (edge == nullptr) continue;
    neighbours[groups.of_arg[i]].push_back({edge->src, false, StrCat("argument ", i)});
  }
  for (const Edge* edge : call.out_edges()) {
    if (edge->IsControl()) continue;
    neighbours[groups.of_result[edge->src_output]].push_back(
        {edge->dst, edge->dst->input_types()[edge->dst_input] == kResource,
         StrCat("result ", edge->src_output)});
  }
  for (const std::vector<Neighbour>& together : neighbours) {
    for (std::size_t i = 1; i < together.size(); ++i) {
      const Node &first = *together[0].node, &other = *together[i].node;
      const std::string why = StrCat(together[0].what, " and ", together[i].what, " of ",
                                     groups.function, ", which ", call.name(), " calls");
      MR_RETURN_IF_ERROR(JoinThroughCall(first, other, together[i].takes_resource, why));
    }
  }
  for (std::size_t g = 0; g < neighbours.size(); ++g) {
    if (neighbours[g].empty()) continue;
    MR_RETURN_IF_ERROR(Limit(*neighbours[g][0].node, groups.requests[g], groups.function));
  }
  return OkStatus();
}

Status Colocation::JoinThroughCall(const Node& first, const Node& other, bool is_resource,
                                   const std::string& why) {
  if (is_resource) {
    const int first_root = Root(first.id()), other_root = Root(other.id());
    if (first_root == other_root) return OkStatus();
    MR_RETURN_IF_ERROR(MakeRoom(first, other, first_root, other_root));
  }
  bool joined = false;
  const Status status = Join(first, other, &joined);
  if (!status.ok()) return Annotate(status, StrCat("\n\t They are ", why));
  if (log_ != nullptr && joined) {
    log_->AddJoin(JoinReason::kFunction, first.id(), other.id(), -1, why, Asks(other));
  }
  return OkStatus();
}

// What the function asks for is asked of the group outside, too.
Status Colocation::Limit(const Node& node, const GroupConstraints& inside,
                         const std::string& function) {
  GroupConstraints& request = members_[Root(node.id())].request;
  SpecPool& specs = table_->specs();
  const auto cannot = [&](const Status& status) {
    return errors::InvalidArgument(Message(status), "; {{function_node ", function,
                                   "}} asks this of {{colocation_node ", node.name(), "}}");
  };
  const StatusOr<int> requested =
      specs.Merge(request.requested, inside.requested, input_.allow_soft_placement);
  if (!requested.ok()) return cannot(requested.status());
  const StatusOr<int> resource = specs.Merge(request.resource, inside.resource, /*soft=*/false);
  if (!resource.ok()) return cannot(resource.status());
  const bool changes = request.requested != *requested || request.resource != *resource;
  request.requested = *requested;
  request.resource = *resource;
  const int types = table_->Intersect(request.types, inside.types);
  if (!table_->type_list(types).empty()) request.types = types;
  if (log_ != nullptr && changes) {
    log_->AddNote(node.id(), StrCat("function ", function, " asks for ", specs.Text(*requested)));
  }
  return OkStatus();
}

}  // namespace millrace
