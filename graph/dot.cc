// SPDX-License-Identifier: Apache-2.0
#include "graph/dot.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "graph/node_name.h"

namespace millrace {
namespace {

// Light colours on which black text can be read; devices take them in turn, by name.
constexpr std::array<const char*, 8> kColours = {"#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6",
                                                 "#ffff99", "#fb9a99", "#ccebc5", "#fddaec"};

const std::string& DeviceOf(const Node& node) {
  return node.assigned_device().empty() ? node.requested_device() : node.assigned_device();
}

// The part of a device name before "/device:", "" if there is none.
std::string_view TaskPart(std::string_view device) {
  const std::size_t at = device.find("/device:");
  return at == std::string_view::npos ? device : device.substr(0, at);
}

std::string Quote(std::string_view text) { return StrCat("\"", CEscape(text), "\""); }

bool IsSend(const Node& node) { return node.type() == "_Send" || node.type() == "_HostSend"; }
bool IsRecv(const Node& node) { return node.type() == "_Recv" || node.type() == "_HostRecv"; }

// What a send and its receive have in common.
using Channel = std::tuple<std::string, std::string, std::string>;
Channel ChannelOf(const Node& node) {
  return {node.attrs().GetOr<std::string>("send_device", ""),
          node.attrs().GetOr<std::string>("recv_device", ""),
          node.attrs().GetOr<std::string>("tensor_name", "")};
}

std::string SizeLabel(const Node& node, int output, const OutputSize& size) {
  const int64_t bytes = size(node, output);
  return StrCat("label=\"", bytes < 0 ? "?" : StrCat(bytes), " B\"");
}

class Picture {
 public:
  Picture(std::span<const DataflowGraph* const> parts, const OutputSize& size)
      : parts_(parts), size_(size) {
    for (size_t p = 0; p < parts.size(); ++p) {
      for (const Node* node : parts[p]->OpNodes()) nodes_.emplace_back(p, node);
    }
  }

  std::string Draw() {
    out_ = "digraph millrace {\n  node [shape=box, style=\"rounded,filled\"];\n";
    AddNodes();
    for (size_t p = 0; p < parts_.size(); ++p) AddEdges(p);
    AddChannels();
    return std::move(out_) + "}\n";
  }

 private:
  using Placed = std::pair<size_t, const Node*>;  // part, node

  std::string Id(size_t part, const Node& node) const {
    return parts_.size() == 1 ? StrCat("n", node.id()) : StrCat("p", part, "n", node.id());
  }

  void AddNodes() {
    std::map<std::string, const char*> colours;
    std::map<std::string, std::vector<Placed>> tasks;
    for (const auto& [part, node] : nodes_) {
      colours[DeviceOf(*node)] = nullptr;
      tasks[std::string(TaskPart(DeviceOf(*node)))].emplace_back(part, node);
    }
    std::size_t next = 0;
    for (auto& [device, colour] : colours) {
      colour = device.empty() ? "#eeeeee" : kColours[next++ % kColours.size()];
    }
    int cluster = 0;
    for (const auto& [task, members] : tasks) {
      StrAppend(&out_, "  subgraph cluster_", cluster++, " {\n    label=", Quote(task), ";\n");
      for (const auto& [part, node] : members) {
        StrAppend(&out_, "    ", Id(part, *node), " [label=\"", CEscape(node->name()), "\\n",
                  CEscape(node->type()), "\", fillcolor=\"", colours[DeviceOf(*node)],
                  "\", tooltip=", Quote(DeviceOf(*node)), "];\n");
      }
      StrAppend(&out_, "  }\n");
    }
  }

  void AddEdges(size_t part) {
    const DataflowGraph& graph = *parts_[part];
    for (int id = 0; id < graph.num_edge_ids(); ++id) {
      const Edge* edge = graph.edge(id);
      if (edge == nullptr || !edge->src->IsOp() || !edge->dst->IsOp()) continue;
      StrAppend(&out_, "  ", Id(part, *edge->src), " -> ", Id(part, *edge->dst), EdgeStyle(*edge),
                ";\n");
    }
  }

