// SPDX-License-Identifier: Apache-2.0
#include "graph/functions/function_inline.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "device/device_name.h"

namespace millrace {
namespace {

bool IsArg(const Node& node) { return node.type() == "_Arg" || node.type() == "_DeviceArg"; }
bool IsRetval(const Node& node) {
  return node.type() == "_Retval" || node.type() == "_DeviceRetval";
}
bool IsSwitch(const Node& node) { return node.type() == "Switch" || node.type() == "RefSwitch"; }
bool OpensControlFlow(const Node& node) {
  return IsSwitch(node) || node.type() == "Enter" || node.type() == "RefEnter";
}

// Stateful ops that nobody can tell to have run.
bool OnlyReads(const Node& node) {
  static constexpr std::string_view kOps[] = {
      "Placeholder", "ReadVariableOp", "VarHandleOp",        "Variable",      "VariableV2",
      "_Arg",        "_Retval",        "VarIsInitializedOp", "VariableShape", "TensorArraySizeV3"};
  return std::find(std::begin(kOps), std::end(kOps), node.type()) != std::end(kOps);
}

// Marks what can be reached from the marked nodes, along the edges or against them.
void Spread(const DataflowGraph& graph, bool forward, std::vector<bool>* marked) {
  std::vector<const Node*> stack;
  for (int id = 2; id < graph.num_node_ids(); ++id) {
    if ((*marked)[id]) stack.push_back(graph.node(id));
  }
  while (!stack.empty()) {
    const Node* const node = stack.back();
    stack.pop_back();
    for (const Edge* edge : forward ? node->out_edges() : node->in_edges()) {
      const Node* const next = forward ? edge->dst : edge->src;
      if ((*marked)[next->id()]) continue;
      (*marked)[next->id()] = true;
      stack.push_back(next);
    }
  }
}

// What runs for its effects, and is not done already when any one of the outputs is there.
std::vector<const Node*> LooseEffects(const FunctionBody& body, InlineSite::Effects effects) {
  if (effects == InlineSite::Effects::kNone) return {};
  const bool all = effects == InlineSite::Effects::kAll;
  const DataflowGraph& graph = *body.graph;
  std::vector<bool> effect(graph.num_node_ids());
  for (const Node* node : body.effects) effect[node->id()] = true;
  for (const Node* node : graph.OpNodes()) {
    if (all && node->is_stateful() && !OnlyReads(*node)) effect[node->id()] = true;
  }
  std::vector<const Node*> loose;
  for (int id = 2; id < graph.num_node_ids(); ++id) {
    if (effect[id] && !OnlyReads(*graph.node(id))) loose.push_back(graph.node(id));
  }
  if (loose.empty() || body.results.empty()) return loose;
  std::vector<bool> behind_all(graph.num_node_ids(), true);
  for (const Node* result : body.results) {
    std::vector<bool> before(graph.num_node_ids());
    before[result->id()] = true;
    Spread(graph, /*forward=*/false, &before);
    for (std::size_t i = 0; i < before.size(); ++i) behind_all[i] = behind_all[i] && before[i];
  }
  std::erase_if(loose, [&](const Node* node) { return behind_all[node->id()]; });
  return loose;
}

// Whether something with effects runs before a node of a graph. Found nodes without are kept, so
// that no node is looked at twice. Whoever waits for an effect that is none waits in vain, but is
// right: so the search ends at a size that keeps long chains of calls linear.
class EffectSearch {
 public:
  bool Behind(Node* node) {
    if (clean_.contains(node)) return false;
    absl::flat_hash_set<const Node*> seen = {node};
    std::vector<const Node*> stack = {node};
    while (!stack.empty()) {
      const Node* const next = stack.back();
      stack.pop_back();
      if ((next->is_stateful() && !OnlyReads(*next)) || seen.size() > kMaxNodes) return true;
      for (const Edge* edge : next->in_edges()) {
        if (!edge->src->IsOp() || clean_.contains(edge->src)) continue;
        if (seen.insert(edge->src).second) stack.push_back(edge->src);
      }
    }
    clean_.merge(seen);
    return false;
  }

