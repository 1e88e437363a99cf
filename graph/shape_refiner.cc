// SPDX-License-Identifier: Apache-2.0
#include "graph/shape_refiner.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

bool IsType(const Node* node, std::string_view type) { return node->type() == type; }

// A size vector, as int32 or int64, from a shape without unknown sizes.
Tensor SizesTensor(const Shape& shape, DataType dtype) {
  Tensor sizes(dtype, {shape.rank()});
  for (int i = 0; i < shape.rank(); ++i) {
    if (dtype == kInt32) {
      sizes.data<int32_t>()[i] = static_cast<int32_t>(shape.dim(i));
    } else {
      sizes.data<int64_t>()[i] = shape.dim(i);
    }
  }
  return sizes;
}

Tensor ScalarTensor(int64_t value, DataType dtype) {
  return dtype == kInt32 ? Tensor::Scalar<int32_t>(static_cast<int32_t>(value))
                         : Tensor::Scalar<int64_t>(value);
}

bool IsSizeType(DataType dtype) { return dtype == kInt32 || dtype == kInt64; }

}  // namespace

const ShapeRefiner::Known* ShapeRefiner::Find(const Node* node, int output) const {
  const std::size_t id = static_cast<std::size_t>(node->id());
  if (id >= known_.size() || static_cast<std::size_t>(output) >= known_[id].size()) return nullptr;
  return &known_[id][output];
}

const ShapeRefiner::Known* ShapeRefiner::FindInput(const Node* node, int input) const {
  const Edge* edge = node->input_edge(input);
  return edge == nullptr ? nullptr : Find(edge->src, edge->src_output);
}

PartialShape ShapeRefiner::shape(const Node* node, int output) const {
  const Known* known = Find(node, output);
  return known == nullptr ? PartialShape() : known->shape;
}

const HandleShape* ShapeRefiner::handle(const Node* node, int output) const {
  const Known* known = Find(node, output);
  return known == nullptr || !known->handle ? nullptr : &*known->handle;
}

const Tensor* ShapeRefiner::constant(const Node* node, int output) const {
  const Known* known = Find(node, output);
  return known == nullptr || !known->value ? nullptr : &*known->value;
}

Status ShapeRefiner::AddNode(const Node* node) {
  std::vector<InferenceContext::Input> inputs(node->num_inputs());
  for (int i = 0; i < node->num_inputs(); ++i) {
    const Known* known = FindInput(node, i);
    if (known == nullptr) continue;
    inputs[i].shape = known->shape;
    inputs[i].constant = known->value ? &*known->value : nullptr;
    inputs[i].constant_as_shape = known->value_as_shape ? &*known->value_as_shape : nullptr;
    inputs[i].handle = known->handle ? &*known->handle : nullptr;
  }
  InferenceContext context(node->op().def, node->attrs(), inputs, node->num_outputs());
  if (node->op().shape_fn != nullptr) MR_RETURN_IF_ERROR(node->op().shape_fn(context));
  std::vector<Known> outputs(node->num_outputs());
  for (int i = 0; i < node->num_outputs(); ++i) {
    outputs[i].shape = context.output(i);
    if (const HandleShape* handle = context.output_handle(i)) outputs[i].handle = *handle;
  }
  LearnValues(node, &outputs);
  if (known_.size() <= static_cast<std::size_t>(node->id())) known_.resize(node->id() + 1);
  known_[node->id()] = std::move(outputs);
  return OkStatus();
}

std::optional<int64_t> ShapeRefiner::ScalarValue(const Known* known) const {
  if (known == nullptr || !known->value || known->value->num_elements() != 1) return std::nullopt;
  if (known->value->dtype() == kInt32) return known->value->data<int32_t>()[0];
  if (known->value->dtype() == kInt64) return known->value->data<int64_t>()[0];
  return std::nullopt;
}

// Values that graphs compute shapes from: constants, sizes of known shapes, and what is
// passed on or packed from those.
void ShapeRefiner::LearnValues(const Node* node, std::vector<Known>* outputs) const {
  if (outputs->empty()) return;
  Known& out = outputs->front();
  const DataType dtype = BaseType(node->output_types()[0]);
  if (IsType(node, "Const")) {
    if (const AttrValue* value = node->attrs().Find("value")) {
      if (const Tensor* tensor = value->tensor()) out.value = *tensor;
    }
  } else if (IsType(node, "Shape")) {
    const Known* in = FindInput(node, 0);
    if (in == nullptr || !in->shape.has_rank()) return;
    out.value_as_shape = in->shape;
    if (const auto shape = in->shape.AsShape(); shape && IsSizeType(dtype)) {
      out.value = SizesTensor(*shape, dtype);
    }
  } else if (IsType(node, "Rank") || IsType(node, "Size")) {
    const Known* in = FindInput(node, 0);
    if (in == nullptr || !IsSizeType(dtype)) return;
    if (IsType(node, "Rank")) {
      if (in->shape.has_rank()) out.value = ScalarTensor(in->shape.rank(), dtype);
    } else if (const auto shape = in->shape.AsShape()) {
      out.value = ScalarTensor(shape->num_elements(), dtype);
    }
  } else if (IsType(node, "Identity")) {
    const Known* in = FindInput(node, 0);
    if (in == nullptr || IsRefType(node->input_types()[0])) return;
    // The value of a variable is not known, however it started.
    out.value = in->value;
    out.value_as_shape = in->value_as_shape;
  } else if (IsType(node, "Pack") && IsSizeType(dtype)) {
    PartialShape sizes({});
    for (int i = 0; i < node->num_inputs(); ++i) {
      sizes.AddDim(ScalarValue(FindInput(node, i)).value_or(-1));
    }
    if (out.shape.has_rank() && out.shape.rank() == 1) {
      if (const auto shape = sizes.AsShape()) out.value = SizesTensor(*shape, dtype);
      out.value_as_shape = std::move(sizes);
    }
  }
}

Status ShapeRefiner::AddGraph(const DataflowGraph& graph) {
  // Kahn's algorithm; nodes on a loop are taken when nothing else is ready, in id order.
  const int ids = graph.num_node_ids();
  std::vector<int> pending(ids, 0);
  std::vector<bool> done(ids, false);
  std::vector<const Node*> ready;
  for (int id = 2; id < ids; ++id) {
    const Node* node = graph.node(id);
    if (node == nullptr) continue;
    for (const Edge* edge : node->in_edges()) pending[id] += edge->src->IsOp() ? 1 : 0;
    if (pending[id] == 0) ready.push_back(node);
  }
  int next_blocked = 2;
  while (true) {
    if (ready.empty()) {
      while (next_blocked < ids && (graph.node(next_blocked) == nullptr || done[next_blocked])) {
        ++next_blocked;
      }
      if (next_blocked >= ids) return OkStatus();
      ready.push_back(graph.node(next_blocked));
    }
    const Node* node = ready.back();
    ready.pop_back();
    if (done[node->id()]) continue;
    done[node->id()] = true;
    const Status status = AddNode(node);
    if (!status.ok()) {
      return Annotate(status, StrCat("\n\t [[{{node ", node->name(), "}}]]"));
    }
    for (const Edge* edge : node->out_edges()) {
      if (!edge->dst->IsOp() || done[edge->dst->id()]) continue;
      if (--pending[edge->dst->id()] == 0) ready.push_back(edge->dst);
    }
  }
}

}  // namespace millrace
