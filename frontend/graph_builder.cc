// SPDX-License-Identifier: Apache-2.0
#include "frontend/graph_builder.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "device/device_name.h"
#include "frontend/device_functions.h"
#include "frontend/kept_with_graph.h"
#include "frontend/root_scope.h"
#include "graph/graph_def_io.h"
#include "graph/node_name.h"
#include "ops/all_ops.h"
#include "ops/custom/custom_ops.h"
#include "tensor/cast.h"

namespace millrace {

// Of graph/graph_def_size.h, apart from the headers of the graph.
Status CheckMessageSize(const DataflowGraph& graph, int first_id);
Status SerializeGraphDef(const pb::GraphDef& def, std::string* bytes);
// Of frontend/function_scope.h.
using CaptureFunction = std::function<StatusOr<Output>(const Output& from)>;
void SetBody(GraphState* body, GraphState* outer, CaptureFunction capture);
bool IsBody(GraphState* graph);
GraphState* OuterGraph(GraphState* body);
StatusOr<Output> BroughtInside(GraphState* graph, const Output& output);
void KeepBody(GraphState* graph, std::shared_ptr<GraphState> body);

const OpRegistry& BuiltinOps() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry();
    Status status = RegisterAllOps(*registry);
    status.Update(RegisterCustomOps(*registry));  // checked when they were loaded
    if (!status.ok()) Fatal(std::source_location::current(), Message(status));
    return registry;
  }();
  return *ops;
}

