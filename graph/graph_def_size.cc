// SPDX-License-Identifier: Apache-2.0
// Declared in graph_def_size.h, which is not among the headers of this target.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "graph/dataflow_graph.h"
#include "millrace/tensor.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

// Less than protobuf's limit by what a request has around its graph.
constexpr int64_t kMostBytes = INT32_MAX - (1 << 20);
constexpr std::size_t kMostNamed = 5;

struct Constant {
  std::string_view node;
  std::string_view origin;
  int64_t bytes = 0;
};

// What of the tensor a message has at least.
int64_t ContentBytes(const Tensor& tensor) {
  if (IsMemcpyable(tensor.dtype())) return static_cast<int64_t>(tensor.num_bytes());
  int64_t bytes = 0;
  if (tensor.dtype() == kString) {
    for (const std::string& text : tensor.flat<std::string>()) {
      bytes += static_cast<int64_t>(text.size());
    }
  }
  return bytes;
}

Status TooBig(int64_t bytes, std::vector<Constant> constants) {
  const std::size_t named = std::min(kMostNamed, constants.size());
  std::partial_sort(constants.begin(), constants.begin() + named, constants.end(),
                    [](const Constant& a, const Constant& b) { return a.bytes > b.bytes; });
  std::string biggest;
  for (std::size_t i = 0; i < named; ++i) {
    StrAppend(&biggest, i == 0 ? "" : ", ", "'", constants[i].node, "' (", constants[i].bytes,
              " bytes", constants[i].origin.empty() ? "" : ", made at ", constants[i].origin, ")");
  }
  return errors::InvalidArgument(
      "the graph takes ", bytes, " bytes as a message, of which no message may have ", kMostBytes,
      " or more. Biggest of its ", constants.size(), " constants: ", biggest,
      ". Feed such values, read them from a checkpoint or compute them in an initializer");
}

}  // namespace

Status CheckMessageSize(const DataflowGraph& graph, int first_id) {
  int64_t bytes = 0;
  std::vector<Constant> constants;
  for (int id = std::max(first_id, graph.sink()->id() + 1); id < graph.num_node_ids(); ++id) {
    const Node* const node = graph.node(id);
    if (node == nullptr) continue;
    for (const auto& [name, value] : node->attrs()) {
      const Tensor* const tensor = value.tensor();
      if (tensor == nullptr) continue;
      const int64_t size = ContentBytes(*tensor);
      constants.push_back({node->name(), node->origin(), size});
      bytes += size;
    }
  }
  return bytes < kMostBytes ? OkStatus() : TooBig(bytes, std::move(constants));
}

Status SerializeGraphDef(const pb::GraphDef& def, std::string* bytes) {
  const auto size = static_cast<int64_t>(def.ByteSizeLong());
  if (size < kMostBytes && def.SerializeToString(bytes)) return OkStatus();
  bytes->clear();
  std::vector<Constant> constants;
  for (const pb::NodeDef& node : def.node()) {
    for (const auto& [name, value] : node.attr()) {
      if (!value.has_tensor()) continue;
      constants.push_back({node.name(), "", static_cast<int64_t>(value.ByteSizeLong())});
    }
  }
  return TooBig(size, std::move(constants));
}

}  // namespace millrace
