// SPDX-License-Identifier: Apache-2.0
#include "placer/colocation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/functions/isolate_calls.h"
#include "placer/op_kinds.h"

namespace millrace {
namespace {

constexpr std::string_view kClassAttr = "_class";
constexpr std::string_view kClassPrefix = "loc:@";

std::string InNode(const Node& node) { return StrCat("\n\t [[{{node ", node.name(), "}}]]"); }
std::string ForColocation(const Node& node) {
  return StrCat("{{colocation_node ", node.name(), "}}");
}

bool DifferentAddressSpace(const DeviceName& a, const DeviceName& b) {
  return (a.job && b.job && a.job != b.job) || (a.replica && b.replica && a.replica != b.replica) ||
         (a.task && b.task && a.task != b.task);
}

}  // namespace

std::optional<JoinReason> TiesTogether(const Edge& edge) {
  if (edge.IsControl()) return std::nullopt;
  const DataType type = edge.dst->input_types()[edge.dst_input];
  if (type == kVariant) {
    if (!IsDatasetOp(edge.src->op().def) || !IsDatasetOp(edge.dst->op().def)) return std::nullopt;
    return JoinReason::kDatasetEdge;
  }
  if ((!IsRefType(type) && type != kResource) || MayLeaveResource(edge.dst->type())) {
    return std::nullopt;
  }
  if (ReturnsResources(*edge.src)) return std::nullopt;  // its function tells
  return type == kResource ? JoinReason::kResourceEdge : JoinReason::kReferenceEdge;
}

std::vector<std::string_view> ClassLabels(const Node& node) {
  std::vector<std::string_view> labels;
  const AttrValue* attr = node.attrs().Find(kClassAttr);
  if (attr == nullptr) return labels;
  if (const auto* texts = attr->get_if<std::vector<std::string>>()) {
    for (const std::string_view text : *texts) {
      if (text.starts_with(kClassPrefix)) labels.push_back(text.substr(kClassPrefix.size()));
    }
  }
  return labels;
}

Colocation::Colocation(const DataflowGraph& graph, const PlacerInput& input, DeviceTable* table,
                       PlacementLog* log, Inspection* inspection)
    : graph_(graph), input_(input), table_(table), log_(log), inspection_(inspection) {
  members_.resize(graph.num_node_ids());
}

bool Colocation::IsResourceGenerator(const Node& node) {
  if (node.num_inputs() != 0 || node.num_outputs() != 1) return false;
  const DataType type = node.output_types()[0];
  return IsRefType(type) || type == kResource;
}

int Colocation::Root(int id) {
  while (members_[id].parent != id) {
    members_[id].parent = members_[members_[id].parent].parent;
    id = members_[id].parent;
  }
  return id;
}

Status Colocation::Build() {
  for (int id = 0; id < graph_.num_node_ids(); ++id) {
    const Node* node = graph_.node(id);
    if (node == nullptr || !node->IsOp()) continue;
    if (log_ != nullptr) log_->AddNode(*node);
    Status status = InitMember(*node);
    if (!status.ok()) {
      culprit_ = node;
      return Annotate(status, InNode(*node));
    }
  }
  MR_RETURN_IF_ERROR(JoinEdges());
  KeepHostTypesOnCpu();
  if (inspection_ != nullptr) MR_RETURN_IF_ERROR(LookIntoCalls());
  MR_RETURN_IF_ERROR(JoinClasses());
  DropXlaTypes();
  return OkStatus();
}

// A member of its own group, with what the node itself supports and asks for.

Status Colocation::InitMember(const Node& node) {
  Member& member = members_[node.id()];
  member.parent = node.id();
  MR_ASSIGN_OR_RETURN(member.own_types, SupportedTypes(node));
  member.request.types = member.own_types;
  if (!node.assigned_device().empty()) return InitAssigned(node, &member);
  if (table_->type_list(member.own_types).empty()) return NoKernel(node);
  return node.requested_device().empty() ? OkStatus() : InitRequested(node, &member);
}

Status Colocation::InitAssigned(const Node& node, Member* member) {
  const StatusOr<int> spec = table_->specs().Parse(node.assigned_device());
  if (!spec.ok()) {
    return errors::Internal("Malformed assigned device '", node.assigned_device(), "'");
  }
  const int device = table_->FindDevice(*spec);
  if (device < 0) {
    return errors::Internal("Assigned device '", node.assigned_device(),
                            "' does not match any device; available devices are [ ",
                            table_->DeviceNames(), " ]");
  }
  const TypeList& types = table_->type_list(member->own_types);
  const bool supported = std::any_of(types.begin(), types.end(), [&](const RankedType& t) {
    return t.type == table_->device_type(device);
  });
  if (!supported) {
    return errors::Internal("Assigned device '", node.assigned_device(),
                            "' does not have registered OpKernel support for ", node.type());
  }
  member->request.assigned = member->request.requested = *spec;
  return OkStatus();
}

Status Colocation::InitRequested(const Node& node, Member* member) {
  const StatusOr<int> spec = table_->specs().Parse(node.requested_device());
  if (!spec.ok()) {
    return errors::InvalidArgument("Malformed device specification '", node.requested_device(),
                                   "' in node: ", node.name());
  }
  member->request.requested = *spec;
  if (IsResourceGenerator(node)) member->request.resource = *spec;
  return OkStatus();
}

bool Colocation::IsFunction(const Node& node) {
  if (graph_.library() == nullptr) return false;
  const auto [slot, added] = is_function_.try_emplace(&node.op(), false);
  if (added) slot->second = graph_.ops().Find(node.type()) != &node.op();
  return slot->second;
}

StatusOr<int> Colocation::SupportedTypes(const Node& node) {
  // Nodes of one op mostly share their attributes, too.
  KnownTypes& known = known_types_[&node.op()];
  if (known.attrs == &node.attrs()) return known.types;
  TypeList types;
  const bool anywhere = IsFunction(node) || node.type() == "_Arg" || node.type() == "_Retval";
  const int num_types = static_cast<int>(table_->types().size());
  for (int type = 0; type < num_types; ++type) {
    if (anywhere) {
      types.push_back({type, 0});
    } else if (const auto priority =
                   input_.kernel(node.op(), node.attrs(), table_->types()[type])) {
      types.push_back({type, *priority});
    }
  }
  if (!types.empty()) {
    known = {&node.attrs(), table_->InternTypes(std::move(types))};
    return known.types;
  }
  if (!node.requested_device().empty() && table_->local_spec() != 0) {
    // Another task may have the kernel: it says so when the graph gets there.
    const StatusOr<int> spec = table_->specs().Parse(node.requested_device());
    const DeviceName& local = table_->specs().name(table_->local_spec());
    if (spec.ok() && DifferentAddressSpace(local, table_->specs().name(*spec))) {
      const DeviceName& wanted = table_->specs().name(*spec);
      if (wanted.type) {
        types.push_back({table_->AddType(*wanted.type), 0});
      } else {
        for (int type = 0; type < num_types; ++type) types.push_back({type, 0});
      }
    }
  }
  return table_->InternTypes(std::move(types));
}

std::string Colocation::KernelsText(const Node& node) const {
  std::string kernels;
  if (input_.describe_kernels != nullptr) kernels = input_.describe_kernels(node.type());
  return StrCat("\nRegistered kernels:\n",
                kernels.empty() ? "  <no registered kernels>\n" : kernels);
}

Status Colocation::NoKernel(const Node& node) const {
  std::vector<std::string> types;
  for (const PlacerDevice& device : input_.devices) types.push_back(device.type);
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  std::string attrs;
  for (const auto& [name, value] : node.attrs()) {
    StrAppend(&attrs, attrs.empty() ? "" : ", ", name, "=", value.DebugString());
  }
  return errors::InvalidArgument("No OpKernel was registered to support Op '", node.type(),
                                 "' used by {{node ", node.name(), "}} with these attrs: [", attrs,
                                 "]\nRegistered devices: [", StrJoin(types, ", "), "]",
                                 KernelsText(node));
}

// Joining.

Status Colocation::JoinEdges() {
  for (int id = 0; id < graph_.num_edge_ids(); ++id) {
    const Edge* edge = graph_.edge(id);
    if (edge == nullptr) continue;
    if (const std::optional<JoinReason> reason = TiesTogether(*edge)) {
      const Status status = JoinByEdge(*edge, *reason);
      if (status.ok()) continue;
      culprit_ = edge->dst;
      return status;
    }
  }
  return OkStatus();
}

std::string_view Colocation::Asks(const Node& node) {
  const int spec = members_[Root(node.id())].request.requested;
  if (spec >= static_cast<int>(spec_texts_.size())) spec_texts_.resize(spec + 1);
  std::string& text = spec_texts_[spec];
  if (text.empty() && spec != 0) text = table_->specs().Text(spec);
  return text;
}

Status Colocation::JoinByEdge(const Edge& edge, JoinReason reason) {
  const int src_root = Root(edge.src->id()), dst_root = Root(edge.dst->id());
  if (src_root == dst_root) return OkStatus();
  MR_RETURN_IF_ERROR(MakeRoom(*edge.src, *edge.dst, src_root, dst_root));
  bool joined = false;
  const Status status = Join(*edge.src, *edge.dst, &joined);
  if (!status.ok()) {
    return errors::InvalidArgument(
        "Nodes were connected by a reference or resource connection (requiring them to be on the "
        "same device), but the two nodes were assigned two different devices: ",
        Message(status), InNode(*edge.dst));
  }
  if (log_ != nullptr && joined) {
    log_->AddJoin(reason, edge.src->id(), edge.dst->id(), edge.dst_input, "", Asks(*edge.dst));
  }
  return OkStatus();
}

// What was fixed must agree; what was only asked for by the destination gives way.
Status Colocation::MakeRoom(const Node& src_node, const Node& dst_node, int src_root,
                            int dst_root) {
  SpecPool& specs = table_->specs();
  const GroupConstraints& src = members_[src_root].request;
  GroupConstraints& dst = members_[dst_root].request;
  const auto conflict = [&](std::string_view what, int a, int b) {
    return errors::InvalidArgument(
        "Cannot place the graph because a reference or resource edge connects colocation groups "
        "with incompatible ",
        what, " devices: ", specs.Text(a), " vs ", specs.Text(b), ". The edge src node is {{node ",
        src_node.name(), "}}, and the dst node is {{node ", dst_node.name(), "}}",
        InNode(dst_node));
  };
  if (!specs.AreCompatible(src.assigned, dst.assigned)) {
    return conflict("assigned", src.assigned, dst.assigned);
  }
  if (!specs.AreCompatible(src.resource, dst.resource)) {
    return conflict("resource", src.resource, dst.resource);
  }
  if (specs.AreCompatible(src.requested, dst.requested)) return OkStatus();
  const int given_up = dst.requested;
  dst.requested = specs.EnsureSpecification(src.requested, dst.assigned);
  dst.requested = specs.EnsureSpecification(dst.requested, dst.resource);
  if (log_ != nullptr) {
    log_->AddNote(dst_node.id(), StrCat("the request ", specs.Text(given_up), " gave way to ",
                                        specs.Text(src.requested), " of ", src_node.name(),
                                        ", from which it takes a reference or resource"));
  }
  return OkStatus();
}

// True for an op on lists whose elements are never anywhere but in host memory.
bool Colocation::IsHostList(const Node& node) const {
  if (node.type().find("TensorList") == std::string::npos) return false;
  const auto type = node.attrs().GetOr<DataType>("element_dtype", kFloat);
  return BaseType(type) == DataType::kString || type == kResource;
}

// A list says nothing of its elements to whoever takes it: they are told by the op that made it.
void Colocation::KeepHostTypesOnCpu() {
  const int cpu = table_->FindType("CPU");
  if (cpu < 0 || table_->types().size() < 2) return;
  std::vector<const Node*> stack;
  std::vector<bool> seen(graph_.num_node_ids());
  const auto visit = [&](const Node* node) {
    if (!node->IsOp() || seen[node->id()]) return;
    seen[node->id()] = true;
    stack.push_back(node);
  };
  for (int id = 0; id < graph_.num_node_ids(); ++id) {
    const Node* const node = graph_.node(id);
    if (node != nullptr && node->IsOp() && IsHostList(*node)) visit(node);
  }
  while (!stack.empty()) {
    const Node& node = *stack.back();
    stack.pop_back();
    for (const Edge* edge : node.out_edges()) {
      if (!edge->IsControl() && node.output_types()[edge->src_output] == kVariant) visit(edge->dst);
    }
    const auto& inputs = node.input_types();
    if (std::find(inputs.begin(), inputs.end(), kVariant) == inputs.end()) continue;
    GroupConstraints& request = members_[Root(node.id())].request;
    TypeList on_cpu;
    for (const RankedType& type : table_->type_list(request.types)) {
      if (type.type == cpu) on_cpu.push_back(type);
    }
    if (!on_cpu.empty()) request.types = table_->InternTypes(std::move(on_cpu));
  }
}

Status Colocation::JoinClasses() {
  // The first node that named a label, or has it as its name; the others join it.
  absl::flat_hash_map<std::string_view, const Node*> first_of;
  std::vector<std::pair<int, std::string_view>> labels;  // by node, in order
  for (int id = 0; id < graph_.num_node_ids(); ++id) {
    const Node* node = graph_.node(id);
    if (node == nullptr || !node->IsOp()) continue;
    for (const std::string_view label : ClassLabels(*node)) {
      labels.emplace_back(id, label);
      first_of.try_emplace(label, nullptr);
    }
  }
  // Of the nodes without the attribute only those matter that others name.
  std::vector<int> named;
  for (const auto& [label, first] : first_of) {
    const Node* const node = graph_.FindNode(label);
    if (node != nullptr && node->IsOp()) named.push_back(node->id());
  }
  std::sort(named.begin(), named.end());
  std::size_t next = 0;
  const auto join_named = [&](int before) {
    for (; next < named.size() && named[next] < before; ++next) {
      const Node& node = *graph_.node(named[next]);
      MR_RETURN_IF_ERROR(JoinLabel(node, node.name(), false, &first_of));
    }
    return OkStatus();
  };
  for (const auto& [id, label] : labels) {
    MR_RETURN_IF_ERROR(join_named(id));
    MR_RETURN_IF_ERROR(JoinLabel(*graph_.node(id), label, true, &first_of));
  }
  return join_named(graph_.num_node_ids());
}

Status Colocation::JoinLabel(const Node& node, std::string_view label, bool in_attribute,
                             absl::flat_hash_map<std::string_view, const Node*>* first_of) {
  const Node*& first = (*first_of)[label];
  if (first == nullptr) {
    first = &node;
    return OkStatus();
  }
  bool joined = false;
  const Status status = Join(node, *first, &joined);
  if (!status.ok()) {
    if (!input_.allow_soft_placement) {
      culprit_ = &node;
      return Annotate(status, InNode(node));
    }
    if (log_ != nullptr) {
      log_->AddNote(node.id(), StrCat("colocation with ", first->name(), " by label ", label,
                                      " was given up: ", Message(status)));
    }
    return OkStatus();
  }
  if (log_ != nullptr && joined) {
    // The node that carries the label is the one that wanted to be with the other.
    const bool by_first = !in_attribute;
    log_->AddJoin(JoinReason::kClass, by_first ? node.id() : first->id(),
                  by_first ? first->id() : node.id(), -1, label, Asks(node));
  }
  return OkStatus();
}

Status Colocation::Join(const Node& x, const Node& y, bool* joined) {
  const int x_root = Root(x.id()), y_root = Root(y.id());
  *joined = x_root != y_root;
  if (!*joined) return OkStatus();
  const bool x_stays = members_[x_root].rank >= members_[y_root].rank;
  Member& stays = members_[x_stays ? x_root : y_root];
  Member& goes = members_[x_stays ? y_root : x_root];

  const auto cannot = [&](std::string_view why) {
    return errors::InvalidArgument("Cannot colocate nodes ", ForColocation(x), " and ",
                                   ForColocation(y), why);
  };
  SpecPool& specs = table_->specs();
  const StatusOr<int> assigned =
      specs.Merge(stays.request.assigned, goes.request.assigned, /*soft=*/false);
  if (!assigned.ok()) return cannot(StrCat(": ", Message(assigned.status())));
  const StatusOr<int> resource =
      specs.Merge(stays.request.resource, goes.request.resource, /*soft=*/false);
  if (!resource.ok()) return cannot(StrCat(": ", Message(resource.status())));
  const StatusOr<int> requested =
      specs.Merge(stays.request.requested, goes.request.requested, input_.allow_soft_placement);
  if (!requested.ok()) return cannot(StrCat(": ", Message(requested.status())));

  const int types = table_->Intersect(stays.request.types, goes.request.types);
  if (table_->type_list(types).empty()) {
    return cannot(
        StrCat(" because no device type supports both of those nodes and the other nodes colocated "
               "with them.",
               DebugInfo(x_root), DebugInfo(y_root)));
  }

  stays.request.assigned = *assigned;
  stays.request.resource = *resource;
  stays.request.requested =
      specs.EnsureSpecification(specs.EnsureSpecification(*requested, *assigned), *resource);
  stays.request.types = types;
  if (stays.rank == goes.rank) ++stays.rank;
  goes.parent = stays.parent;
  return OkStatus();
}

void Colocation::DropXlaTypes() {
  const auto is_xla = [&](int type) { return table_->types()[type].compare(0, 4, "XLA_") == 0; };
  bool any = false;
  for (int type = 0; type < static_cast<int>(table_->types().size()); ++type) any |= is_xla(type);
  if (!any) return;
  for (int id = 0; id < static_cast<int>(members_.size()); ++id) {
    if (members_[id].parent != id) continue;
    GroupConstraints& request = members_[id].request;
    const DeviceName& wanted = table_->specs().name(request.requested);
    if (wanted.type && wanted.type->compare(0, 4, "XLA_") == 0) continue;
    TypeList others;
    for (const RankedType& type : table_->type_list(request.types)) {
      if (!is_xla(type.type)) others.push_back(type);
    }
    if (!others.empty()) request.types = table_->InternTypes(std::move(others));
  }
}

// Choosing.

StatusOr<const CandidateSet*> Colocation::Candidates(const Node& node) {
  const int root = Root(node.id());
  const CandidateSet* candidates = table_->Choose(members_[root].request);
  if (candidates == nullptr) {
    culprit_ = &node;
    return ExplainEmpty(node, root);
  }
  return candidates;
}

Status Colocation::Narrow(const Node& node, int device) {
  Member& root = members_[Root(node.id())];
  if (root.placed == device) return OkStatus();
  culprit_ = &node;
  SpecPool& specs = table_->specs();
  const int spec = table_->device_spec(device);
  GroupConstraints narrowed = root.request;
  StatusOr<int> merged = specs.Merge(narrowed.assigned, spec, /*soft=*/false);
  if (merged.ok()) {
    narrowed.assigned = *merged;
    merged = specs.MergeOverride(narrowed.resource, spec);
  }
  if (merged.ok()) {
    narrowed.resource = *merged;
    merged = specs.MergeOverride(narrowed.requested, spec);
  }
  if (!merged.ok()) {
    return errors::Internal("the group of {{node ", node.name(), "}} cannot go to ",
                            table_->device_name(device), ": ", Message(merged.status()));
  }
  narrowed.requested = *merged;
  root.request = narrowed;
  root.placed = device;
  if (root.placed_by < 0) root.placed_by = node.id();
  return OkStatus();
}

Status Colocation::ExplainEmpty(const Node& node, int root) {
  const GroupConstraints& request = members_[root].request;
  SpecPool& specs = table_->specs();
  if (request.requested == 0) {
    std::vector<std::string> inputs;
    for (const DataType type : node.input_types()) inputs.push_back(DataTypeName(type));
    return errors::InvalidArgument(
        "Node had no OpKernel registered to support this operation: Operation was ", node.type(),
        " and inputs were [", StrJoin(inputs, ", "), "].\n", DebugInfo(root));
  }
  const std::string& wanted = node.requested_device();
  const StatusOr<int> own = specs.Parse(wanted);
  if (!own.ok() || *own != request.requested) {
    return errors::InvalidArgument(
        "Could not satisfy explicit device specification '", wanted, "' because the node ",
        ForColocation(node),
        " was colocated with a group of nodes that required incompatible device '",
        specs.Text(request.requested), "'. All available devices [", table_->DeviceNames(), "]. ",
        DebugInfo(root));
  }
  const DeviceName& name = specs.name(*own);
  if (!table_->AnyMatches(*own)) {
    const bool gpu = name.type && (*name.type == "GPU" || *name.type == "gpu");
    const bool have_gpu = table_->FindType("GPU") >= 0;
    return errors::InvalidArgument(
        "{{node ", node.name(), "}} was explicitly assigned to ", wanted,
        " but available devices are [ ", table_->DeviceNames(),
        " ]. Make sure the device specification refers to a valid device.",
        gpu && !have_gpu ? " The requested device appears to be a GPU, but CUDA is not enabled."
                         : "");
  }
  std::string attrs;
  for (const auto& [key, value] : node.attrs()) {
    StrAppend(&attrs, attrs.empty() ? "" : ", ", key, "=", value.DebugString());
  }
  return errors::InvalidArgument("Could not satisfy explicit device specification '", wanted,
                                 "' because no supported kernel for ",
                                 name.type ? *name.type : "those", " devices is available.",
                                 DebugInfo(root), "\nOp: ", node.type(), "\nNode attrs: ", attrs,
                                 KernelsText(node));
}

std::string Colocation::DebugInfo(int root) {
  std::map<std::string, std::string> types_of_op;
  std::string nodes;
  int count = 0;
  constexpr int kMaxNodes = 50;
  for (int id = 0; id < static_cast<int>(members_.size()); ++id) {
    if (members_[id].parent < 0 || Root(id) != root) continue;
    const Node& node = *graph_.node(id);
    types_of_op[node.type()] = table_->TypesText(members_[id].own_types);
    if (++count <= kMaxNodes) {
      StrAppend(&nodes, "\n  ", node.name(), " (", node.type(), ") ", node.requested_device());
      if (!node.assigned_device().empty()) {
        StrAppend(&nodes, " framework assigned device=", node.assigned_device());
      }
    }
  }
  if (count > kMaxNodes) StrAppend(&nodes, "\n  and ", count - kMaxNodes, " more");
  if (count <= 1) return "";
  const GroupConstraints& request = members_[root].request;
  SpecPool& specs = table_->specs();
  std::string text = StrCat(
      "\nColocation Debug Info:\nColocation group had the following types and supported "
      "devices: \nRoot Member(assigned_device_name='",
      specs.Text(request.assigned), "' resource_device_name='", specs.Text(request.resource),
      "' requested_device_name='", specs.Text(request.requested), "' supported_device_types=[",
      table_->TypesText(request.types), "])");
  for (const auto& [op, types] : types_of_op) StrAppend(&text, "\n", op, ": ", types);
  StrAppend(&text,
            "\n\nColocation members, user-requested devices, and framework assigned devices, if "
            "any:",
            nodes, "\n");
  return text;
}

}  // namespace millrace
