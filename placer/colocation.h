// Which nodes must share a device, and what each such group asks for.
#ifndef PLACER_COLOCATION_H_
#define PLACER_COLOCATION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/device_table.h"
#include "placer/placer.h"

namespace millrace {

// A union-find over the op nodes of a graph, which must not change meanwhile except for
// assigned devices. A group is named by any of its nodes. `log` may be null.
class Colocation {
 public:
  Colocation(const DataflowGraph& graph, const PlacerInput& input, DeviceTable* table,
             PlacementLog* log);

  // Reads every node's kernels and requests, then joins along reference and resource edges,
  // then by _class: an earlier constraint wins. Errors as Place.
  Status Build();

  // The devices that the node's group can go to; the errors of Place without its prefix.
  StatusOr<const CandidateSet*> Candidates(const Node& node);
  // From here on the node's group is on this device. Internal if it is already on another.
  Status Narrow(const Node& node, int device);
  // The device the group was narrowed to, or -1.
  int PlacedOn(const Node& node) { return members_[Root(node.id())].placed; }
  // True if the node brings a variable or resource into the world.
  static bool IsResourceGenerator(const Node& node);

 private:
  struct Member {
    int parent = -1;
    int rank = 0;
    int own_types = 0;  // before any join
    int placed = -1;
    GroupRequest request;
  };

  Status InitMember(const Node& node);
  Status InitAssigned(const Node& node, Member* member);
  Status InitRequested(const Node& node, Member* member);
  StatusOr<int> SupportedTypes(const Node& node);
  bool IsFunction(const Node& node);
  Status NoKernel(const Node& node) const;

  Status JoinEdges();
  Status JoinByEdge(const Edge& edge, JoinReason reason);
  Status MakeRoomForEdge(const Edge& edge, int src_root, int dst_root);
  Status JoinClasses();
  Status JoinLabel(const Node& node, std::string_view label, bool in_attribute,
                   absl::flat_hash_map<std::string_view, const Node*>* first_of);
  // Changes nothing on an error.
  Status Join(const Node& x, const Node& y, bool* joined);
  void DropXlaTypes();

  Status ExplainEmpty(const Node& node, int root);
  std::string DebugInfo(int root);
  std::string KernelsText(const Node& node) const;
  int Root(int id);

  const DataflowGraph& graph_;
  const PlacerInput& input_;
  DeviceTable* const table_;
  PlacementLog* const log_;
  std::vector<Member> members_;  // by node id
  absl::flat_hash_map<const OpInfo*, bool> is_function_;
};

}  // namespace millrace

#endif  // PLACER_COLOCATION_H_
