// SPDX-License-Identifier: Apache-2.0
#include "executor/stats/activity_stats.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/strings.h"

namespace millrace {
namespace {

const char* KindName(DeviceActivity::Kind kind) {
  switch (kind) {
    case DeviceActivity::Kind::kKernel:
      return "";
    case DeviceActivity::Kind::kFill:
      return "MEMSET";
    case DeviceActivity::Kind::kToDevice:
      return "MEMCPYHtoD";
    case DeviceActivity::Kind::kToHost:
      return "MEMCPYDtoH";
    case DeviceActivity::Kind::kOnDevice:
      return "MEMCPYDtoD";
    case DeviceActivity::Kind::kToPeer:
      return "MEMCPYPtoP";
    case DeviceActivity::Kind::kOtherCopy:
      return "MEMCPY";
  }
  return "";
}

// By node, out of the labels "name = Op()" that the executor gives.
using Ops = std::map<std::string, std::string, std::less<>>;

Ops OpsOf(const pb::StepStats& stats) {
  Ops ops;
  for (const pb::DeviceStepStats& device : stats.dev_stats()) {
    for (const pb::NodeExecStats& node : device.node_stats()) {
      const std::string_view label = node.timeline_label();
      const std::size_t begin = node.node_name().size() + 3;
      if (!label.starts_with(StrCat(node.node_name(), " = "))) continue;
      ops[node.node_name()] = label.substr(begin, label.find('(', begin) - begin);
    }
  }
  return ops;
}

pb::NodeExecStats NodeStats(const DeviceActivity& activity, const Ops& ops) {
  const bool is_kernel = activity.kind == DeviceActivity::Kind::kKernel;
  const auto op = ops.find(activity.node);
  pb::NodeExecStats node;
  node.set_node_name(StrCat(activity.node.empty() ? "unknown" : activity.node, ":",
                            !is_kernel        ? KindName(activity.kind)
                            : op == ops.end() ? "unknown"
                                              : op->second));
  node.set_timeline_label(
      is_kernel ? activity.name : StrCat(KindName(activity.kind), " ", activity.bytes, " bytes"));
  const int64_t length = activity.end - activity.begin;
  // Clients that know microseconds only must not lose the short ones.
  const int64_t micros = std::max<int64_t>(length / 1000, 1);
  node.set_scheduled_micros(activity.begin / 1000);
  node.set_scheduled_nanos(activity.begin);
  node.set_all_start_micros(activity.begin / 1000);
  node.set_all_start_nanos(activity.begin);
  node.set_op_end_rel_micros(micros);
  node.set_op_end_rel_nanos(length);
  node.set_all_end_rel_micros(micros);
  node.set_all_end_rel_nanos(length);
  node.set_thread_id(static_cast<uint32_t>(activity.stream));
  if (!is_kernel) {
    node.add_output()
        ->mutable_tensor_description()
        ->mutable_allocation_description()
        ->set_requested_bytes(activity.bytes);
  }
  return node;
}

}  // namespace

void AddActivities(const std::string& device, const ActivityReport& report, pb::StepStats* stats) {
  if (report.activities.empty() && report.shortfall.empty()) return;
  const Ops ops = OpsOf(*stats);
  pb::DeviceStepStats all;
  pb::DeviceStepStats copies;
  std::map<int64_t, pb::DeviceStepStats> streams;
  for (const DeviceActivity& activity : report.activities) {
    pb::NodeExecStats node = NodeStats(activity, ops);
    *(IsCopy(activity.kind) ? copies : all).add_node_stats() = node;
    pb::DeviceStepStats& stream = streams[activity.stream];
    (*stream.mutable_thread_names())[static_cast<uint32_t>(activity.stream)] = activity.purpose;
    *stream.add_node_stats() = std::move(node);
  }
  if (!report.shortfall.empty()) {
    (*all.mutable_thread_names())[0] = StrCat("incomplete: ", report.shortfall);
  }
  const auto add = [&](const std::string& row, pb::DeviceStepStats&& from) {
    from.set_device(StrCat(device, row));
    *stats->add_dev_stats() = std::move(from);
  };
  add("/stream:all", std::move(all));
  for (auto& [number, stream] : streams) add(StrCat("/stream:", number), std::move(stream));
  if (copies.node_stats_size() > 0) add("/memcpy", std::move(copies));
}

}  // namespace millrace