 private:
  static constexpr std::size_t kMaxNodes = 2000;
  absl::flat_hash_set<const Node*> clean_;
};

std::string MergedDevice(const Node& node, const InlineSite& site) {
  const std::string& wanted = node.requested_device();
  if (wanted.empty() || site.ignore_body_devices) return site.device.str();
  if (site.device.str().empty()) return wanted;
  StatusOr<DeviceName> own = DeviceName::Parse(wanted);
  const StatusOr<DeviceName> outer = DeviceName::Parse(site.device.str());
  if (!own.ok() || !outer.ok()) return wanted;  // the placer says what is wrong
  own->FillFrom(*outer);
  return own->ToString();
}

class Inliner {
 public:
  Inliner(const FunctionBody& body, const InlineSite& site, DataflowGraph* graph)
      : body_(body), site_(site), graph_(graph), inputs_(site.inputs), controls_(site.controls) {}

  StatusOr<InlinedBody> Run() {
    MR_RETURN_IF_ERROR(CheckInputs());
    MR_RETURN_IF_ERROR(DereferenceInputs());
    MR_RETURN_IF_ERROR(JoinControls());
    MR_RETURN_IF_ERROR(CopyNodes());
    MR_RETURN_IF_ERROR(CopyEdges());
    MR_RETURN_IF_ERROR(GateRoots());
    MR_RETURN_IF_ERROR(GateState());
    MR_RETURN_IF_ERROR(JoinEffects());
    MR_RETURN_IF_ERROR(MakeOutputs());
    return std::move(result_);
  }

 private:
  Status CheckInputs() {
    if (inputs_.size() != body_.args.size()) {
      return errors::InvalidArgument("Function ", body_.name, " takes ", body_.args.size(),
                                     " arguments, but the call {{node ", site_.prefix, "}} has ",
                                     inputs_.size());
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const DataType given = BaseType(inputs_[i].node->output_types()[inputs_[i].index]);
      const DataType taken = BaseType(body_.args[i]->output_types()[0]);
      if (given == taken) continue;
      return errors::InvalidArgument("Function ", body_.name, " takes ", DataTypeName(taken),
                                     " as argument ", i, ", but the call {{node ", site_.prefix,
                                     "}} gives ", DataTypeName(given));
    }
    return OkStatus();
  }

  StatusOr<Node*> Add(const std::string& name, std::string_view op, AttrMap attrs,
                      InternedString device) {
    const std::string full = StrCat(site_.prefix, "/", name);
    MR_ASSIGN_OR_RETURN(
        Node* const node,
        graph_->AddNode(graph_->FindNode(full) == nullptr ? full : graph_->NewName(full), op,
                        std::move(attrs)));
    node->set_requested_device(std::move(device));
    node->set_origin(site_.origin);
    node->set_device_origin(site_.device_origin);
    return node;
  }

  StatusOr<Node*> AddIdentity(const std::string& name, const OutputRef& of) {
    AttrMap attrs;
    attrs.Set("T", BaseType(of.node->output_types()[of.index]));
    InternedString device = StayBeside(*of.node, &attrs);
    MR_ASSIGN_OR_RETURN(Node* const identity,
                        Add(name, "Identity", std::move(attrs), std::move(device)));
    MR_RETURN_IF_ERROR(graph_->AddEdge(of.node, of.index, identity, 0).status());
    return identity;
  }

  // A call takes the value that a variable has when it begins.
  Status DereferenceInputs() {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (IsRefType(inputs_[i].node->output_types()[inputs_[i].index])) {
        MR_RETURN_IF_ERROR(InsertIdentity(i));
      }
    }
    return OkStatus();
  }

  Status InsertIdentity(std::size_t i) {
    MR_ASSIGN_OR_RETURN(Node* const identity, AddIdentity(StrCat("input_", i), inputs_[i]));
    for (Node* control : site_.controls) graph_->AddControlEdge(control, identity);
    inputs_[i] = {identity, 0};
    return OkStatus();
  }

  // A node that is dead if the input is, for control edges: a Switch never is.
  StatusOr<Node*> InputNode(std::size_t i) {
    if (IsSwitch(*inputs_[i].node)) MR_RETURN_IF_ERROR(InsertIdentity(i));
    return inputs_[i].node;
  }

