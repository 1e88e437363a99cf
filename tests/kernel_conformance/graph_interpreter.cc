// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel_conformance/graph_interpreter.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "kernels/run_kernel.h"

namespace millrace::testing {
namespace {

constexpr std::chrono::seconds kKernelTimeout(20);

StatusOr<AttrMap> ReadAttrs(const pb::NodeDef& def, const OpInfo& op) {
  AttrMap attrs;
  for (const auto& [name, value] : def.attr()) {
    MR_ASSIGN_OR_RETURN(AttrValue attr, AttrFromProto(value));
    attrs.Set(name, std::move(attr));
  }
  AddDefaultAttrs(op.def, &attrs);
  return attrs;
}

// The outcome of one asynchronous kernel.
struct Outcome {
  Notification done;
  Status status;

  static void Record(void* arg, Status status) {
    auto* self = static_cast<Outcome*>(arg);
    self->status = std::move(status);
    self->done.Notify();
  }
};

}  // namespace

// Outputs of the nodes that have run, and how many readers each still has.
struct GraphInterpreter::StepValues {
  std::vector<std::vector<EdgeValue>> outputs;
  std::vector<std::vector<int>> readers;

  EdgeValue Take(const Endpoint& from) {
    EdgeValue& value = outputs[from.node][from.port];
    return --readers[from.node][from.port] == 0 ? std::exchange(value, EdgeValue()) : value;
  }
};

std::set<std::string> GraphInterpreter::Missing(const pb::GraphDef& graph, const OpRegistry& ops,
                                                const KernelRegistry& kernels) {
  static const auto* const kControlFlow = new std::set<std::string>{
      "Switch", "Merge", "Enter", "Exit", "NextIteration", "RefSwitch", "RefMerge", "RefEnter"};
  std::set<std::string> missing;
  if (graph.library().function_size() > 0) missing.insert("functions");
  for (const pb::NodeDef& def : graph.node()) {
    const OpInfo* op = ops.Find(def.op());
    if (op == nullptr) {
      missing.insert(def.op());
      continue;
    }
    if (kControlFlow->contains(def.op())) missing.insert("control flow");
    const StatusOr<AttrMap> attrs = ReadAttrs(def, *op);
    if (attrs.ok() && kernels.Find(def.op(), "CPU", *attrs) == nullptr) missing.insert(def.op());
  }
  return missing;
}

StatusOr<std::unique_ptr<GraphInterpreter>> GraphInterpreter::Create(const pb::GraphDef& graph,
                                                                     const OpRegistry& ops,
                                                                     const KernelRegistry& kernels,
                                                                     Device* device) {
  auto self = std::make_unique<GraphInterpreter>();
  self->device_ = device;
  self->nodes_.resize(graph.node_size());
  for (int i = 0; i < graph.node_size(); ++i) self->by_name_[graph.node(i).name()] = i;
  for (int i = 0; i < graph.node_size(); ++i) {
    const pb::NodeDef& def = graph.node(i);
    Node& node = self->nodes_[i];
    node.name = def.name();
    MR_ASSIGN_OR_RETURN(const OpInfo* op, ops.Lookup(def.op()));
    MR_ASSIGN_OR_RETURN(node.attrs, ReadAttrs(def, *op));
    MR_RETURN_IF_ERROR(ExpandTypes(op->def, node.attrs, &node.input_types, &node.output_types));
    for (const std::string& input : def.input()) {
      MR_ASSIGN_OR_RETURN(const Endpoint from, self->Parse(input));
      if (from.port < 0) {
        node.control_inputs.push_back(from.node);
      } else {
        node.inputs.push_back(from);
      }
    }
    if (node.inputs.size() != node.input_types.size()) {
      return errors::InvalidArgument(node.name, " has ", node.inputs.size(), " inputs, not ",
                                     node.input_types.size());
    }
    MR_ASSIGN_OR_RETURN(node.kernel, kernels.Create(device, op, node.name, node.attrs,
                                                    node.input_types, node.output_types));
  }
  return self;
}

StatusOr<GraphInterpreter::Endpoint> GraphInterpreter::Parse(const std::string& name) const {
  Endpoint at;
  std::string node = name;
  if (name.starts_with('^')) {
    at.port = -1;
    node = name.substr(1);
  } else if (const auto colon = name.rfind(':'); colon != std::string::npos) {
    at.port = std::atoi(name.c_str() + colon + 1);
    node = name.substr(0, colon);
  }
  const auto it = by_name_.find(node);
  if (it == by_name_.end()) return errors::NotFound("no node named ", node);
  at.node = it->second;
  return at;
}

Status GraphInterpreter::Compute(int index, StepEnv* env, StepValues* values) {
  Node& node = nodes_[index];
  std::vector<EdgeValue> inputs(node.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EdgeValue value = values->Take(node.inputs[i]);
    if (value.kind == EdgeValue::Kind::kEmpty) {
      return errors::Internal(node.name, ": input ", i, " was not computed");
    }
    if (value.kind == EdgeValue::Kind::kRef && !IsRefType(node.input_types[i])) {
      EdgeValue read;
      read.kind = EdgeValue::Kind::kValue;
      MutexLock lock(value.ref_mu);
      if (!value.ref->IsInitialized()) {
        return errors::FailedPrecondition("Attempting to use uninitialized value ",
                                          nodes_[node.inputs[i].node].name);
      }
      read.value = *value.ref;
      value = std::move(read);
    }
    inputs[i] = std::move(value);
  }
  values->outputs[index].resize(node.output_types.size());
  KernelContext ctx(node.kernel.get(), device_, env, inputs, values->outputs[index],
                    node.output_types);
  if (!node.kernel->IsAsync()) return RunKernel(node.kernel.get(), ctx);
  Outcome outcome;
  RunKernelAsync(node.kernel.get(), ctx, DoneCallback{&Outcome::Record, &outcome});
  if (!outcome.done.WaitUntil(DeadlineAfter(kKernelTimeout))) {
    // The kernel still holds pointers into this frame.
    std::fprintf(stderr, "%s did not finish\n", node.name.c_str());
    std::abort();
  }
  return outcome.status;
}

StatusOr<std::vector<Tensor>> GraphInterpreter::Run(const std::map<std::string, Tensor>& feeds,
                                                    std::span<const std::string> fetches,
                                                    std::span<const std::string> targets) {
  CancellationManager cancellation;
  StepEnv env;
  env.step_id = next_step_++;
  env.step_container = StrCat("__per_step_", env.step_id);
  env.cancellation = &cancellation;
  env.session_state = &session_tensors_;

  StepValues values;
  values.outputs.resize(nodes_.size());
  values.readers.resize(nodes_.size());
  std::vector<bool> fed(nodes_.size(), false);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    values.readers[i].resize(nodes_[i].output_types.size(), 0);
  }
  for (const auto& [name, tensor] : feeds) {
    MR_ASSIGN_OR_RETURN(const Endpoint at, Parse(name));
    values.outputs[at.node].resize(nodes_[at.node].output_types.size());
    values.outputs[at.node][at.port].value = tensor;
    values.outputs[at.node][at.port].kind = EdgeValue::Kind::kValue;
    fed[at.node] = true;
  }
  std::vector<Endpoint> wanted;
  for (const std::string& name : fetches) {
    MR_ASSIGN_OR_RETURN(const Endpoint at, Parse(name));
    if (at.port < 0 || at.port >= static_cast<int>(values.readers[at.node].size())) {
      return errors::NotFound("no output ", name);
    }
    ++values.readers[at.node][at.port];
    wanted.push_back(at);
  }
  // Depth first: inputs before the nodes that read them.
  std::vector<int> order;
  std::vector<bool> visited = fed;
  std::function<void(int)> visit = [&](int index) {
    if (visited[index]) return;
    visited[index] = true;
    for (const int before : nodes_[index].control_inputs) visit(before);
    for (const Endpoint& from : nodes_[index].inputs) {
      ++values.readers[from.node][from.port];
      visit(from.node);
    }
    order.push_back(index);
  };
  for (const Endpoint& at : wanted) visit(at.node);
  for (const std::string& name : targets) {
    MR_ASSIGN_OR_RETURN(const Endpoint at, Parse(name));
    visit(at.node);
  }
  for (const int index : order) {
    const Status status = Compute(index, &env, &values);
    if (!status.ok()) {
      device_->resource_manager()->Cleanup(env.step_container);
      return status;
    }
  }
  std::vector<Tensor> results;
  for (const Endpoint& at : wanted) {
    const EdgeValue value = values.Take(at);
    if (value.kind == EdgeValue::Kind::kRef) {
      MutexLock lock(value.ref_mu);
      results.push_back(value.ref->Clone());
    } else if (value.kind == EdgeValue::Kind::kValue) {
      results.push_back(value.value);
    } else {
      return errors::Internal(nodes_[at.node].name, ":", at.port, " was not computed");
    }
  }
  device_->resource_manager()->Cleanup(env.step_container);
  return results;
}

}  // namespace millrace::testing
