// SPDX-License-Identifier: Apache-2.0
// What the placer decided, and why: written by the placer as it decides, never worked out
// again afterwards.
#ifndef PLACER_PLACEMENT_LOG_H_
#define PLACER_PLACEMENT_LOG_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/string_map.h"

namespace millrace {

class Node;
struct OpInfo;

// Why two nodes must share a device.
enum class JoinReason : uint8_t {
  kReferenceEdge,
  kResourceEdge,
  kDatasetEdge,  // a variant edge between two datasets
  kClass,        // "loc:@name" in attribute _class
  kFunction,     // arguments and results of a function that ties them together
};

// The rule that chose a node's device; texts quote the number.
enum class ChoiceRule : uint8_t {
  kNone = 0,              // not placed: an error came first
  kAlreadyAssigned = 1,   // placed before
  kFollowsInput = 2,      // works on its input's shape only, and goes where that is
  kBetweenEquals = 3,     // an identity between nodes that ask for the same: as its input
  kFollowsConsumers = 4,  // has no inputs, and all its consumers are on this device
  kGroupIsPlaced = 5,     // another node of its group was placed before
  kOnlyCandidate = 6,     // no other device would do
  kDefaultDevice = 7,     // the default local device
  kKernelPriority = 8,    // its kernel has the highest priority
  kTypeOrder = 9,         // first in the order of types of devices
  kLocal = 10,            // local before remote
  kName = 11,             // first by name
  kCost = 12,             // a step is expected to end soonest so (AutoPlace)
};

// Why a device was not a candidate: the part of the request it does not match.
enum class Refusal : uint8_t { kNone, kJob, kReplica, kTask, kType, kId, kNoKernel };

// A value, not synchronised. Copies the names it needs and so may outlive the graph, but not
// the registry of its ops.
class PlacementLog {
 public:
  // Everything about one node, in lines for people; says so if it knows no such node.
  std::string ToText(std::string_view node) const;
  // The same for all nodes, in order of ids; a group is described at its first node only.
  std::string ToText() const;
  // A table of device, op and count with a heading, sorted: log_device_placement.
  std::string Summary() const { return Summary(std::span(this, 1)); }
  static std::string Summary(std::span<const PlacementLog> logs);

  // The decisions one by one, in order of ids, for programs. Views live as long as the log.
  struct Decision {
    std::string_view node, op, requested, device, origin;
    ChoiceRule rule;
    std::string why;  // the rule in words
  };
  std::vector<Decision> Decisions() const;
  // The device of a node as it follows from the record alone: which devices the request
  // admits, their order, and the nodes that it follows. "" if it was not placed. What the
  // placer chose must be the same: tests replay whole graphs.
  std::string Replay(std::string_view node) const;

  // From here on: for the placer. Nodes are named by their ids, devices by index.
  struct DeviceRecord {
    std::string name, type;
    bool is_local = false, is_default = false;
  };
  struct Candidate {
    int device;
    Refusal refusal;
    int priority;  // of the group's kernels for its type
  };
  // What a group could choose from; shared by all groups with the same constraints.
  struct CandidateList {
    std::string request;  // "" for anything
    std::string soft;     // if softened, what was tried instead
    bool softened = false;
    bool exact = false;              // the request names one device; others were not looked at
    std::string types;               // with a kernel, best first, each followed by a blank
    std::vector<Candidate> devices;  // allowed ones first, best first
  };
  void SetDevices(std::vector<DeviceRecord> devices) { devices_ = std::move(devices); }
  void AddNode(const Node& node);
  // The node is there for its neighbours only; another log tells why it is where it is.
  void MarkAsNeighbour(int node) { nodes_[node].is_neighbour = true; }
  // `node` is in one group with `other` from now on, because of its input `slot` or, for
  // kClass and kFunction, because of `label`. From now on the group asks for `asks`.
  void AddJoin(JoinReason reason, int other, int node, int slot, std::string_view label,
               std::string_view asks);
  // A wish that was not granted.
  void AddNote(int node, std::string text) { notes_.emplace_back(node, std::move(text)); }
  int AddCandidates(CandidateList list);
  // `candidates` is what AddCandidates returned, or -1; `followed` the node whose place decided
  // (rules 2 to 5), or -1.
  void AddChoice(int node, ChoiceRule rule, int device, int candidates, int followed);

 private:
  struct NodeRecord {
    uint32_t name = 0, requested = 0, origin = 0, device_origin = 0;  // where their text begins
    int32_t device = -1, candidates = -1, followed = -1;
    const OpInfo* op = nullptr;  // null: no such node
    ChoiceRule rule = ChoiceRule::kNone;
    bool is_neighbour = false;
  };
  struct Join {
    int32_t other, node, slot;
    uint32_t label, asks;
    JoinReason reason;
  };
  // By the smallest id of each group: nodes, and indices into joins_ and notes_.
  struct Groups {
    std::vector<int> group_of;  // by node id
    std::vector<std::vector<int>> members, joins, notes;
  };

  uint32_t Store(std::string_view text);
  uint32_t StoreShared(std::string_view text);
  std::string_view Text(uint32_t at) const { return text_.c_str() + at; }
  std::string_view Name(int node) const { return Text(nodes_[node].name); }
  std::string Why(const NodeRecord& record) const;
  int Find(std::string_view node) const;  // -1: no such node
  int ReplayChoice(int node) const;
  Groups FindGroups() const;
  void AppendNode(int node, const Groups& groups, bool repeat_group, std::string* out) const;
  void AppendGroup(int group, const Groups& groups, std::string* out) const;
  void AppendCandidates(int node, std::string* out) const;

  std::vector<DeviceRecord> devices_;        // in the order in which they are preferred
  std::string text_ = std::string(1, '\0');  // each text ends with NUL; at 0 the empty one
  StringMap<uint32_t> shared_;               // texts that many nodes have
  std::vector<NodeRecord> nodes_;            // by id
  std::vector<Join> joins_;
  std::vector<std::pair<int, std::string>> notes_;
  std::vector<CandidateList> candidates_;
};

}  // namespace millrace

#endif  // PLACER_PLACEMENT_LOG_H_
