// SPDX-License-Identifier: Apache-2.0
#include "placer/placement_log.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/strings.h"
#include "device/device_name.h"
#include "graph/dataflow_graph.h"

namespace millrace {
namespace {

std::string_view RuleText(ChoiceRule rule) {
  switch (rule) {
    case ChoiceRule::kNone:
      return "an error came first";
    case ChoiceRule::kAlreadyAssigned:
      return "it was placed before";
    case ChoiceRule::kFollowsInput:
      return "it needs only the shape of its input, which is there: ";
    case ChoiceRule::kBetweenEquals:
      return "an identity between two nodes that ask for the same; its input is there: ";
    case ChoiceRule::kFollowsConsumers:
      return "it has no inputs, and all its consumers are there, the first is ";
    case ChoiceRule::kGroupIsPlaced:
      return "a node of its group was placed there: ";
    case ChoiceRule::kOnlyCandidate:
      return "no other device would do";
    case ChoiceRule::kDefaultDevice:
      return "the default local device";
    case ChoiceRule::kKernelPriority:
      return "highest kernel priority";
    case ChoiceRule::kTypeOrder:
      return "first in the order of device types";
    case ChoiceRule::kLocal:
      return "local before remote";
    case ChoiceRule::kName:
      return "first by name";
    case ChoiceRule::kCost:
      return "a step ends soonest so, by what it is expected to cost";
  }
  return "";
}

std::string_view RefusalText(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "would do as well";
    case Refusal::kJob:
      return "refused: another job is asked for";
    case Refusal::kReplica:
      return "refused: another replica is asked for";
    case Refusal::kTask:
      return "refused: another task is asked for";
    case Refusal::kType:
      return "refused: another type is asked for";
    case Refusal::kId:
      return "refused: another number is asked for";
    case Refusal::kNoKernel:
      return "refused: a node of the group has no kernel for this type";
  }
  return "";
}

std::string_view JoinText(JoinReason reason) {
  switch (reason) {
    case JoinReason::kReferenceEdge:
      return "reference edge";
    case JoinReason::kResourceEdge:
      return "resource edge";
    case JoinReason::kDatasetEdge:
      return "dataset edge";
    case JoinReason::kClass:
      return "_class";
    case JoinReason::kFunction:
      return "function";
  }
  return "";
}

}  // namespace

uint32_t PlacementLog::Store(std::string_view text) {
  if (text.empty()) return 0;
  const uint32_t at = static_cast<uint32_t>(text_.size());
  text_.append(text);
  text_.push_back('\0');
  return at;
}

uint32_t PlacementLog::StoreShared(std::string_view text) {
  if (text.empty()) return 0;
  const auto found = shared_.find(text);
  if (found != shared_.end()) return found->second;
  return shared_.emplace(text, Store(text)).first->second;
}

void PlacementLog::AddNode(const Node& node) {
  if (node.id() >= static_cast<int>(nodes_.size())) nodes_.resize(node.id() + 1);
  NodeRecord& record = nodes_[node.id()];
  record.name = Store(node.name());
  record.requested = StoreShared(node.requested_device());
  record.origin = StoreShared(node.origin());
  record.device_origin = StoreShared(node.device_origin());
  record.op = &node.op();
}

void PlacementLog::AddJoin(JoinReason reason, int other, int node, int slot, std::string_view label,
                           std::string_view asks) {
  joins_.push_back({other, node, slot, StoreShared(label), StoreShared(asks), reason});
}

int PlacementLog::AddCandidates(CandidateList list) {
  candidates_.push_back(std::move(list));
  return static_cast<int>(candidates_.size()) - 1;
}

void PlacementLog::AddChoice(int node, ChoiceRule rule, int device, int candidates, int followed) {
  NodeRecord& record = nodes_[node];
  record.rule = rule;
  record.device = device;
  // A group that is narrowed to one device was once given this list.
  record.candidates = candidates;
  record.followed = followed;
}

