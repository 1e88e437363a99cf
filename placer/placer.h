// SPDX-License-Identifier: Apache-2.0
// Decides on which device every node of a graph runs. The session places the whole graph
// when it is created and again when it is extended, before anything is pruned or cut.
#ifndef PLACER_PLACER_H_
#define PLACER_PLACER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placement_log.h"

namespace millrace {

struct PlacerDevice {
  std::string name;  // full: /job:J/replica:R/task:T/device:TYPE:ID
  std::string type;  // "CPU", "GPU", ...
  bool is_local = false;
};

// The priority of the kernel that would run `op` with `attrs` on devices of a type (0 is
// usual, the highest wins), or nothing if there is none.
using KernelQuery = std::function<std::optional<int>(const OpInfo& op, const AttrMap& attrs,
                                                     std::string_view device_type)>;

struct PlacerInput {
  std::vector<PlacerDevice> devices;
  // Types of devices, most wanted first. Types that are not listed come last, by name.
  std::vector<std::string> type_order = {"GPU", "CPU"};
  KernelQuery kernel;
  // For error texts only: one line for each kernel of an op. May be null.
  std::function<std::string(std::string_view op)> describe_kernels;
  // Preferred to every other device that would do; "" for none.
  std::string default_local_device;
  // A device's type and number may be given up if they cannot be had; its job, replica and
  // task never are.
  bool allow_soft_placement = false;
  // Asked when the rules leave a choice: a device by its name, which is taken if it is one of
  // the candidates. Null, or an empty answer: the rules decide (then as TensorFlow).
  std::function<std::string_view(const Node& node)> choose;
  // To see what a rule does, leave it out: bit R stands for rule R of ChoiceRule (2, 3, 4, 7, 8
  // and 10 can be left out). What is placed is then not what TensorFlow would do.
  uint32_t ignored_rules = 0;

  bool Ignores(ChoiceRule rule) const { return (ignored_rules >> static_cast<int>(rule) & 1) != 0; }
};

// Sets assigned_device of every op node, to a device of `input.devices`; nodes that have
// one keep it. Follows TensorFlow's placer decision for decision:
//   1. A node can go to the types of devices that have a kernel for it. An op that has no
//      kernel here but asks for another task is taken on trust.
//   2. The two ends of a reference or resource edge go to one device, and then, as far as
//      they can, the nodes that share a "loc:@name" of attribute _class.
//   3. Groups are placed in order of node ids: sorted by kernel priority, type of device,
//      local before remote, then name, the first device that satisfies the group's requests.
//      Shape, Size and Rank follow their input if they can, and so does an Identity that asks
//      for nothing between two nodes with equal requests; a node without inputs waits and
//      follows its consumers if these agree.
// A call is placed like any other op. Functions that return resources are looked into: what
// their bodies ask of arguments and results is asked of what feeds and reads the call (the
// identities of graph/functions/isolate_calls.h).
//
// If placement fails, some nodes may have been assigned. Errors name the node as
// {{node NAME}}:
//   FailedPrecondition  there are no devices
//   InvalidArgument     a request cannot be met or parsed, no kernel is registered, or
//                       nodes that belong together cannot be together
//   Internal            an assigned device does not exist, or has no kernel for the node
//   Unimplemented       a function that returns resources calls itself
// `log` may be null; otherwise it is cleared, then filled, up to the error if there is one.
// Takes O(V + E) and time for each distinct request and device.
Status Place(DataflowGraph* graph, const PlacerInput& input, PlacementLog* log);

}  // namespace millrace

#endif  // PLACER_PLACER_H_