  Status JoinControls() {
    if (controls_.size() < 2) return OkStatus();
    MR_ASSIGN_OR_RETURN(Node* const gate, Add("input_control_node", "NoOp", {}, site_.device));
    for (Node* control : controls_) graph_->AddControlEdge(control, gate);
    controls_ = {gate};
    return OkStatus();
  }

  Status CopyNodes() {
    twins_.resize(body_.graph->num_node_ids());
    for (const Node* node : body_.graph->OpNodes()) {
      if (IsArg(*node) || IsRetval(*node)) continue;
      const std::string name = StrCat(site_.prefix, "/", node->name());
      MR_ASSIGN_OR_RETURN(
          Node* const twin,
          graph_->AddNodeLike(graph_->FindNode(name) == nullptr ? name : graph_->NewName(name),
                              *node));
      twin->set_requested_device(MergedDevice(*node, site_));
      twin->set_origin(site_.origin);
      twin->set_device_origin(site_.device_origin);
      if (node->notes() != nullptr) twin->set_notes(*node->notes());
      twins_[node->id()] = twin;
    }
    for (const Node* node : body_.graph->OpNodes()) {
      if (twins_[node->id()] != nullptr) MR_RETURN_IF_ERROR(Rename(twins_[node->id()]));
    }
    return OkStatus();
  }

  // What attributes name in the body has other names now.
  Status Rename(Node* twin) {
    if (twin->attrs().Has("frame_name")) {
      MR_ASSIGN_OR_RETURN(const std::string frame, twin->attrs().Get<std::string>("frame_name"));
      twin->mutable_attrs().Set("frame_name", StrCat(site_.prefix, "/", frame));
    }
    if (!twin->attrs().Has("_class")) return OkStatus();
    auto groups = twin->attrs().GetOr<std::vector<std::string>>("_class", {});
    bool changed = false;
    for (std::string& group : groups) {
      constexpr std::string_view kPrefix = "loc:@";
      if (!group.starts_with(kPrefix)) continue;
      const Node* const leader = body_.graph->FindNode(group.substr(kPrefix.size()));
      if (leader == nullptr) continue;
      const Node* const led = twins_[leader->id()];
      if (led == nullptr && !IsArg(*leader)) continue;
      group =
          StrCat(kPrefix, led != nullptr ? led->name() : inputs_[ArgIndex(*leader)].node->name());
      changed = true;
    }
    if (changed) twin->mutable_attrs().Set("_class", std::move(groups));
    return OkStatus();
  }

  static std::size_t ArgIndex(const Node& arg) {
    return static_cast<std::size_t>(arg.attrs().GetOr<int64_t>("index", 0));
  }

  Status CopyEdges() {
    for (const Node* node : body_.graph->OpNodes()) {
      Node* const twin = twins_[node->id()];
      if (twin == nullptr) continue;
      bool takes_arg = false, has_gate = false;
      for (const Edge* edge : node->in_edges()) {
        if (!edge->src->IsOp()) continue;
        Node* const src = twins_[edge->src->id()];
        has_gate |= src != nullptr || !IsInvariant(ArgIndex(*edge->src));
        if (src != nullptr) {
          if (edge->IsControl()) {
            graph_->AddControlEdge(src, twin);
          } else {
            MR_RETURN_IF_ERROR(
                graph_->AddEdge(src, edge->src_output, twin, edge->dst_input).status());
          }
          continue;
        }
        takes_arg = true;
        const std::size_t arg = ArgIndex(*edge->src);
        if (edge->IsControl()) {
          MR_ASSIGN_OR_RETURN(Node* const input, InputNode(arg));
          graph_->AddControlEdge(input, twin);
        } else {
          MR_RETURN_IF_ERROR(
              graph_->AddEdge(inputs_[arg].node, inputs_[arg].index, twin, edge->dst_input)
                  .status());
        }
      }
      // Of two that are there whether the body runs or not, their product would be too.
      if (takes_arg && (!site_.controls_decide || !has_gate)) {
        for (Node* control : controls_) graph_->AddControlEdge(control, twin);
      }
    }
    return OkStatus();
  }