PlacementLog::Groups PlacementLog::FindGroups() const {
  Groups groups;
  groups.group_of.resize(nodes_.size());
  std::iota(groups.group_of.begin(), groups.group_of.end(), 0);
  std::vector<int>& parent = groups.group_of;
  const auto root = [&](int id) {
    while (parent[id] != id) {
      parent[id] = parent[parent[id]];
      id = parent[id];
    }
    return id;
  };
  for (const Join& join : joins_) {
    const int a = root(join.other), b = root(join.node);
    parent[std::max(a, b)] = std::min(a, b);
  }
  groups.members.resize(nodes_.size());
  groups.joins.resize(nodes_.size());
  groups.notes.resize(nodes_.size());
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    parent[id] = root(id);
    groups.members[parent[id]].push_back(id);
  }
  for (int i = 0; i < static_cast<int>(joins_.size()); ++i) {
    groups.joins[parent[joins_[i].node]].push_back(i);
  }
  for (int i = 0; i < static_cast<int>(notes_.size()); ++i) {
    groups.notes[parent[notes_[i].first]].push_back(i);
  }
  return groups;
}

void PlacementLog::AppendGroup(int group, const Groups& groups, std::string* out) const {
  const std::vector<int>& members = groups.members[group];
  for (const int index : groups.notes[group]) {
    const auto& [id, text] = notes_[index];
    StrAppend(out, "  note on ", Name(id), ": ", text, "\n");
  }
  if (members.size() == 1) return;
  StrAppend(out, "  group of ", members.size(), ":\n");
  for (const int id : members) {
    const NodeRecord& member = nodes_[id];
    StrAppend(out, "    ", Text(member.name), " (", member.op->def.name(), ")");
    if (member.requested != 0) StrAppend(out, " asks for ", Text(member.requested));
    StrAppend(out, "\n");
  }
  for (const int index : groups.joins[group]) {
    const Join& join = joins_[index];
    StrAppend(out, "    ", Name(join.node), " joined ", Name(join.other), ": ",
              JoinText(join.reason));
    if (join.reason == JoinReason::kClass) {
      StrAppend(out, " loc:@", Text(join.label));
    } else if (join.reason == JoinReason::kFunction) {
      StrAppend(out, ": ", Text(join.label));
    } else {
      StrAppend(out, " into input ", join.slot);
    }
    const std::string_view origin = Text(nodes_[join.node].origin);
    if (!origin.empty()) StrAppend(out, " (", origin, ")");
    if (join.asks != 0) StrAppend(out, "; together they ask for ", Text(join.asks));
    StrAppend(out, "\n");
  }
}

void PlacementLog::AppendCandidates(int node, std::string* out) const {
  const NodeRecord& record = nodes_[node];
  if (record.candidates < 0) return;
  const CandidateList& list = candidates_[record.candidates];
  StrAppend(out, "  request: ", list.request.empty() ? "none" : list.request);
  if (list.softened) {
    StrAppend(out, ", softened to ", list.soft.empty() ? "none" : list.soft);
  }
  StrAppend(out, "; kernels for: ", StripWhitespace(list.types), "\n");
  for (const Candidate& candidate : list.devices) {
    StrAppend(out, "    ", devices_[candidate.device].name, " ",
              candidate.device == record.device ? "chosen" : RefusalText(candidate.refusal), "\n");
  }
  if (list.exact) StrAppend(out, "    every other device refused: one is named\n");
}

void PlacementLog::AppendNode(int node, const Groups& groups, bool repeat_group,
                              std::string* out) const {
  const NodeRecord& record = nodes_[node];
  StrAppend(out, Text(record.name), " (", record.op->def.name(), ")");
  if (record.requested != 0) StrAppend(out, " asks for ", Text(record.requested));
  if (record.device >= 0) StrAppend(out, " -> ", devices_[record.device].name);
  if (record.origin != 0) StrAppend(out, "\n  made at ", Text(record.origin));
  if (record.device_origin != 0) StrAppend(out, "\n  asked by ", Text(record.device_origin));
  StrAppend(out, "\n  rule ", static_cast<int>(record.rule), ": ", Why(record), "\n");
  const int group = groups.group_of[node];
  if (repeat_group || group == node) {
    AppendGroup(group, groups, out);
  } else {
    StrAppend(out, "  in the group of ", Name(group), "\n");
  }
  AppendCandidates(node, out);
}

std::string PlacementLog::Why(const NodeRecord& record) const {
  return StrCat(RuleText(record.rule),
                record.followed < 0 ? std::string_view() : Name(record.followed));
}

