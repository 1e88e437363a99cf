// SPDX-License-Identifier: Apache-2.0
#include "master/dump/canonical_graph.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr int64_t kReadableElements = 64;
constexpr std::string_view kLoop = "_cloop";  // before the names of control loops
constexpr std::string_view kControl = "/ctrl";

// "x_S12": the base "x", the kind 'S'. False for another name.
bool SplitMadeName(std::string_view name, std::string_view* base, char* kind) {
  size_t digits = 0;
  while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name.rbegin()[digits]))) {
    ++digits;
  }
  if (digits == 0 || digits + 2 > name.size()) return false;
  const size_t at = name.size() - digits - 2;
  *kind = name[at + 1];
  if (name[at] != '_' || (*kind != 'S' && *kind != 'G')) return false;
  *base = name.substr(0, at);
  return true;
}

bool IsTransfer(std::string_view op) {
  return op == "_Send" || op == "_Recv" || op == "_HostSend" || op == "_HostRecv";
}

// Before what comes after the number of "edge_<number>_<node>"; npos for other names.
size_t EdgeSource(std::string_view tensor_name) {
  constexpr std::string_view kEdge = "edge_";
  if (!tensor_name.starts_with(kEdge)) return std::string_view::npos;
  const size_t at = tensor_name.find('_', kEdge.size());
  return at == std::string_view::npos ? at : at + 1;
}

void MakeReadable(pb::TensorProto* proto) {
  if (proto->tensor_content().empty()) return;
  const StatusOr<Tensor> tensor = TensorFromProto(*proto);
  if (!tensor.ok() || tensor->num_elements() > kReadableElements) return;
  pb::TensorProto readable;
  TensorToReadableProto(*tensor, &readable);
  *proto = std::move(readable);
}

}  // namespace

IncarnationNumbers NumberIncarnations(const StringMap<uint64_t>& by_device) {
  const std::map<std::string, uint64_t> sorted(by_device.begin(), by_device.end());
  IncarnationNumbers numbers;
  for (const auto& [device, incarnation] : sorted) {
    numbers.try_emplace(incarnation, static_cast<int64_t>(numbers.size()) + 1);
  }
  numbers[0] = 0;
  return numbers;
}

CanonicalNames::CanonicalNames(const DataflowGraph& before, IncarnationNumbers incarnations)
    : incarnations_(std::move(incarnations)) {
  for (const Node* node : before.OpNodes()) before_.insert(node->name());
}

void CanonicalNames::Apply(std::span<pb::GraphDef> parts) {
  made_.clear();
  for (const pb::GraphDef& part : parts) {
    for (const pb::NodeDef& node : part.node()) {
      if (!before_.contains(node.name())) made_.insert(node.name());
    }
  }
  for (pb::GraphDef& part : parts) {
    for (pb::NodeDef& node : *part.mutable_node()) ApplyTo(&node);
  }
}

std::string CanonicalNames::NewName(std::string_view name) {
  if (const auto it = new_name_.find(name); it != new_name_.end()) return it->second;
  std::string_view base;
  char kind = 0;
  if (!made_.contains(name) || !SplitMadeName(name, &base, &kind)) return std::string(name);
  const std::string new_base = NewBase(base);
  int64_t& next = kind == 'S' ? next_master_ : next_worker_;
  std::string chosen;
  do {
    chosen = StrCat(new_base, "_", kind, next++);
  } while (before_.contains(chosen));
  new_name_[std::string(name)] = chosen;
  return chosen;
}

// What a node was made for may itself have been made.
std::string CanonicalNames::NewBase(std::string_view base) {
  if (before_.contains(base)) return std::string(base);
  if (made_.contains(base) || new_name_.contains(base)) return NewName(base);
  if (base.ends_with(kControl)) {
    return StrCat(NewBase(base.substr(0, base.size() - kControl.size())), kControl);
  }
  if (base.starts_with(kLoop)) return StrCat(kLoop, NewBase(base.substr(kLoop.size())));
  return std::string(base);
}

void CanonicalNames::ApplyTo(pb::NodeDef* node) {
  node->set_name(NewName(node->name()));
  int controls = 0;
  for (std::string& input : *node->mutable_input()) {
    const bool control = input.starts_with("^");
    const size_t colon = control ? std::string::npos : input.rfind(':');
    const size_t begin = control ? 1 : 0;
    const size_t end = colon == std::string::npos ? input.size() : colon;
    input = StrCat(input.substr(0, begin), NewName(input.substr(begin, end - begin)),
                   input.substr(end));
    controls += control;
  }
  // They are in order of names, which have changed.
  std::sort(node->mutable_input()->end() - controls, node->mutable_input()->end());
  if (!IsTransfer(node->op())) return;
  auto& attrs = *node->mutable_attr();
  for (const char* name : {"_src", "_dst"}) {
    if (const auto it = attrs.find(name); it != attrs.end())
      it->second.set_s(NewName(it->second.s()));
  }
  if (const auto it = attrs.find("tensor_name"); it != attrs.end()) {
    const std::string tensor_name = it->second.s();
    const size_t source = EdgeSource(tensor_name);
    if (source != std::string::npos) {
      it->second.set_s(StrCat(tensor_name.substr(0, source), NewName(tensor_name.substr(source))));
    }
  }
  if (const auto it = attrs.find("send_device_incarnation"); it != attrs.end()) {
    const auto number = incarnations_.find(static_cast<uint64_t>(it->second.i()));
    it->second.set_i(number == incarnations_.end() ? -1 : number->second);
  }
}

std::string GraphText(const pb::GraphDef& graph) {
  pb::GraphDef readable = graph;
  for (pb::NodeDef& node : *readable.mutable_node()) {
    for (auto& [name, value] : *node.mutable_attr()) {
      if (value.has_tensor()) MakeReadable(value.mutable_tensor());
    }
  }
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetHideUnknownFields(true);
  std::string text;
  printer.PrintToString(readable, &text);
  return text;
}

}  // namespace millrace
