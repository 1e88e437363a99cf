// SPDX-License-Identifier: Apache-2.0
// Operation and Output: what handles tell of the nodes behind them.
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "frontend/op_outputs.h"
#include "millrace/graph.h"

namespace millrace {

namespace {
const std::string kNothing;
}  // namespace

const std::string& Operation::name() const { return valid() ? node_->name() : kNothing; }
const std::string& Operation::type() const { return valid() ? node_->type() : kNothing; }
int Operation::num_inputs() const { return valid() ? node_->num_inputs() : 0; }
int Operation::num_outputs() const { return valid() ? node_->num_outputs() : 0; }
const std::string& Operation::device() const {
  return valid() ? node_->requested_device() : kNothing;
}

Output Operation::output(int i) const {
  if (i < 0 || i >= num_outputs()) return Output();
  return Output(*this, i);
}

Output Operation::input(int i) const {
  if (i < 0 || i >= num_inputs()) return Output();
  const Edge* edge = node_->input_edge(i);
  return edge == nullptr ? Output() : Output(graph_, edge->src, edge->src_output);
}

AttrValue Operation::attr(std::string_view name) const {
  const AttrValue* value = valid() ? node_->attrs().Find(name) : nullptr;
  return value == nullptr ? AttrValue() : *value;
}

DataType Output::dtype() const {
  return valid() && index_ < op_.num_outputs() ? op_.node()->output_types()[index_]
                                               : DataType::kInvalid;
}

PartialShape Output::shape() const {
  return valid() ? op_.graph()->shapes.shape(op_.node(), index_) : PartialShape();
}

std::string Output::name() const { return valid() ? StrCat(op_.name(), ":", index_) : ""; }

std::vector<Output> OutputList(const Operation& op, std::string_view arg) {
  std::vector<Output> outputs;
  if (!op.valid()) return outputs;
  int begin = 0, end = 0;
  const Status status = ArgRange(op.node()->op().def, op.node()->attrs(), arg,
                                 /*is_input=*/false, &begin, &end);
  if (!status.ok()) return outputs;
  for (int i = begin; i < end; ++i) outputs.push_back(op.output(i));
  return outputs;
}

Output OneOutput(const Operation& op, std::string_view arg) {
  const std::vector<Output> outputs = OutputList(op, arg);
  return outputs.empty() ? Output() : outputs.front();
}

}  // namespace millrace
