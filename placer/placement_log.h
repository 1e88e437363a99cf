// What the placer decided, and why: written by the placer as it decides, never worked out
// again afterwards.
#ifndef PLACER_PLACEMENT_LOG_H_
#define PLACER_PLACEMENT_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>
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
};

// The rule that chose a node's device.
enum class ChoiceRule : uint8_t {
  kNone,              // not placed: an error came first
  kAlreadyAssigned,   // 1: placed before
  kFollowsInput,      // 2: works on its input's shape only
  kFollowsConsumers,  // 3: has no inputs, and all consumers are on this device
  kGroupIsPlaced,     // 4: another node of its group was placed before
  kOnlyCandidate,     // 5: no other device is left
  kDefaultDevice,     // 6: the default local device
  kKernelPriority,    // 7: its kernel has the highest priority
  kTypeOrder,         // 8: first in the order of device types
  kLocal,             // 9: local before remote
  kName,              // 10: first by name
};

// Why a device was not a candidate.
enum class Refusal : uint8_t { kNone, kJob, kReplica, kTask, kType, kId, kNoKernel };

// Not synchronised. Holds copies of names, so it may outlive the graph; `op` pointers are
// those of the op registry, which must outlive it.
class PlacementLog {
 public:
  // Everything about one node, in lines for people; NotPlaced text if it is not known.
  std::string ToText(std::string_view node) const;
  // The same for all nodes, in order of ids.
  std::string ToText() const;
  // A table "device op count", sorted, for log_device_placement.
  std::string Summary() const;
  int num_nodes() const { return static_cast<int>(nodes_.size()); }

  // The placer writes from here on. Nodes and groups are named by node ids.
  struct Candidate {
    int device;  // index into the devices of Begin
    Refusal refusal;
  };
  // What a group could choose from; shared by all groups with the same constraints.
  struct CandidateList {
    std::string request;             // what was asked for, "" for anything
    std::string soft;                // what was tried instead, "" if that was not needed
    std::string types;               // types of devices with a kernel: "GPU CPU", best first
    std::vector<Candidate> devices;  // allowed ones first, best first
  };
  void Begin(std::vector<std::string> devices, int num_node_ids);
  void AddNode(const Node& node);
  // x and y (as the constraint names them) are in one group from now on; `slot` is the
  // input of y, or -1 for a label.
  void AddJoin(JoinReason reason, int x, int y, int slot, std::string_view label);
  // A constraint was given up: a colocation under soft placement, or a request that gave
  // way to another one.
  void AddNote(int node, std::string text);
  int AddCandidates(CandidateList list);
  void AddChoice(int node, ChoiceRule rule, int device, int candidates);

 private:
  struct NodeRecord {
    uint32_t name = 0, requested = 0, origin = 0;  // offsets into text_
    int32_t device = -1, candidates = -1;
    const OpInfo* op = nullptr;
    ChoiceRule rule = ChoiceRule::kNone;
  };
  struct Join {
    int32_t x, y, slot;
    uint32_t label;
    JoinReason reason;
  };
  struct Group;

  uint32_t Store(std::string_view text);
  std::string_view Text(uint32_t offset) const;
  std::vector<std::vector<int>> Groups(std::vector<int>* group_of) const;
  void Append(int node, const std::vector<int>& members, std::string* out) const;

  std::vector<std::string> devices_;
  std::string text_;  // names one after the other, each ended by NUL
  StringMap<uint32_t> shared_;
  std::vector<NodeRecord> nodes_;
  std::vector<Join> joins_;
  std::vector<std::pair<int, std::string>> notes_;
  std::vector<CandidateList> candidates_;
};

}  // namespace millrace

#endif  // PLACER_PLACEMENT_LOG_H_
