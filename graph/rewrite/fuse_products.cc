// SPDX-License-Identifier: Apache-2.0
// A matrix product or convolution, the bias that is added to it and the activation after that
// become one node, whose kernel finishes what it made while it lies in the cache.
//
// What lies between them must be read by nobody else. Nothing then waits for, or is dead with, the
// one node that did not with the last of the three.
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"

namespace millrace {
namespace {

using namespace rewrite;  // NOLINT: the passes' own

constexpr std::array<std::string_view, 5> kActivations = {"Relu", "Relu6", "Elu", "Tanh",
                                                          "Sigmoid"};

bool IsChannelsLast(const Node& node) {
  return node.attrs().GetOr<std::string>("data_format", "NHWC") == "NHWC";
}

bool IsProduct(const Node& node, const RewriteOptions& options) {
  if (node.type() != "MatMul" && !(node.type() == "Conv2D" && IsChannelsLast(node))) return false;
  const DataType type = node.output_types()[0];
  if (type == kHalf || type == kBfloat16) return options.fuse_small_products;
  return type == kFloat || type == kDouble;
}

bool IsActivation(const Node& node) {
  for (const std::string_view activation : kActivations) {
    if (node.type() == activation) return true;
  }
  return false;
}

class ProductFuser {
 public:
  ProductFuser(const RewriteOptions& options, DataflowGraph* graph)
      : options_(options), graph_(graph) {}

  StatusOr<int> Run() {
    int fused = 0;
    std::vector<Node*> products;
    for (Node* node : graph_->OpNodes()) {
      if (IsProduct(*node, options_) && pure_(*node)) products.push_back(node);
    }
    for (Node* product : products) {
      const std::vector<Node*> members = MembersAfter(product);
      if (members.size() < 2 || !HasConsumers(*members.back())) continue;
      MR_RETURN_IF_ERROR(Replace(members));
      fused += static_cast<int>(members.size());
    }
    return fused;
  }

 private:
  std::vector<Node*> MembersAfter(Node* product) {
    std::vector<Node*> members = {product};
    Node* const bias = OnlyReader(*product);
    if (bias == nullptr || !pure_(*bias) || !IsChannelsLast(*bias)) return members;
    if (bias->type() != "BiasAdd" && bias->type() != "BiasAddV1") return members;
    members.push_back(bias);
    Node* const activation = OnlyReader(*bias);
    if (activation != nullptr && IsActivation(*activation) && pure_(*activation)) {
      members.push_back(activation);
    }
    return members;
  }

  Status Replace(const std::vector<Node*>& members) {
    const Node* const product = members[0];
    AttrMap attrs = product->attrs();
    std::vector<std::string> names;
    for (const Node* node : members) names.push_back(node->name());
    attrs.Set("nodes", names);
    attrs.Set("activation", members.size() > 2 ? members[2]->type() : std::string());
    std::vector<std::pair<Node*, int>> inputs;
    for (const Edge* edge :
         {product->input_edge(0), product->input_edge(1), members[1]->input_edge(1)}) {
      inputs.emplace_back(edge->src, edge->src_output);
    }
    return ReplaceChain(members, "_Fused" + product->type(), std::move(attrs), inputs, graph_);
  }

  const RewriteOptions& options_;
  DataflowGraph* const graph_;
  Purity pure_;
};

}  // namespace

StatusOr<int> FuseProducts(const RewriteOptions& options, DataflowGraph* graph) {
  return ProductFuser(options, graph).Run();
}

}  // namespace millrace
