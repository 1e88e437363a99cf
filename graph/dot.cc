#include "graph/dot.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
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
std::tuple<std::string, std::string, std::string> Channel(const Node& node) {
  return {node.attrs().GetOr<std::string>("send_device", ""),
          node.attrs().GetOr<std::string>("recv_device", ""),
          node.attrs().GetOr<std::string>("tensor_name", "")};
}

std::string EdgeStyle(const Edge& edge, const ShapeRefiner* shapes) {
  std::vector<std::string> style;
  const bool cut = DeviceOf(*edge.src) != DeviceOf(*edge.dst);
  if (edge.IsControl()) style.push_back("style=dashed");
  if (cut) style.push_back("penwidth=2");
  if (cut && !edge.IsControl() && shapes != nullptr) {
    const int64_t bytes = OutputBytes(*edge.src, edge.src_output, *shapes);
    style.push_back(StrCat("label=\"", bytes < 0 ? "?" : StrCat(bytes), " B\""));
  }
  return style.empty() ? "" : StrCat(" [", StrJoin(style, ", "), "]");
}

void AppendNodes(const std::vector<Node*>& nodes, std::string* out) {
  std::map<std::string, const char*> colours;
  std::map<std::string, std::vector<const Node*>> tasks;
  for (const Node* node : nodes) {
    colours[DeviceOf(*node)] = nullptr;
    tasks[std::string(TaskPart(DeviceOf(*node)))].push_back(node);
  }
  std::size_t next = 0;
  for (auto& [device, colour] : colours) {
    colour = device.empty() ? "#eeeeee" : kColours[next++ % kColours.size()];
  }
  int cluster = 0;
  for (const auto& [task, members] : tasks) {
    StrAppend(out, "  subgraph cluster_", cluster++, " {\n    label=", Quote(task), ";\n");
    for (const Node* node : members) {
      StrAppend(out, "    n", node->id(), " [label=\"", CEscape(node->name()), "\\n",
                CEscape(node->type()), "\", fillcolor=\"", colours[DeviceOf(*node)],
                "\", tooltip=", Quote(DeviceOf(*node)), "];\n");
    }
    StrAppend(out, "  }\n");
  }
}

void AppendChannels(const std::vector<Node*>& nodes, std::string* out) {
  std::map<std::tuple<std::string, std::string, std::string>, const Node*> sends;
  for (const Node* node : nodes) {
    if (IsSend(*node)) sends.emplace(Channel(*node), node);
  }
  for (const Node* node : nodes) {
    if (!IsRecv(*node)) continue;
    const auto send = sends.find(Channel(*node));
    if (send == sends.end()) continue;
    StrAppend(out, "  n", send->second->id(), " -> n", node->id(),
              " [style=dotted, constraint=false];\n");
  }
}

}  // namespace

int64_t OutputBytes(const Node& node, int output, const ShapeRefiner& shapes) {
  const DataType type = BaseType(node.output_types()[output]);
  const std::optional<Shape> shape = shapes.shape(&node, output).AsShape();
  if (!shape || !IsMemcpyable(type)) return -1;
  return shape->num_elements() * static_cast<int64_t>(DataTypeSize(type));
}

std::string ToDot(const DataflowGraph& graph, const ShapeRefiner* shapes) {
  std::string out = "digraph millrace {\n  node [shape=box, style=\"rounded,filled\"];\n";
  const std::vector<Node*> nodes = graph.OpNodes();
  AppendNodes(nodes, &out);
  for (int id = 0; id < graph.num_edge_ids(); ++id) {
    const Edge* edge = graph.edge(id);
    if (edge == nullptr || !edge->src->IsOp() || !edge->dst->IsOp()) continue;
    StrAppend(&out, "  n", edge->src->id(), " -> n", edge->dst->id(), EdgeStyle(*edge, shapes),
              ";\n");
  }
  AppendChannels(nodes, &out);
  out += "}\n";
  return out;
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
