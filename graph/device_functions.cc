// Device functions: who puts variables on parameter servers and the rest on workers.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "device/device_name.h"
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
    if (!options_.merge_devices && !node.device.empty()) return std::string(node.device);
    const StatusOr<DeviceName> own = DeviceName::Parse(node.device);
    if (!own.ok()) return std::string(node.device);
    StatusOr<DeviceName> base = DeviceName::Parse(
        ps_ops_.contains(node.type) ? options_.ps_device : options_.worker_device);
    if (!base.ok()) return std::string(node.device);
    if (ps_ops_.contains(node.type) && base->job && (!own->job || *own->job == *base->job)) {
      base->task = options_.strategy(node);
    }
    base->EnsureSpecification(*own);
    return base->ToString();
  }

 private:
  ReplicaDeviceSetterOptions options_;
  StringSet ps_ops_;
};

}  // namespace

PsStrategy RoundRobin(int num_tasks) {
  auto next = std::make_shared<int>(0);
  return [next, num_tasks](const NodeView&) {
    const int task = *next;
    *next = (*next + 1) % num_tasks;
    return task;
  };
}

PsStrategy ByteBalanced(int num_tasks) {
  auto loads = std::make_shared<std::vector<int64_t>>(num_tasks, 0);
  return [loads](const NodeView& node) {
    int best = 0;
    for (int i = 1; i < static_cast<int>(loads->size()); ++i) {
      if ((*loads)[i] < (*loads)[best]) best = i;
    }
    (*loads)[best] += BytesOf(node);
    return best;
  };
}

DeviceFunction ReplicaDeviceSetter(ReplicaDeviceSetterOptions options) {
  if (options.ps_tasks <= 0) {
    return [](const NodeView& node) { return std::string(node.device); };
  }
  auto setter = std::make_shared<Setter>(std::move(options));
  return [setter](const NodeView& node) { return (*setter)(node); };
}

}  // namespace millrace
