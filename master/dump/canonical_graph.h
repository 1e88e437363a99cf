// SPDX-License-Identifier: Apache-2.0
// Graphs as text that is the same in two equal runs.
#ifndef MASTER_DUMP_CANONICAL_GRAPH_H_
#define MASTER_DUMP_CANONICAL_GRAPH_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "proto/graph.pb.h"

namespace millrace {

// A device's number instead of its incarnation, which is random: devices are counted from 1
// in order of names. 0 stays 0.
using IncarnationNumbers = absl::flat_hash_map<uint64_t, int64_t>;
IncarnationNumbers NumberIncarnations(const StringMap<uint64_t>& by_device);

// What the partitioner called the nodes it made for one run: the numbers in "x_S12" (master)
// and "x_G3" (worker) go on counting over all runs of a session or worker, and so depend on
// which run came first. Not synchronised.
class CanonicalNames {
 public:
  // Nodes of `before`, the graph of the run before it was cut, keep their names.
  CanonicalNames(const DataflowGraph& before, IncarnationNumbers incarnations);

  // Counts the made nodes from 0 in the order in which they stand in `parts`, and puts the
  // numbers of devices for incarnations. A later call (the worker's parts of what the master
  // cut) keeps the names that earlier ones gave.
  void Apply(std::span<pb::GraphDef> parts);

 private:
  std::string NewName(std::string_view name);
  std::string NewBase(std::string_view base);
  void ApplyTo(pb::NodeDef* node);

  StringSet before_;
  const IncarnationNumbers incarnations_;
  StringSet made_;                   // as they are called in `parts`
  StringMap<std::string> new_name_;  // of made nodes
  int64_t next_master_ = 0, next_worker_ = 0;
};

// Text proto: attributes in order of names, small tensors as lists of numbers. A field that
// this engine does not know is left out, or the text could not be read again.
std::string GraphText(const pb::GraphDef& graph);

}  // namespace millrace

#endif  // MASTER_DUMP_CANONICAL_GRAPH_H_
