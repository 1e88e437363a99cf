// SPDX-License-Identifier: Apache-2.0
// Cuts a placed graph into one graph for each location. Used twice: the master cuts by
// task, then each worker cuts its part by device. Cut edges become pairs of send and
// receive nodes that meet in the rendezvous under the key "src device;
// incarnation; dst device; tensor name; frame:iteration".
#ifndef PARTITIONER_PARTITION_H_
#define PARTITIONER_PARTITION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

struct Partition {
  std::string location;
  std::unique_ptr<DataflowGraph> graph;
};

struct PartitionOptions {
  // Required. Where a node goes: its task or its device. Depends on the assigned device alone;
  // called whenever that is not the one of the node before.
  std::function<std::string(const Node& node)> node_to_location;
  // Required. A name, never used before, for a node made because of the node `prefix`:
  // "<prefix>_S<n>" at the master. Called in a fixed order: for a cut data edge for the
  // send and the receive; for a control edge for the constant, the send, the receive and
  // the identity.
  std::function<std::string(std::string_view prefix)> new_name;
  // The incarnation of a device, 0 if it is not known (yet). Null: never known. Sends and
  // receives already in the graph with incarnation 0 are looked up again.
  std::function<uint64_t(std::string_view device)> get_incarnation;
  // True at a worker: the master has already prepared the loops that cross devices.
  bool control_flow_added = false;
  // The type in which a cut edge travels (bfloat16 for a float one, say). Null: its own.
  std::function<DataType(const Edge& edge)> should_cast;
  // Whether an input or output of a node lies in host memory. Null: none does, which is
  // right if there are CPU devices only.
  std::function<bool(const Node& node, int slot, bool is_input)> in_host_memory;
  // The name under which a cut edge travels. Null: "edge_<edge id>_<name of its source>".
  std::function<std::string(const Edge& edge)> tensor_name;
};

// The parts in order of their first node. Every part inherits versions and functions, has
// requested and assigned devices set, and its nodes are in the order of `graph`, followed by
// those made for cut edges. The result depends on nothing but the arguments.
//
// What becomes of an edge between two parts:
//   data       _Send beside the source, _Recv beside the destination; one pair for each
//              output and destination part, shared by all its consumers there
//   reference  a pair of its own: the value is copied, after all other inputs of the
//              consumer have arrived
//   control    an empty constant after the source, sent; an identity of what is received,
//              before the consumer
// In a part, an edge between host and device memory of one accelerator is cut like a data
// edge, and its receive waits for its send.
// A loop that crosses devices gets, on every device that takes part, a small loop of its
// own ("_cloop..." nodes) that makes receives run once for each iteration; Switch and Exit
// go to the device of their input, Enter and NextIteration to that of their consumer.
//
// InvalidArgument: an input is missing ("Incomplete graph, missing N inputs for X"), an op
// node has no assigned device, frames are not nested, or a loop that crosses devices has
// no LoopCond ("A cross-device loop must have a pivot predicate").
StatusOr<std::vector<Partition>> PartitionGraph(const DataflowGraph& graph,
                                                const PartitionOptions& options);

}  // namespace millrace

#endif  // PARTITIONER_PARTITION_H_