std::string FormatOrigin(std::source_location where) {
  std::string_view file = where.file_name();
  const std::size_t slash = file.rfind('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return StrCat(file, ":", where.line());
}

GraphState::GraphState() : graph(std::make_unique<DataflowGraph>(&BuiltinOps())) {}

std::string GraphState::UniqueName(std::string_view name) {
  auto [it, is_new] = names_in_use.try_emplace(std::string(name), 1);
  if (is_new) return std::string(name);
  while (true) {
    std::string candidate = StrCat(name, "_", names_in_use.find(name)->second++);
    if (names_in_use.try_emplace(candidate, 1).second) return candidate;
  }
}

void GraphState::RecordError(Status error, std::source_location where) {
  if (error.ok() || !status.ok()) return;
  status = Annotate(error, StrCat(" (at ", FormatOrigin(where), ")"));
}

// ---- Scope ---------------------------------------------------------------------

// One enclosing device scope; scopes are applied from the innermost outwards.
struct DeviceScope {
  std::string device;       // when there is no function
  DeviceFunction function;  // may be empty
  std::shared_ptr<const DeviceScope> outer;
};

struct Scope::Settings {
  std::string prefix;             // "" or "a/b/"
  std::string op_name;            // "" unless WithOpName
  bool takes_scope_name = false;  // WithScopeName, until another name is asked for
  std::optional<std::source_location> called_from;
  std::shared_ptr<const DeviceScope> devices;
  std::vector<Operation> control;
  std::vector<std::string> colocate_with;
};

Scope Scope::Named(std::string_view name) const {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->prefix = StrCat(graph_->UniqueName(StrCat(settings_->prefix, name)), "/");
  settings->op_name.clear();
  settings->takes_scope_name = false;
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithOpName(std::string_view name) const {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->op_name = std::string(name);
  settings->takes_scope_name = false;
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithScopeName() const {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->op_name.clear();
  settings->takes_scope_name = !settings->prefix.empty();
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithDevice(std::string_view device) const {
  if (device.empty()) return *this;
  auto settings = std::make_shared<Settings>(*settings_);
  settings->devices = std::make_shared<DeviceScope>(
      DeviceScope{std::string(device), DeviceFunction(), settings_->devices});
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithDevice(DeviceFunction function) const {
  if (!function) return *this;
  auto settings = std::make_shared<Settings>(*settings_);
  settings->devices =
      std::make_shared<DeviceScope>(DeviceScope{"", std::move(function), settings_->devices});
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithoutDevice() const {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->devices = nullptr;
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithControlDependencies(std::span<const Operation> ops) const {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->control.insert(settings->control.end(), ops.begin(), ops.end());
  return Scope(graph_, std::move(settings));
}

Scope Scope::WithoutControlDependencies() const {
  auto settings = std::make_shared<Settings>(*settings_);
  settings->control.clear();
  return Scope(graph_, std::move(settings));
}

Scope Scope::ColocateWith(const Operation& op) const {
  if (!op.valid()) return *this;
  auto settings = std::make_shared<Settings>(*settings_);
  settings->colocate_with.push_back(op.name());
  return Scope(graph_, std::move(settings));
}

Scope Scope::CalledFrom(std::source_location where) const {
  if (settings_->called_from) return *this;
  auto settings = std::make_shared<Settings>(*settings_);
  settings->called_from = where;
  return Scope(graph_, std::move(settings));
}

const Status& Scope::status() const { return graph_->status; }

void Scope::RecordError(Status status, std::source_location where) const {
  graph_->RecordError(std::move(status), settings_->called_from.value_or(where));
}

// ---- Adding a node ---------------------------------------------------------------

namespace {

using NamedAttrs = std::vector<std::pair<std::string, AttrValue>>;

// A type attribute that an argument decides, learned from the inputs that are outputs.
void InferFromArg(const pb::OpDef::ArgDef& arg, const std::vector<Input>& inputs, AttrMap* attrs) {
  if (!arg.number_attr().empty() && !attrs->Has(arg.number_attr())) {
    attrs->Set(arg.number_attr(), static_cast<int64_t>(inputs.size()));
  }
  if (!arg.type_list_attr().empty() && !attrs->Has(arg.type_list_attr())) {
    std::vector<DataType> types;
    for (const Input& input : inputs) {
      types.push_back(
          BaseType(input.is_constant() ? input.value().dtype() : input.output().dtype()));
    }
    attrs->Set(arg.type_list_attr(), std::move(types));
  }
  if (arg.type_attr().empty() || attrs->Has(arg.type_attr())) return;
  for (const Input& input : inputs) {
    if (!input.is_constant()) {
      attrs->Set(arg.type_attr(), BaseType(input.output().dtype()));
      return;
    }
  }
}

// What no output decided takes the attribute's default, else the type of its constant.
void InferFromConstants(const pb::OpDef& def, std::span<const std::vector<Input>> args,
                        AttrMap* attrs) {
  for (int i = 0; i < def.input_arg_size(); ++i) {
    const std::string& attr = def.input_arg(i).type_attr();
    if (attr.empty() || attrs->Has(attr) || args[i].empty()) continue;
    const bool has_default = std::any_of(
        def.attr().begin(), def.attr().end(),
        [&](const pb::OpDef::AttrDef& a) { return a.name() == attr && a.has_default_value(); });
    if (!has_default) attrs->Set(attr, args[i].front().value().dtype());
  }
}

// Arguments from other graphs are an error, but in a body of a function: then `inside` is all
// arguments, with what stands for those there; empty if there are none.
Status CheckHandles(GraphState* graph, std::string_view op,
                    std::span<const std::vector<Input>> args,
                    std::vector<std::vector<Input>>* inside) {
  for (std::size_t a = 0; a < args.size(); ++a) {
    for (std::size_t i = 0; i < args[a].size(); ++i) {
      const Input& input = args[a][i];
      if (input.is_constant()) continue;
      if (!input.output().valid()) {
        return errors::InvalidArgument("argument ", a, " of ", op,
                                       " is not a valid output: the call that should have made "
                                       "it failed");
      }
      if (input.output().op().graph() == graph) continue;
      const StatusOr<Output> brought = BroughtInside(graph, input.output());
      if (!brought.ok()) {
        return WithMessage(brought.status(),
                           StrCat("argument ", a, " of ", op, ", ", Message(brought.status())));
      }
      if (inside->empty()) inside->assign(args.begin(), args.end());
      (*inside)[a][i] = Input(*brought);
    }
  }
  return OkStatus();
}

}  // namespace

// Everything that makes one node; split by what can fail.
class NodeMaker {
 public:
  NodeMaker(const Scope& scope, std::string_view op, std::source_location where,
            bool takes_scope_name = false)
      : scope_(scope), op_(op), where_(where), takes_scope_name_(takes_scope_name) {}

  StatusOr<Node*> Make(std::span<const std::vector<Input>> args, NamedAttrs named,
                       std::string_view prefix, std::string_view op_name,
                       const DeviceScope* devices, std::span<const Operation> control,
                       std::span<const std::string> colocate_with) {
    GraphState& state = *scope_.graph();
    MR_ASSIGN_OR_RETURN(const OpInfo* info, state.graph->LookupOp(op_));
    const pb::OpDef& def = info->def;
    if (static_cast<int>(args.size()) != def.input_arg_size()) {
      return errors::InvalidArgument(op_, " takes ", def.input_arg_size(), " arguments, not ",
                                     args.size());
    }
    std::vector<std::vector<Input>> inside;
    MR_RETURN_IF_ERROR(CheckHandles(&state, op_, args, &inside));
    if (!inside.empty()) args = inside;
    AttrMap attrs;
    for (auto& [name, value] : named) attrs.Set(name, std::move(value));
    for (int i = 0; i < def.input_arg_size(); ++i) InferFromArg(def.input_arg(i), args[i], &attrs);
    InferFromConstants(def, args, &attrs);
    AddDefaultAttrs(def, &attrs);
    AddColocation(colocate_with, &attrs);
    std::vector<DataType> input_types, output_types;
    MR_RETURN_IF_ERROR(ExpandTypes(def, attrs, &input_types, &output_types));

    MR_ASSIGN_OR_RETURN(const std::string name, NewName(prefix, op_name));
    std::vector<Output> inputs;
    MR_RETURN_IF_ERROR(MakeConstants(args, input_types, name, devices, colocate_with, &inputs));
    MR_ASSIGN_OR_RETURN(Node * node, state.graph->AddNode(name, op_, std::move(attrs)));
    const Status wired = Wire(node, inputs, control);
    const Status inferred = wired.ok() ? state.shapes.AddNode(node) : wired;
    if (!inferred.ok()) {
      state.graph->RemoveNode(node);
      return Annotate(inferred, StrCat(" for node '", name, "' (op: ", op_, ")"));
    }
    node->set_origin(FormatOrigin(where_));
    if (colocate_with.empty()) {
      MR_RETURN_IF_ERROR(ApplyDevices(node, devices));
    } else if (const Node* leader = state.graph->FindNode(colocate_with.back())) {
      // Device scopes have no say in a node that follows another one.
      node->set_requested_device(leader->requested_device());
      if (!leader->requested_device().empty()) {
        node->set_device_origin(StrCat("colocation with ", leader->name()));
      }
    }
    return node;
  }

 private:
  // The scopes' names are checked here too: they are part of every name.
  // The prefix itself where that is asked for, unless a node has taken it.
  StatusOr<std::string> NewName(std::string_view prefix, std::string_view op_name) {
    GraphState& state = *scope_.graph();
    const std::string wanted =
        takes_scope_name_ ? std::string(prefix.substr(0, prefix.size() - 1))
                          : StrCat(prefix, op_name.empty() ? std::string_view(op_) : op_name);
    if (!IsNodeName(wanted)) {
      return errors::InvalidArgument("Illegal op name '", CEscape(wanted), "' (op: ", op_,
                                     "): letters, digits and any of _./-> may be in a name, and "
                                     "it begins with a letter, a digit or a dot");
    }
    if (takes_scope_name_ && state.graph->FindNode(wanted) == nullptr) return wanted;
    return state.UniqueName(wanted);
  }

  static void AddColocation(std::span<const std::string> colocate_with, AttrMap* attrs) {
    if (colocate_with.empty() || attrs->Has("_class")) return;
    std::vector<std::string> groups;
    for (const std::string& name : colocate_with) groups.push_back(StrCat("loc:@", name));
    attrs->Set("_class", std::move(groups));
  }

  // Constants become Const nodes of the type that the op expects, named after the node.
  Status MakeConstants(std::span<const std::vector<Input>> args, std::span<const DataType> types,
                       const std::string& name, const DeviceScope* devices,
                       std::span<const std::string> colocate_with, std::vector<Output>* inputs) {
    std::size_t slot = 0;
    for (const std::vector<Input>& arg : args) {
      for (const Input& input : arg) {
        if (slot >= types.size()) {
          return errors::InvalidArgument(op_, " was given more inputs than its signature has");
        }
        const DataType type = types[slot++];
        if (!input.is_constant()) {
          inputs->push_back(input.output());
          continue;
        }
        MR_ASSIGN_OR_RETURN(Tensor value, CastTensor(input.value(), BaseType(type)));
        NodeMaker maker(scope_, "Const", where_);
        const StatusOr<Node*> node =
            maker.Make({}, {{"dtype", AttrValue(value.dtype())}, {"value", AttrValue(value)}},
                       StrCat(name, "/"), "Const", devices, {}, colocate_with);
        MR_RETURN_IF_ERROR(node.status());
        inputs->push_back(Output(scope_.graph(), *node, 0));
      }
    }
    if (slot != types.size()) {
      return errors::InvalidArgument(op_, " expects ", types.size(), " inputs, not ", slot);
    }
    return OkStatus();
  }

  Status Wire(Node* node, std::span<const Output> inputs, std::span<const Operation> control) {
    DataflowGraph& graph = *scope_.graph()->graph;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      MR_RETURN_IF_ERROR(
          graph.AddEdge(inputs[i].op().node(), inputs[i].index(), node, static_cast<int>(i))
              .status());
    }
    for (const Operation& op : control) {
      if (!op.valid()) {
        return errors::InvalidArgument("a control dependency of ", node->name(),
                                       " is not a valid operation");
      }
      if (op.graph() != scope_.graph()) {
        return errors::InvalidArgument("a control dependency of ", node->name(), ", ", op.name(),
                                       ", belongs to another graph; of a function, the call can "
                                       "be made to wait");
      }
      graph.AddControlEdge(op.node(), node);
    }
    return OkStatus();
  }

  Status ApplyDevices(Node* node, const DeviceScope* devices) {
    std::string device, origin;
    for (const DeviceScope* scope = devices; scope != nullptr; scope = scope->outer.get()) {
      if (scope->function) {
        std::vector<PartialShape> shapes;
        for (int i = 0; i < node->num_outputs(); ++i) {
          shapes.push_back(scope_.graph()->shapes.shape(node, i));
        }
        std::vector<DataType> types = node->output_types();
        if (node->type() == "VarHandleOp") {  // what lies behind the handle is what counts
          types[0] = node->attrs().GetOr<DataType>("dtype", types[0]);
          shapes[0] = node->attrs().GetOr<PartialShape>("shape", shapes[0]);
        }
        device = scope->function(NodeView{node->name(), node->type(), device, types, shapes});
        StrAppend(&origin, origin.empty() ? "" : ", within ", LastRuleOf(scope->function));
      } else {
        MR_ASSIGN_OR_RETURN(device, MergeDeviceScopes(scope->device, device));
        StrAppend(&origin, origin.empty() ? "" : ", within ", "scope ", scope->device);
      }
    }
    if (!device.empty()) node->set_device_origin(origin);
    node->set_requested_device(std::move(device));
    return OkStatus();
  }

  // `inner` overrides `outer` field by field.
  static StatusOr<std::string> MergeDeviceScopes(const std::string& outer,
                                                 const std::string& inner) {
    MR_ASSIGN_OR_RETURN(DeviceName merged, DeviceName::Parse(outer));
    MR_ASSIGN_OR_RETURN(const DeviceName specific, DeviceName::Parse(inner));
    merged.EnsureSpecification(specific);
    return merged.ToString();
  }

  const Scope& scope_;
  const std::string_view op_;
  const std::source_location where_;
  const bool takes_scope_name_;
};

Operation Scope::AddOpWithLists(std::string_view op, std::span<const std::vector<Input>> args,
                                NamedAttrs attrs, std::source_location where) const {
  if (!graph_->status.ok()) return Operation();  // one root cause is enough
  where = settings_->called_from.value_or(where);
  NodeMaker maker(*this, op, where, settings_->takes_scope_name);
  const StatusOr<Node*> node =
      maker.Make(args, std::move(attrs), settings_->prefix, settings_->op_name,
                 settings_->devices.get(), settings_->control, settings_->colocate_with);
  if (!node.ok()) {
    graph_->RecordError(node.status(), where);
    return Operation();
  }
  return Operation(graph_.get(), *node);
}

Operation Scope::AddOp(std::string_view op, std::span<const Input> inputs, NamedAttrs attrs,
                       std::source_location where) const {
  std::vector<std::vector<Input>> args;
  for (const Input& input : inputs) args.push_back({input});
  return AddOpWithLists(op, args, std::move(attrs), where);
}

namespace {

// "prefix/" before every node name, every input ("^" kept in front) and every colocation group.
void AddPrefix(std::string_view prefix, pb::GraphDef* def) {
  constexpr std::string_view kGroup = "loc:@";
  for (pb::NodeDef& node : *def->mutable_node()) {
    node.set_name(StrCat(prefix, "/", node.name()));
    for (std::string& input : *node.mutable_input()) {
      input = input.starts_with("^") ? StrCat("^", prefix, "/", input.substr(1))
                                     : StrCat(prefix, "/", input);
    }
    const auto groups = node.mutable_attr()->find("_class");
    if (groups == node.mutable_attr()->end()) continue;
    for (std::string& group : *groups->second.mutable_list()->mutable_s()) {
      if (group.starts_with(kGroup)) group.insert(kGroup.size(), StrCat(prefix, "/"));
    }
  }
}

}  // namespace

// ---- Graph -------------------------------------------------------------------------

namespace {

// What graphs really have: a state that can be found again from a handle to one of its nodes.
struct SharedGraphState : GraphState, std::enable_shared_from_this<SharedGraphState> {
  Scope (*root)(std::shared_ptr<GraphState>) = nullptr;
  GraphState* outer = nullptr;                    // of the body of a function, and
  CaptureFunction capture;                        // how it takes what is outside
  std::vector<std::shared_ptr<const void>> kept;  // bodies of functions that were made here, ...
};

// Handles come from graphs alone, whose states are all made below.
SharedGraphState* Shared(GraphState* state) { return static_cast<SharedGraphState*>(state); }

}  // namespace

Scope RootScope(GraphState* state) {
  SharedGraphState* const shared = Shared(state);
  return shared->root(shared->shared_from_this());
}

void SetBody(GraphState* body, GraphState* outer, CaptureFunction capture) {
  Shared(body)->outer = outer;
  Shared(body)->capture = std::move(capture);
}

bool IsBody(GraphState* graph) { return Shared(graph)->capture != nullptr; }
GraphState* OuterGraph(GraphState* body) { return Shared(body)->outer; }

StatusOr<Output> BroughtInside(GraphState* graph, const Output& output) {
  if (output.op().graph() == graph) return output;
  if (IsBody(graph)) return Shared(graph)->capture(output);
  return errors::InvalidArgument(output.name(), ", belongs to another graph");
}

void KeepBody(GraphState* graph, std::shared_ptr<GraphState> body) {
  KeepWithGraph(graph, std::move(body));
}

void KeepWithGraph(GraphState* graph, std::shared_ptr<const void> what) {
  Shared(graph)->kept.push_back(std::move(what));
}

Graph::Graph() {
  auto state = std::make_shared<SharedGraphState>();
  state->root = [](std::shared_ptr<GraphState> graph) {
    return Scope(std::move(graph), std::make_shared<Scope::Settings>());
  };
  state_ = std::move(state);
}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

namespace {
constexpr std::string_view kMovedFrom =
    "this graph was moved from: its nodes belong to the graph that it was moved to";
}  // namespace

const std::shared_ptr<GraphState>& Graph::shared_state() const {
  if (state_ == nullptr) {
    state_ = Graph().state_;
    state_->status = errors::FailedPrecondition(kMovedFrom);
  }
  return state_;
}

Scope Graph::root() { return Scope(shared_state(), std::make_shared<Scope::Settings>()); }
const Status& Graph::status() const { return state()->status; }
void Graph::SetSeed(int64_t seed) { state()->seed = seed; }

Operation Graph::FindOperation(std::string_view name) const {
  return Operation(state(), state()->graph->FindNode(name));
}

std::vector<Operation> Graph::operations() const {
  std::vector<Operation> ops;
  for (Node* node : state()->graph->OpNodes()) ops.emplace_back(state(), node);
  return ops;
}

StatusOr<std::string> Graph::ToGraphDef() const {
  MR_RETURN_IF_ERROR(state()->status);
  MR_RETURN_IF_ERROR(CheckMessageSize(*state()->graph, 0));
  pb::GraphDef def;
  MR_RETURN_IF_ERROR(ExportGraphDef(*state()->graph, {}, &def));
  std::string bytes;
  MR_RETURN_IF_ERROR(SerializeGraphDef(def, &bytes));
  return bytes;
}

StatusOr<std::string> Graph::ToText() const {
  MR_RETURN_IF_ERROR(state()->status);
  MR_RETURN_IF_ERROR(CheckMessageSize(*state()->graph, 0));  // others read it into one
  pb::GraphDef def;
  MR_RETURN_IF_ERROR(ExportGraphDef(*state()->graph, {}, &def));
  std::string text;
  google::protobuf::TextFormat::PrintToString(def, &text);
  return text;
}

Status Graph::ImportGraphDef(std::string_view bytes, std::string_view prefix) {
  if (Message(status()) == kMovedFrom) return status();
  pb::GraphDef def;
  if (bytes.size() > INT32_MAX) {
    return errors::InvalidArgument("these ", bytes.size(),
                                   " bytes are no GraphDef: none has 2 GiB or more");
  }
  if (!def.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return errors::InvalidArgument("the bytes are not a GraphDef");
  }
  if (!prefix.empty()) AddPrefix(prefix, &def);
  const int first = state()->graph->num_node_ids();
  MR_RETURN_IF_ERROR(millrace::ImportGraphDef({}, def, state()->graph.get()));
  for (int id = first; id < state()->graph->num_node_ids(); ++id) {
    const Node* node = state()->graph->node(id);
    if (node != nullptr) state()->names_in_use.try_emplace(node->name(), 1);
  }
  // Shapes of the whole graph anew: imported nodes come in any order.
  return state()->shapes.AddGraph(*state()->graph);
}

void Graph::AddToCollection(std::string_view collection, const Output& output) {
  auto it = state()->collections.find(collection);
  if (it == state()->collections.end()) {
    it = state()->collections.emplace(std::string(collection), std::vector<Output>()).first;
  }
  it->second.push_back(output);
}

std::vector<Output> Graph::collection(std::string_view collection) const {
  const auto it = state()->collections.find(collection);
  return it == state()->collections.end() ? std::vector<Output>() : it->second;
}

}  // namespace millrace
