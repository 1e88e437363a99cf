#include "placer/placement_log.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/strings.h"
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
      return "it needs only the shape of its input, which is there";
    case ChoiceRule::kBetweenEquals:
      return "an identity between two nodes that ask for the same; its input is there";
    case ChoiceRule::kFollowsConsumers:
      return "it has no inputs, and all its consumers are there";
    case ChoiceRule::kGroupIsPlaced:
      return "a node of its group was placed there";
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
  record.op = &node.op();
}

void PlacementLog::AddJoin(JoinReason reason, int other, int node, int slot,
                           std::string_view label) {
  joins_.push_back({other, node, slot, StoreShared(label), reason});
}

int PlacementLog::AddCandidates(CandidateList list) {
  candidates_.push_back(std::move(list));
  return static_cast<int>(candidates_.size()) - 1;
}

void PlacementLog::AddChoice(int node, ChoiceRule rule, int device, int candidates) {
  NodeRecord& record = nodes_[node];
  record.rule = rule;
  record.device = device;
  // A group that is narrowed to one device was once given this list.
  record.candidates = candidates;
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
    } else {
      StrAppend(out, " into input ", join.slot);
    }
    const std::string_view origin = Text(nodes_[join.node].origin);
    if (!origin.empty()) StrAppend(out, " (", origin, ")");
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
    StrAppend(out, "    ", devices_[candidate.device], " ",
              candidate.device == record.device ? "chosen" : RefusalText(candidate.refusal), "\n");
  }
}

void PlacementLog::AppendNode(int node, const Groups& groups, bool repeat_group,
                              std::string* out) const {
  const NodeRecord& record = nodes_[node];
  StrAppend(out, Text(record.name), " (", record.op->def.name(), ")");
  if (record.requested != 0) StrAppend(out, " asks for ", Text(record.requested));
  if (record.device >= 0) StrAppend(out, " -> ", devices_[record.device]);
  if (record.origin != 0) StrAppend(out, "\n  made at ", Text(record.origin));
  StrAppend(out, "\n  rule ", static_cast<int>(record.rule), ": ", RuleText(record.rule), "\n");
  const int group = groups.group_of[node];
  if (repeat_group || group == node) {
    AppendGroup(group, groups, out);
  } else {
    StrAppend(out, "  in the group of ", Name(group), "\n");
  }
  AppendCandidates(node, out);
}

std::string PlacementLog::ToText(std::string_view node) const {
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    if (nodes_[id].op == nullptr || Name(id) != node) continue;
    std::string out;
    AppendNode(id, FindGroups(), /*repeat_group=*/true, &out);
    return out;
  }
  return StrCat("there was no node '", node, "' when the graph was placed\n");
}

std::string PlacementLog::ToText() const {
  const Groups groups = FindGroups();
  std::string out;
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    if (nodes_[id].op != nullptr) AppendNode(id, groups, /*repeat_group=*/false, &out);
  }
  return out;
}

std::string PlacementLog::Summary() const {
  std::map<std::pair<std::string_view, std::string_view>, int> counts;
  std::size_t width = 6;
  for (const NodeRecord& record : nodes_) {
    if (record.op == nullptr) continue;
    const std::string_view device =
        record.device < 0 ? std::string_view("(none)") : std::string_view(devices_[record.device]);
    width = std::max(width, device.size());
    ++counts[{device, record.op->def.name()}];
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
