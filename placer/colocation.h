// SPDX-License-Identifier: Apache-2.0
// Which nodes must share a device, and what each such group asks for.
#ifndef PLACER_COLOCATION_H_
#define PLACER_COLOCATION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/slab.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/device_table.h"
#include "placer/placer.h"

namespace millrace {

struct IoGroups;
class Inspection;

// A union-find over the op nodes of a graph, which must not change meanwhile except for
// assigned devices. A group is named by any of its nodes. `log` may be null.
class Colocation {
 public:
  // `inspection` looks into functions; null if none shall be looked into.
  Colocation(const DataflowGraph& graph, const PlacerInput& input, DeviceTable* table,
             PlacementLog* log, Inspection* inspection);

  // Reads every node's kernels and requests, then joins along reference and resource edges,
  // then across calls as their functions ask, then by _class: an earlier constraint wins. Errors
  // as Place.
  Status Build();

  // The devices that the node's group can go to; the errors of Place without its prefix.
  StatusOr<const CandidateSet*> Candidates(const Node& node);
  // From here on the node's group is on this device. Internal if it cannot be.
  Status Narrow(const Node& node, int device);
  // The same number for all nodes of a group.
  int GroupOf(const Node& node) { return Root(node.id()); }
  // What the node's group asks for.
  const GroupConstraints& RequestOf(const Node& node) { return members_[Root(node.id())].request; }
  // The node by which the group was narrowed, or -1.
  int PlacedBy(const Node& node) { return members_[Root(node.id())].placed_by; }
  // The node of the last error; null if it was none in particular.
  const Node* culprit() const { return culprit_; }
  // True if the node brings a variable or resource into the world.
  static bool IsResourceGenerator(const Node& node);

 private:
  struct Member {
    int parent = -1;
    int rank = 0;
    int own_types = 0;  // before any join
    int placed = -1, placed_by = -1;
    GroupConstraints request;
  };

  Status InitMember(const Node& node);
  Status InitAssigned(const Node& node, Member* member);
  Status InitRequested(const Node& node, Member* member);
  StatusOr<int> SupportedTypes(const Node& node);
  bool IsFunction(const Node& node);
  Status NoKernel(const Node& node) const;

  Status JoinEdges();
  Status JoinByEdge(const Edge& edge, JoinReason reason);
  Status MakeRoom(const Node& src, const Node& dst, int src_root, int dst_root);
  void KeepHostTypesOnCpu();
  bool IsHostList(const Node& node) const;

  // In inspection.cc.
  Status LookIntoCalls();
  Status Apply(const IoGroups& groups, const Node& call);
  Status JoinThroughCall(const Node& first, const Node& other, bool is_resource,
                         const std::string& why);
  Status Limit(const Node& node, const GroupConstraints& inside, const std::string& function);

  Status JoinClasses();
  Status JoinLabel(const Node& node, std::string_view label, bool in_attribute,
                   absl::flat_hash_map<std::string_view, const Node*>* first_of);
  // Changes nothing on an error.
  Status Join(const Node& x, const Node& y, bool* joined);
  std::string_view Asks(const Node& node);  // for the log
  void DropXlaTypes();

  Status ExplainEmpty(const Node& node, int root);
  std::string DebugInfo(int root);
  std::string KernelsText(const Node& node) const;
  int Root(int id);

  const DataflowGraph& graph_;
  const PlacerInput& input_;
  DeviceTable* const table_;
  PlacementLog* const log_;
  Inspection* const inspection_;
  struct KnownTypes {
    const AttrMap* attrs = nullptr;
    int types = 0;
  };
  LargeVector<Member> members_;                                 // by node id
  absl::flat_hash_map<const OpInfo*, KnownTypes> known_types_;  // of the last node of an op
  absl::flat_hash_map<const OpInfo*, bool> is_function_;
  std::vector<std::string> spec_texts_;  // for the log, by spec
  const Node* culprit_ = nullptr;
};

// Why the edge ties its ends to one device; nothing for most edges.
std::optional<JoinReason> TiesTogether(const Edge& edge);
// The labels of attribute _class: what follows "loc:@" in each of its strings. Anything but a
// list of strings is ignored.
std::vector<std::string_view> ClassLabels(const Node& node);

}  // namespace millrace

#endif  // PLACER_COLOCATION_H_
