// SPDX-License-Identifier: Apache-2.0
#include "planner/traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/string_map.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::string_view kControlSuffix = "/ctrl";

bool IsSend(const Node& node) { return node.type() == "_Send" || node.type() == "_HostSend"; }
bool IsRecv(std::string_view op) { return op == "_Recv" || op == "_HostRecv"; }

std::string TextAttr(const Node& node, const char* name) {
  return node.attrs().GetOr<std::string>(name, "");
}

std::string ChannelOf(const Node& node) {
  return StrCat(TextAttr(node, "send_device"), ";", TextAttr(node, "recv_device"), ";",
                TextAttr(node, "tensor_name"));
}

// Nodes that read single rows of their first input.
bool IsGather(const Node& node) {
  static const std::set<std::string_view> ops = {"Gather", "GatherV2", "GatherNd"};
  return ops.contains(node.type());
}

class Predictor {
 public:
  explicit Predictor(const PlannedRun& run) : run_(run), count_(*run.graph) {
    for (const Partition& part : run.device_parts) {
      for (const Node* node : part.graph->OpNodes()) {
        if (IsSend(*node)) sends_[ChannelOf(*node)] = node;
      }
    }
  }

  std::vector<Transfer> Predict() {
    std::vector<Transfer> transfers;
    for (const Partition& part : run_.device_parts) {
      for (const Node* node : part.graph->OpNodes()) {
        if (node->attrs().GetOr<bool>("client_terminated", false)) {
          transfers.push_back(OfClient(*node));
        } else if (IsSend(*node)) {
          transfers.push_back(OfSend(*node));
        }
      }
    }
    std::sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) {
      return std::tie(a.from, a.to, a.tensor) < std::tie(b.from, b.to, b.tensor);
    });
    return transfers;
  }

 private:
  // A node of the graph before it was cut, or null for one that the cut made.
  struct Source {
    const Node* node = nullptr;
    int output = 0;
    std::string control;  // of what a made constant tells that it has run
  };

  // Where what a send carries was computed: receives that it came through are passed by.
  Source Origin(const Node& send) const {
    const Node* node = &send;
    for (int hops = 0; hops < 8; ++hops) {
      const Edge* const edge = node->num_inputs() > 0 ? node->input_edge(0) : nullptr;
      if (edge == nullptr) return {};
      const Node* const source = edge->src;
      if (const Node* original = run_.graph->FindNode(source->name())) {
        return {original, edge->src_output, ""};
      }
      if (!IsRecv(source->type())) {
        for (const Edge* in : source->in_edges()) {
          if (!in->src->IsOp()) continue;
          return {nullptr, 0, in->src->name()};
        }
        return {nullptr, 0, source->name()};
      }
      const auto sent = sends_.find(ChannelOf(*source));
      if (sent == sends_.end()) return {};
      node = sent->second;
    }
    return {};
  }

  Transfer OfClient(const Node& node) const {
    Transfer transfer;
    const bool is_feed = IsRecv(node.type());
    transfer.from = is_feed ? kClient : node.assigned_device();
    transfer.to = is_feed ? node.assigned_device() : kClient;
    transfer.tensor = TextAttr(node, "tensor_name");
    const Source source = is_feed ? Source{run_.graph->FindNode(node.name()), 0, ""} : Origin(node);
    Measure(source, &transfer);
    return transfer;
  }

  Transfer OfSend(const Node& send) const {
    Transfer transfer;
    transfer.from = TextAttr(send, "send_device");
    transfer.to = TextAttr(send, "recv_device");
    const Source source = Origin(send);
    if (source.node == nullptr) {  // an empty constant of the cut
      transfer.tensor = StrCat("^", source.control);
      return transfer;
    }
    const bool is_feed = source.node->attrs().GetOr<bool>("client_terminated", false);
    transfer.tensor = is_feed ? TextAttr(*source.node, "tensor_name")
                              : StrCat(source.node->name(), ":", source.output);
    Measure(source, &transfer);
    for (const Edge* edge : source.node->out_edges()) {
      if (edge->src_output == source.output && edge->dst_input == 0 && IsGather(*edge->dst) &&
          edge->dst->assigned_device() == transfer.to) {
        transfer.fetched_by_gather = edge->dst->name();
      }
    }
    return transfer;
  }

  void Measure(const Source& source, Transfer* transfer) const {
    if (source.node == nullptr) {
      transfer->bytes.most = kUnbounded;
      transfer->why = "where it comes from is not known";
      return;
    }
    transfer->type = BaseType(source.node->output_types()[source.output]);
    transfer->shape = run_.shape(*source.node, source.output);
    transfer->how_often = count_.output(*source.node, source.output);
    transfer->bytes = BytesOf(transfer->type, transfer->shape);
    if (transfer->bytes.IsExact()) {
      transfer->each = transfer->bytes.most;
    } else {
      transfer->why = IsMemcpyable(transfer->type)
                          ? StrCat("its shape is ", transfer->shape.DebugString())
                          : StrCat("its type is ", DataTypeName(transfer->type));
    }
    if (transfer->how_often == HowOften::kOnce || transfer->bytes.most == 0) return;
    transfer->bytes.least = 0;
    if (transfer->how_often == HowOften::kLoop) transfer->bytes.most = kUnbounded;
    StrAppend(&transfer->why, transfer->why.empty() ? "" : ", and ",
              transfer->how_often == HowOften::kLoop ? "it is in a loop" : "a branch decides");
  }

  const PlannedRun& run_;
  const StepCount count_;
  StringMap<const Node*> sends_;  // by channel
};

}  // namespace