  bool IsInvariant(std::size_t arg) const {
    return arg < site_.invariant.size() && site_.invariant[arg];
  }

  // What runs without inputs waits for the call to begin, and is in its loop and branch.
  Status GateRoots() {
    std::vector<Node*> roots;
    for (const Node* node : body_.graph->OpNodes()) {
      if (twins_[node->id()] == nullptr) continue;
      if (IsRoot(*node)) roots.push_back(twins_[node->id()]);
    }
    if (roots.empty()) return OkStatus();
    MR_ASSIGN_OR_RETURN(const std::vector<Node*> gates, Gates());
    if (gates.size() * roots.size() <= gates.size() + roots.size()) {
      for (Node* root : roots) {
        for (Node* gate : gates) graph_->AddControlEdge(gate, root);
      }
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Node* const gate, Add("input_control_node", "NoOp", {}, site_.device));
    for (Node* before : gates) graph_->AddControlEdge(before, gate);
    for (Node* root : roots) graph_->AddControlEdge(gate, root);
    return OkStatus();
  }

  StatusOr<std::vector<Node*>> Gates() {
    std::vector<Node*> gates = controls_;
    if (site_.controls_decide) return gates;
    absl::flat_hash_set<Node*> seen(gates.begin(), gates.end());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      MR_ASSIGN_OR_RETURN(Node* const input, InputNode(i));
      if (seen.insert(input).second) gates.push_back(input);
    }
    return gates;
  }

  Status JoinEffects() {
    const std::vector<const Node*> loose = LooseEffects(body_, site_.effects);
    MR_ASSIGN_OR_RETURN(const std::vector<Node*> unread, UnreadEffects(loose));
    if (loose.empty() && unread.empty() && !body_.results.empty()) return OkStatus();
    MR_ASSIGN_OR_RETURN(result_.done, Add("output_control_node", "NoOp", {}, site_.device));
    for (const Node* node : loose) graph_->AddControlEdge(twins_[node->id()], result_.done);
    for (Node* node : unread) graph_->AddControlEdge(node, result_.done);
    if (!loose.empty() || !unread.empty()) return OkStatus();
    MR_ASSIGN_OR_RETURN(const std::vector<Node*> gates, Gates());
    for (Node* gate : gates) graph_->AddControlEdge(gate, result_.done);
    return OkStatus();
  }

