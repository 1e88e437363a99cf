// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/kernel_list.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// "a:1", "a" and "^a": the node's name, and the output, -1 after a caret.
std::pair<std::string, int> ParseInput(const std::string& input) {
  if (input.starts_with('^')) return {input.substr(1), -1};
  const auto colon = input.rfind(':');
  if (colon == std::string::npos) return {input, 0};
  return {input.substr(0, colon), std::atoi(input.c_str() + colon + 1)};
}

// Nodes in an order in which inputs come first.
StatusOr<std::vector<const pb::NodeDef*>> InOrder(const pb::GraphDef& graph) {
  std::map<std::string, const pb::NodeDef*> by_name;
  for (const pb::NodeDef& node : graph.node()) by_name[node.name()] = &node;
  std::vector<const pb::NodeDef*> order;
  std::set<std::string> begun, done;
  Status status;
  const std::function<void(const std::string&)> visit = [&](const std::string& name) {
    if (!status.ok() || done.contains(name)) return;
    const auto node = by_name.find(name);
    if (node == by_name.end() || !begun.insert(name).second) {
      status = errors::Unimplemented("'", name, "' is missing or in a cycle");
      return;
    }
    for (const std::string& input : node->second->input()) visit(ParseInput(input).first);
    done.insert(name);
    order.push_back(node->second);
  };
  for (const pb::NodeDef& node : graph.node()) visit(node.name());
  MR_RETURN_IF_ERROR(status);
  return order;
}

}  // namespace

StatusOr<std::unique_ptr<KernelList>> KernelList::Make(const pb::GraphDef& graph,
                                                       const std::map<std::string, Tensor>& feeds,
                                                       const OpRegistry& ops,
                                                       const KernelRegistry& kernels,
                                                       Device* device) {
  std::unique_ptr<KernelList> list(new KernelList(device));
  list->env_.step_id = 1;
  list->env_.cancellation = &list->cancellation_;
  MR_ASSIGN_OR_RETURN(const std::vector<const pb::NodeDef*> order, InOrder(graph));
  std::map<std::string, int32_t> first_slot;
  std::vector<bool> kept;  // by slot: between runs
  for (const pb::NodeDef* def : order) {
    MR_ASSIGN_OR_RETURN(const OpInfo* op, ops.Lookup(def->op()));
    AttrMap attrs;
    for (const auto& [name, value] : def->attr()) {
      MR_ASSIGN_OR_RETURN(AttrValue attr, AttrFromProto(value));
      attrs.Set(name, std::move(attr));
    }
    AddDefaultAttrs(op->def, &attrs);
    Call call;
    std::vector<DataType> input_types;
    MR_RETURN_IF_ERROR(ExpandTypes(op->def, attrs, &input_types, &call.output_types));
    for (const std::string& input : def->input()) {
      const auto [from, output] = ParseInput(input);
      if (output >= 0) call.inputs.push_back(first_slot[from] + output);
    }
    first_slot[def->name()] = static_cast<int32_t>(kept.size());
    const auto fed = feeds.find(def->name());
    const bool constant = def->op() == "Const";
    for (std::size_t i = 0; i < call.output_types.size(); ++i) {
      call.outputs.push_back(static_cast<int32_t>(kept.size()));
      kept.push_back(constant || fed != feeds.end());
    }
    list->slots_.resize(kept.size());
    if (fed != feeds.end()) {
      if (call.outputs.size() != 1) return errors::Unimplemented("'", def->name(), "' is fed");
      list->slots_.back().value = fed->second;
      list->slots_.back().kind = EdgeValue::Kind::kValue;
      continue;
    }
    MR_ASSIGN_OR_RETURN(call.kernel, kernels.Create(device, op, def->name(), attrs, input_types,
                                                    call.output_types));
    for (const DataType type : input_types) {
      if (IsRefType(type)) return errors::Unimplemented("'", def->name(), "' reads a reference");
    }
    if (call.kernel->IsAsync()) {
      return errors::Unimplemented("'", def->name(), "', a ", def->op(), ", is asynchronous");
    }
    if (def->op() == "NoOp") continue;  // no executor runs it either
    (constant ? list->constants_ : list->calls_).push_back(std::move(call));
  }
  list->FindLastReaders(kept);
  for (const Call& call : list->constants_) MR_RETURN_IF_ERROR(list->Compute(call));
  return list;
}

void KernelList::FindLastReaders(const std::vector<bool>& kept) {
  std::set<int32_t> read;  // by what comes later
  for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
    std::set<int32_t> last;
    for (const int32_t slot : call->outputs) {
      if (!read.contains(slot)) last.insert(slot);
    }
    for (std::size_t i = 0; i < call->inputs.size(); ++i) {
      const int32_t slot = call->inputs[i];
      if (kept[slot] || !read.insert(slot).second) continue;
      last.insert(slot);
      // A value that comes in twice is not for one of the two to overwrite.
      if (std::count(call->inputs.begin(), call->inputs.end(), slot) > 1) continue;
      if (i < 64) call->last_reader |= uint64_t{1} << i;
    }
    call->clears.assign(last.begin(), last.end());
  }
}

Status KernelList::Compute(const Call& call) {
  KernelContext ctx(device_, &env_);
  ctx.Bind(call.kernel.get(), {.in = slots_.data(),
                               .out = slots_.data(),
                               .in_index = call.inputs.data(),
                               .out_index = call.outputs.data(),
                               .num_inputs = static_cast<int32_t>(call.inputs.size()),
                               .num_outputs = static_cast<int32_t>(call.outputs.size()),
                               .output_types = call.output_types.data(),
                               .last_reader = call.last_reader});
  const Status status = call.kernel->Compute(ctx);
  if (status.ok()) return status;
  return MakeStatus(status.code(), StrCat(call.kernel->name(), ": ", Message(status)));
}

Status KernelList::Run() {
  for (const Call& call : calls_) {
    const Status status = Compute(call);
    for (const int32_t slot : call.clears) slots_[slot].Clear();
    if (!status.ok()) return status;
  }
  return OkStatus();
}

}  // namespace millrace