  std::string EdgeStyle(const Edge& edge) const {
    std::vector<std::string> style;
    const bool cut = DeviceOf(*edge.src) != DeviceOf(*edge.dst);
    if (edge.IsControl()) style.push_back("style=dashed");
    if (cut) style.push_back("penwidth=2");
    if (cut && !edge.IsControl() && size_ != nullptr) {
      style.push_back(SizeLabel(*edge.src, edge.src_output, size_));
    }
    return style.empty() ? "" : StrCat(" [", StrJoin(style, ", "), "]");
  }

  void AddChannels() {
    std::map<Channel, Placed> sends;
    for (const Placed& placed : nodes_) {
      if (IsSend(*placed.second)) sends.emplace(ChannelOf(*placed.second), placed);
    }
    std::set<Channel> joined;
    for (const auto& [part, node] : nodes_) {
      if (!IsRecv(*node)) continue;
      const Channel channel = ChannelOf(*node);
      const auto send = sends.find(channel);
      if (send == sends.end()) {
        Join(Elsewhere(std::get<0>(channel), *node), Id(part, *node), "");
        continue;
      }
      const auto& [send_part, send_node] = send->second;
      joined.insert(channel);
      Join(Id(send_part, *send_node), Id(part, *node), Carried(*send_node));
    }
    for (const auto& [channel, placed] : sends) {
      const auto& [part, node] = placed;
      if (joined.contains(channel)) continue;
      Join(Id(part, *node), Elsewhere(std::get<1>(channel), *node), Carried(*node));
    }
  }

  // A box for what is not in the picture: the client, or another device.
  std::string Elsewhere(const std::string& device, const Node& node) {
    const std::string label =
        node.attrs().GetOr<bool>("client_terminated", false) ? "client" : device;
    const auto [at, is_new] = elsewhere_.emplace(label, elsewhere_.size());
    std::string id = StrCat("x", at->second);
    if (is_new) StrAppend(&out_, "  ", id, " [shape=plaintext, label=", Quote(label), "];\n");
    return id;
  }

  std::string Carried(const Node& send) const {
    const Edge* edge = send.input_edge(0);
    if (size_ == nullptr || edge == nullptr) return "";
    return StrCat(", ", SizeLabel(*edge->src, edge->src_output, size_));
  }

  void Join(const std::string& from, const std::string& to, const std::string& style) {
    StrAppend(&out_, "  ", from, " -> ", to, " [style=dotted, constraint=false", style, "];\n");
  }

  const std::span<const DataflowGraph* const> parts_;
  const OutputSize& size_;
  std::vector<Placed> nodes_;
  std::map<std::string, std::size_t> elsewhere_;
  std::string out_;
};

}  // namespace

int64_t OutputBytes(const Node& node, int output, const ShapeRefiner& shapes) {
  const DataType type = BaseType(node.output_types()[output]);
  const std::optional<Shape> shape = shapes.shape(&node, output).AsShape();
  if (!shape || !IsMemcpyable(type)) return -1;
  return shape->num_elements() * static_cast<int64_t>(DataTypeSize(type));
}

std::string ToDot(std::span<const DataflowGraph* const> parts, const OutputSize& size) {
  return Picture(parts, size).Draw();
}

std::string ToDot(const DataflowGraph& graph, const ShapeRefiner* shapes) {
  OutputSize size;
  if (shapes != nullptr) {
    size = [shapes](const Node& node, int output) { return OutputBytes(node, output, *shapes); };
  }
  const DataflowGraph* const part = &graph;
  return ToDot(std::span(&part, 1), size);
}

std::string ToText(const DataflowGraph& graph) {
  std::string out;
  for (const Node* node : graph.OpNodes()) {
    std::vector<std::string> inputs;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Edge* edge = node->input_edge(i);
      inputs.push_back(edge == nullptr ? "<open>"
                                       : FormatTensorName(edge->src->name(), edge->src_output));
    }
    const auto data = static_cast<std::ptrdiff_t>(inputs.size());
    for (const Edge* edge : node->in_edges()) {
      if (!edge->IsControl() || !edge->src->IsOp()) continue;
      inputs.push_back(FormatTensorName(edge->src->name(), kControlSlot));
    }
    std::sort(inputs.begin() + data, inputs.end());
    StrAppend(&out, node->name(), " = ", node->type(), "(", StrJoin(inputs, ", "), ")");
    if (!DeviceOf(*node).empty()) StrAppend(&out, " @ ", DeviceOf(*node));
    out += "\n";
  }
  return out;
}

}  // namespace millrace