  // What reads or changes state within a call sees what happened before any of its inputs. Loops in
  // the body are entered after that.
  Status GateState() {
    if (site_.effects != InlineSite::Effects::kAll) return OkStatus();
    std::vector<bool> in_loop(body_.graph->num_node_ids());
    std::vector<const Node*> stateful;
    for (const Node* node : body_.graph->OpNodes()) in_loop[node->id()] = IsEnter(*node);
    Spread(*body_.graph, /*forward=*/true, &in_loop);
    for (const Node* node : body_.graph->OpNodes()) {
      if (twins_[node->id()] == nullptr) continue;
      const bool enters =
          IsEnter(*node) && node->input_edge(0)->src->IsOp() && IsArg(*node->input_edge(0)->src);
      if (enters || (node->is_stateful() && !in_loop[node->id()])) stateful.push_back(node);
    }
    if (stateful.empty()) return OkStatus();
    const std::vector<bool> gated = BehindRoots();
    EffectSearch effects;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!effects.Behind(inputs_[i].node)) continue;
      std::vector<bool> reached = gated;
      reached[body_.args[i]->id()] = true;
      Spread(*body_.graph, /*forward=*/true, &reached);
      for (const Node* node : stateful) {
        if (reached[node->id()]) continue;
        MR_ASSIGN_OR_RETURN(Node* const input, InputNode(i));
        graph_->AddControlEdge(input, twins_[node->id()]);
      }
    }
    return OkStatus();
  }

  static bool IsEnter(const Node& node) {
    return node.type() == "Enter" || node.type() == "RefEnter";
  }

  // A call runs when all of its inputs are there. So what happens before an input happens for every
  // output, also for one that is not made of that input: these are the inputs behind which there
  // are effects, and which neither every output nor what runs anyway waits for.
  StatusOr<std::vector<Node*>> UnreadEffects(const std::vector<const Node*>& loose) {
    std::vector<Node*> unread;
    if (site_.effects != InlineSite::Effects::kAll) return unread;
    EffectSearch effects;
    std::vector<bool> gated;  // behind what waits for all inputs, see GateRoots()
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!effects.Behind(inputs_[i].node)) continue;
      if (gated.empty()) gated = BehindRoots();
      std::vector<bool> reached = gated;
      reached[body_.args[i]->id()] = true;
      Spread(*body_.graph, /*forward=*/true, &reached);
      const auto waits = [&](const Node* node) { return reached[node->id()]; };
      if (std::any_of(loose.begin(), loose.end(), waits)) continue;
      if (!body_.results.empty() &&
          std::all_of(body_.results.begin(), body_.results.end(), waits)) {
        continue;
      }
      MR_ASSIGN_OR_RETURN(Node* const input, InputNode(i));
      unread.push_back(input);
    }
    return unread;
  }

  std::vector<bool> BehindRoots() const {
    std::vector<bool> reached(body_.graph->num_node_ids());
    for (const Node* node : body_.graph->OpNodes()) {
      if (twins_[node->id()] != nullptr && IsRoot(*node)) reached[node->id()] = true;
    }
    Spread(*body_.graph, /*forward=*/true, &reached);
    return reached;
  }

  static bool IsRoot(const Node& node) {
    return std::none_of(node.in_edges().begin(), node.in_edges().end(),
                        [](const Edge* edge) { return edge->src->IsOp(); });
  }

  Status MakeOutputs() {
    Node* const before = site_.effects == InlineSite::Effects::kAll ? result_.done : nullptr;
    for (std::size_t i = 0; i < body_.results.size(); ++i) {
      const Edge* const edge = body_.results[i]->input_edge(0);
      Node* const twin = twins_[edge->src->id()];
      const OutputRef source =
          twin != nullptr ? OutputRef{twin, edge->src_output} : inputs_[ArgIndex(*edge->src)];
      const auto consumers = std::count_if(
          edge->src->out_edges().begin(), edge->src->out_edges().end(), [&](const Edge* other) {
            return other->src_output == edge->src_output && !other->IsControl();
          });
      // An output is a value of its own: it can be fed, and others use what it is made of.
      const bool is_own = twin != nullptr && consumers == 1 && before == nullptr &&
                          !IsSwitch(*twin) && !IsRefType(source.node->output_types()[source.index]);
      if (is_own) {
        result_.outputs.push_back(source);
        continue;
      }
      MR_ASSIGN_OR_RETURN(Node* const identity, AddIdentity(StrCat("output_", i), source));
      if (before != nullptr) graph_->AddControlEdge(before, identity);
      if (twin == nullptr) {
        for (Node* control : controls_) graph_->AddControlEdge(control, identity);
      }
      result_.outputs.push_back({identity, 0});
    }
    return OkStatus();
  }

  const FunctionBody& body_;
  const InlineSite& site_;
  DataflowGraph* const graph_;
  std::vector<OutputRef> inputs_;
  std::vector<Node*> controls_;
  std::vector<Node*> twins_;  // by id in the body
  InlinedBody result_;
};

}  // namespace

bool CanInline(const FunctionBody& body, InlineSite::Effects effects, bool even_noinline) {
  if (!even_noinline && body.attrs.GetOr<bool>("_noinline", false)) return false;
  std::vector<bool> inside(body.graph->num_node_ids());
  bool any = false;
  for (const Node* node : body.graph->OpNodes()) {
    inside[node->id()] = OpensControlFlow(*node);
    any |= inside[node->id()];
  }
  if (!any) return true;
  Spread(*body.graph, /*forward=*/true, &inside);
  const std::vector<const Node*> loose = LooseEffects(body, effects);
  return std::none_of(loose.begin(), loose.end(),
                      [&](const Node* node) { return inside[node->id()]; });
}

InternedString StayBeside(const Node& source, AttrMap* attrs) {
  if (!source.assigned_device().empty()) return source.assigned_device();
  attrs->Set("_class", std::vector<std::string>{StrCat("loc:@", source.name())});
  return source.requested_device();
}