std::vector<PlacementLog::Decision> PlacementLog::Decisions() const {
  std::vector<Decision> decisions;
  for (const NodeRecord& record : nodes_) {
    if (record.op == nullptr || record.is_neighbour) continue;
    decisions.push_back(
        {Text(record.name), record.op->def.name(), Text(record.requested),
         record.device < 0 ? std::string_view() : std::string_view(devices_[record.device].name),
         Text(record.origin), record.rule, Why(record)});
  }
  return decisions;
}

std::string PlacementLog::ToText(std::string_view node) const {
  const int id = Find(node);
  if (id < 0) return StrCat("there was no node '", node, "' when the graph was placed\n");
  std::string out;
  AppendNode(id, FindGroups(), /*repeat_group=*/true, &out);
  return out;
}

int PlacementLog::Find(std::string_view node) const {
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    if (nodes_[id].op != nullptr && Name(id) == node) return id;
  }
  return -1;
}

std::string PlacementLog::Replay(std::string_view node) const {
  const int id = Find(node);
  const int device = id < 0 ? -1 : ReplayChoice(id);
  return device < 0 ? "" : devices_[device].name;
}

int PlacementLog::ReplayChoice(int node) const {
  const NodeRecord& record = nodes_[node];
  // What was placed before, and what a schedule chose, are facts here.
  if (record.rule == ChoiceRule::kAlreadyAssigned || record.rule == ChoiceRule::kCost) {
    return record.device;
  }
  if (record.candidates < 0) return -1;
  const CandidateList& list = candidates_[record.candidates];
  const StatusOr<DeviceName> request = DeviceName::Parse(list.softened ? list.soft : list.request);
  if (!request.ok()) return -1;
  const std::string types = StrCat(" ", list.types);
  const auto admits = [&](int device) {
    const StatusOr<DeviceName> name = DeviceName::Parse(devices_[device].name);
    return name.ok() && request->Matches(*name) &&
           types.find(StrCat(" ", devices_[device].type, " ")) != std::string::npos;
  };
  if (record.followed >= 0) {
    // The nodes that are followed were placed earlier: this ends.
    const int device = ReplayChoice(record.followed);
    return device >= 0 && admits(device) ? device : -1;
  }
  // By the default device, priority, type, local before remote, name.
  const Candidate* best = nullptr;
  int admitted = 0;
  const auto key = [&](const Candidate& c) {
    const DeviceRecord& d = devices_[c.device];
    return std::make_tuple(!d.is_default, d.is_default ? 0 : -c.priority,
                           list.types.find(StrCat(d.type, " ")), !d.is_local,
                           std::string_view(d.name));
  };
  for (const Candidate& candidate : list.devices) {
    if (admits(candidate.device) != (candidate.refusal == Refusal::kNone)) return -1;
    if (candidate.refusal != Refusal::kNone) continue;
    ++admitted;
    if (best == nullptr || key(candidate) < key(*best)) best = &candidate;
  }
  if (best == nullptr || (record.rule == ChoiceRule::kOnlyCandidate) != (admitted == 1)) return -1;
  return best->device;
}

std::string PlacementLog::ToText() const {
  const Groups groups = FindGroups();
  std::string out;
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    if (nodes_[id].op != nullptr && !nodes_[id].is_neighbour) {
      AppendNode(id, groups, /*repeat_group=*/false, &out);
    }
  }
  return out;
}

std::string PlacementLog::Summary(std::span<const PlacementLog> logs) {
  std::map<std::pair<std::string_view, std::string_view>, int> counts;
  std::size_t width = 6;
  for (const PlacementLog& log : logs) {
    for (const NodeRecord& record : log.nodes_) {
      if (record.op == nullptr || record.is_neighbour) continue;
      const std::string_view device = record.device < 0
                                          ? std::string_view("(none)")
                                          : std::string_view(log.devices_[record.device].name);
      width = std::max(width, device.size());
      ++counts[{device, record.op->def.name()}];
    }
  }
  std::string out = "device";
  out.append(width - 6, ' ').append("  count  op\n");
  for (const auto& [key, count] : counts) {
    const std::string number = StrCat(count);
    StrAppend(&out, key.first);
    out.append(width - key.first.size() + 2, ' ');
    out.append(number.size() < 5 ? 5 - number.size() : 0, ' ');
    StrAppend(&out, number, "  ", key.second, "\n");
  }
  return out;
}

}  // namespace millrace
