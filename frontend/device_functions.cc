// SPDX-License-Identifier: Apache-2.0
// Device functions: who puts variables on parameter servers and the rest on workers.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "frontend/device_functions.h"
#include "millrace/cluster.h"

namespace millrace {
namespace {

// What tf.train.replica_device_setter treats as living on a parameter server.
constexpr const char* kDefaultPsOps[] = {
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "VarHandleOp",
    "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp",
    "ResourceConditionalAccumulator",
    "DecisionTreeResource",
};

int64_t BytesOf(const NodeView& node) {
  int64_t total = 0;
  for (std::size_t i = 0; i < node.output_types.size(); ++i) {
    const std::size_t element = DataTypeSize(BaseType(node.output_types[i]));
    int64_t count = 1;
    if (i < node.output_shapes.size() && node.output_shapes[i].has_rank()) {
      for (const int64_t dim : node.output_shapes[i].dims()) count *= dim > 0 ? dim : 1;
    }
    total += count * static_cast<int64_t>(element);
  }
  return total;
}

// The strategies, as types: a setter tells which one it has.
struct InTurn {
  std::shared_ptr<int> next;
  int num_tasks;
  int operator()(const NodeView&) const {
    const int task = *next;
    *next = (*next + 1) % num_tasks;
    return task;
  }
};

struct FewestBytes {
  std::shared_ptr<std::vector<int64_t>> loads;
  int operator()(const NodeView& node) const {
    int best = 0;
    for (int i = 1; i < static_cast<int>(loads->size()); ++i) {
      if ((*loads)[i] < (*loads)[best]) best = i;
    }
    (*loads)[best] += BytesOf(node);
    return best;
  }
};

// A device string that cannot be parsed is passed on as it is: the placer reports it with
// the node's name.
class Setter {
 public:
  explicit Setter(ReplicaDeviceSetterOptions options) : options_(std::move(options)) {
    if (options_.ps_ops.empty()) {
      ps_ops_.insert(std::begin(kDefaultPsOps), std::end(kDefaultPsOps));
    } else {
      ps_ops_.insert(options_.ps_ops.begin(), options_.ps_ops.end());
    }
    if (!options_.strategy) options_.strategy = RoundRobin(options_.ps_tasks);
  }

  std::string operator()(const NodeView& node) {
    rule_ = "replica_device_setter: ";
    if (!options_.merge_devices && !node.device.empty()) {
      rule_ += "the node has a device, and merge_devices is off";
      return std::string(node.device);
    }
    const StatusOr<DeviceName> own = DeviceName::Parse(node.device);
    if (!own.ok()) return std::string(node.device);
    const bool on_ps = ps_ops_.contains(node.type);
    StrAppend(&rule_, node.type, on_ps ? " is a ps op" : " is no ps op");
    StatusOr<DeviceName> base =
        DeviceName::Parse(on_ps ? options_.ps_device : options_.worker_device);
    if (!base.ok()) return std::string(node.device);
    if (on_ps && base->job && (!own->job || *own->job == *base->job)) {
      base->task = options_.strategy(node);
      const bool in_turn = options_.strategy.target<InTurn>() != nullptr;
      const bool by_bytes = options_.strategy.target<FewestBytes>() != nullptr;
      StrAppend(&rule_, ", task ", *base->task, " of ", options_.ps_tasks,
                in_turn    ? " in turn"
                : by_bytes ? " by bytes"
                           : " by its own strategy");
    }
    base->EnsureSpecification(*own);
    return base->ToString();
  }

  const std::string& rule() const { return rule_; }

 private:
  std::string rule_;  // of the last node
  ReplicaDeviceSetterOptions options_;
  StringSet ps_ops_;
};

// The setter behind a DeviceFunction, which may be copied.
struct SharedSetter {
  std::shared_ptr<Setter> setter;
  std::string operator()(const NodeView& node) const { return (*setter)(node); }
};

}  // namespace

PsStrategy RoundRobin(int num_tasks) { return InTurn{std::make_shared<int>(0), num_tasks}; }

PsStrategy ByteBalanced(int num_tasks) {
  return FewestBytes{std::make_shared<std::vector<int64_t>>(num_tasks, 0)};
}

DeviceFunction ReplicaDeviceSetter(ReplicaDeviceSetterOptions options) {
  if (options.ps_tasks <= 0) {
    return [](const NodeView& node) { return std::string(node.device); };
  }
  return SharedSetter{std::make_shared<Setter>(std::move(options))};
}

std::string LastRuleOf(const DeviceFunction& function) {
  const SharedSetter* const setter = function.target<SharedSetter>();
  return setter == nullptr ? "a device function" : setter->setter->rule();
}

}  // namespace millrace