StatusOr<InlinedBody> InlineBody(const FunctionBody& body, const InlineSite& site,
                                 DataflowGraph* graph) {
  return Inliner(body, site, graph).Run();
}

InlineSite SiteOf(const Node& node, int first_input) {
  InlineSite site;
  site.prefix = node.name();
  site.device = node.requested_device();
  site.origin = node.origin();
  site.device_origin = node.device_origin();
  for (const Edge* edge : node.in_edges()) {
    if (!edge->src->IsOp()) continue;
    if (edge->IsControl()) {
      site.controls.push_back(edge->src);
    } else if (edge->dst_input >= first_input) {
      site.inputs.push_back({edge->src, edge->src_output});
    }
  }
  return site;
}

Status InlineCall(const FunctionBody& body, Node* call, bool ignore_body_devices,
                  DataflowGraph* graph) {
  if (static_cast<std::size_t>(call->num_outputs()) != body.results.size()) {
    return errors::InvalidArgument("{{node ", call->name(), "}} has ", call->num_outputs(),
                                   " outputs, but its function ", body.name, " has ",
                                   body.results.size());
  }
  InlineSite site = SiteOf(*call, 0);
  site.ignore_body_devices = ignore_body_devices;
  MR_ASSIGN_OR_RETURN(const InlinedBody inlined, InlineBody(body, site, graph));
  return ReplaceNode(call, inlined.outputs, inlined.done, graph);
}

Status ReplaceNode(Node* node, const std::vector<OutputRef>& outputs, Node* done,
                   DataflowGraph* graph) {
  struct Consumer {
    Node* dst;
    int output, slot;
  };
  std::vector<Consumer> consumers;
  for (const Edge* edge : node->out_edges()) {
    if (edge->dst->IsOp()) consumers.push_back({edge->dst, edge->src_output, edge->dst_input});
  }
  const std::string name = node->name();
  const InternedString device = node->requested_device(), origin = node->origin(),
                       device_origin = node->device_origin();
  AttrMap attrs;
  attrs.Set(kStandsForInputs, true);
  if (const AttrValue* groups = node->attrs().Find("_class")) attrs.Set("_class", *groups);
  std::vector<DataType> types;
  for (const OutputRef& output : outputs) {
    types.push_back(BaseType(output.node->output_types()[output.index]));
  }
  if (types.size() == 1) attrs.Set("T", types[0]);
  if (types.size() > 1) attrs.Set("T", types);
  graph->RemoveNode(node);
  const char* const op = types.empty() ? "NoOp" : types.size() == 1 ? "Identity" : "IdentityN";
  MR_ASSIGN_OR_RETURN(Node* const anchor, graph->AddNode(name, op, std::move(attrs)));
  anchor->set_requested_device(device);
  anchor->set_origin(origin);
  anchor->set_device_origin(device_origin);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    MR_RETURN_IF_ERROR(
        graph->AddEdge(outputs[i].node, outputs[i].index, anchor, static_cast<int>(i)).status());
  }
  if (done != nullptr) graph->AddControlEdge(done, anchor);

  Node* waited_for = nullptr;  // instead of the node; made if somebody does
  for (const Consumer& consumer : consumers) {
    if (consumer.output >= 0) {
      const OutputRef& output = outputs[consumer.output];
      MR_RETURN_IF_ERROR(
          graph->AddEdge(output.node, output.index, consumer.dst, consumer.slot).status());
      continue;
    }
    if (waited_for == nullptr) {
      if (outputs.empty()) {
        waited_for = anchor;
      } else {
        MR_ASSIGN_OR_RETURN(waited_for, graph->AddNode(graph->NewName(name), "NoOp", {}));
        waited_for->set_requested_device(device);
        waited_for->set_origin(origin);
        for (const OutputRef& output : outputs) graph->AddControlEdge(output.node, waited_for);
        if (done != nullptr) graph->AddControlEdge(done, waited_for);
      }
    }
    graph->AddControlEdge(waited_for, consumer.dst);
  }
  return OkStatus();
}

}  // namespace millrace
