// SPDX-License-Identifier: Apache-2.0
// A sum, mean or extremum of what a fused node alone computes goes into that node: its kernel
// reduces each block while it lies in the cache, and what is reduced is never written to memory.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"

namespace millrace {
namespace rewrite {
namespace {

// The axes of a reduction, if they are constants; false if not.
bool ReadAxes(const Node& node, std::vector<int64_t>* axes) {
  const Edge* const edge = node.input_edge(1);
  if (edge == nullptr || !IsConst(*edge->src) || HasControlInputs(*edge->src)) return false;
  const StatusOr<Tensor> value = edge->src->attrs().Get<Tensor>("value");
  if (!value.ok() || value->rank() > 1) return false;
  axes->clear();
  for (int64_t i = 0; i < value->num_elements(); ++i) {
    if (value->dtype() == kInt32) {
      axes->push_back(value->data<int32_t>()[i]);
    } else if (value->dtype() == kInt64) {
      axes->push_back(value->data<int64_t>()[i]);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

Node* ReductionOver(const Node& node) {
  if (node.num_outputs() != 1) return nullptr;
  Node* const reader = OnlyReader(node);
  if (reader == nullptr) return nullptr;
  constexpr std::string_view kReductions[] = {"Sum", "Mean", "Max", "Min"};
  bool known = false;
  for (const std::string_view op : kReductions) known = known || reader->type() == op;
  if (!known || !IsPure(*reader) || !HasConsumers(*reader)) return nullptr;
  const DataType type = reader->output_types()[0];
  std::vector<int64_t> axes;
  if ((type != kFloat && type != kDouble) || !ReadAxes(*reader, &axes)) return nullptr;
  return reader;
}

}  // namespace rewrite

namespace {

using namespace rewrite;  // NOLINT: the passes' own

Status TakeIn(Node* map, Node* reduction, DataflowGraph* graph) {
  AttrMap attrs = map->attrs();
  std::vector<int64_t> axes;
  ReadAxes(*reduction, &axes);
  auto names = attrs.GetOr<std::vector<std::string>>("nodes", {});
  names.push_back(reduction->name());
  attrs.Set("nodes", names);
  attrs.Set("reduce", reduction->type());
  attrs.Set("axes", axes);
  attrs.Set("keep_dims", reduction->attrs().GetOr<bool>("keep_dims", false));
  std::vector<std::pair<Node*, int>> inputs;
  for (int i = 0; i < map->num_inputs(); ++i) {
    const Edge* const edge = map->input_edge(i);
    inputs.emplace_back(edge->src, edge->src_output);
  }
  Node* const axes_node = reduction->input_edge(1)->src;
  MR_RETURN_IF_ERROR(ReplaceChain({map, reduction}, "_Fused", std::move(attrs), inputs, graph));
  RemoveUnused(axes_node, graph);
  return OkStatus();
}

}  // namespace

StatusOr<int> FuseReductions(DataflowGraph* graph) {
  std::vector<Node*> fused;
  for (Node* node : graph->OpNodes()) {
    if (node->type() == "_Fused" && ReductionOver(*node) != nullptr) fused.push_back(node);
  }
  for (Node* map : fused) MR_RETURN_IF_ERROR(TakeIn(map, ReductionOver(*map), graph));
  return static_cast<int>(fused.size());
}

}  // namespace millrace