ByteRange& ByteRange::operator+=(const ByteRange& other) {
  least += other.least;
  most = most == kUnbounded || other.most == kUnbounded ? kUnbounded : most + other.most;
  return *this;
}

std::string ToText(const ByteRange& range) {
  if (range.IsExact()) return StrCat(range.least);
  if (range.most == kUnbounded) return StrCat("at least ", range.least);
  return StrCat(range.least, " to ", range.most);
}

ByteRange BytesOf(DataType type, const PartialShape& shape) {
  const auto size = static_cast<int64_t>(IsMemcpyable(type) ? DataTypeSize(type) : 0);
  if (size == 0) return {0, kUnbounded};
  if (const std::optional<Shape> known = shape.AsShape()) {
    return {known->num_elements() * size, known->num_elements() * size};
  }
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) == 0) return {0, 0};
  }
  return {0, kUnbounded};
}

std::vector<Transfer> PredictTransfers(const PlannedRun& run) { return Predictor(run).Predict(); }

std::string TaskPartOf(const std::string& device) {
  return device.substr(0, device.find("/device:"));
}

std::vector<TransferSum> SumTransfers(std::span<const Transfer> transfers, bool by_task) {
  std::map<std::pair<std::string, std::string>, TransferSum> links;
  for (const Transfer& transfer : transfers) {
    const std::string from = by_task ? TaskPartOf(transfer.from) : transfer.from;
    const std::string to = by_task ? TaskPartOf(transfer.to) : transfer.to;
    if (from == to) continue;
    TransferSum& link = links[{from, to}];
    link.from = from;
    link.to = to;
    if (transfer.tensor.starts_with("^")) {
      ++link.controls;
      continue;
    }
    ++link.tensors;
    link.not_exact += !transfer.bytes.IsExact();
    link.bytes += transfer.bytes;
  }
  std::vector<TransferSum> sorted;
  for (auto& [ends, link] : links) sorted.push_back(std::move(link));
  return sorted;
}

StatusOr<std::vector<TransferSum>> CountTransfers(const pb::StepStats& stats,
                                                  std::span<const pb::GraphDef> partition_graphs) {
  StringMap<const pb::NodeDef*> receives;  // by device and name
  for (const pb::GraphDef& graph : partition_graphs) {
    for (const pb::NodeDef& node : graph.node()) {
      if (IsRecv(node.op())) receives[StrCat(node.device(), ";", node.name())] = &node;
    }
  }
  std::map<std::pair<std::string, std::string>, TransferSum> links;
  std::set<const pb::NodeDef*> seen;
  for (const pb::DeviceStepStats& device : stats.dev_stats()) {
    for (const pb::NodeExecStats& run : device.node_stats()) {
      const auto found = receives.find(StrCat(device.device(), ";", run.node_name()));
      if (found == receives.end()) continue;
      const auto& attrs = found->second->attr();
      seen.insert(found->second);
      if (const auto it = attrs.find("client_terminated"); it != attrs.end() && it->second.b()) {
        continue;
      }
      const std::string& from = attrs.at("send_device").s();
      const std::string& to = attrs.at("recv_device").s();
      TransferSum& link = links[{from, to}];
      link.from = from;
      link.to = to;
      const bool is_control = found->second->name().find(kControlSuffix) != std::string::npos;
      ++(is_control ? link.controls : link.tensors);
      for (const pb::NodeOutput& output : run.output()) {
        const int64_t bytes =
            output.tensor_description().allocation_description().requested_bytes();
        link.bytes += {bytes, bytes};
      }
    }
  }
  if (seen.size() != receives.size()) {
    return errors::InvalidArgument("of the ", receives.size(), " receives in the graphs, ",
                                   seen.size(), " are in the statistics");
  }
  std::vector<TransferSum> sorted;
  for (auto& [ends, link] : links) sorted.push_back(std::move(link));
  return sorted;
}

}  // namespace millrace
