// SPDX-License-Identifier: Apache-2.0
#include "worker/graph_updates.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/state/counted_update.h"

namespace millrace {
namespace {

bool UpdatesVariable(std::string_view op) {
  if (op.starts_with("Resource")) op.remove_prefix(std::string_view("Resource").size());
  if (op.starts_with("Sparse")) op.remove_prefix(std::string_view("Sparse").size());
  return op.starts_with("Apply") || op == "ScatterAdd" || op == "ScatterSub";
}

bool Accumulates(std::string_view op) { return op.ends_with("AccumulatorApplyGradient"); }

// Where the handle or reference in input 0 comes from; null if that is not in the graph.
const Node* SourceOf(const Node& node) {
  constexpr int kMostHops = 64;
  const Node* at = &node;
  for (int hop = 0; hop < kMostHops; ++hop) {
    const Node* from = nullptr;
    for (const Edge* edge : at->in_edges()) {
      if (!edge->IsControl() && edge->dst_input == 0) from = edge->src;
    }
    if (from == nullptr) return nullptr;
    const std::string_view op = from->type();
    if (op != "Identity" && op != "RefIdentity" && op != "Enter" && op != "RefEnter" &&
        op != "Switch" && op != "RefSwitch") {
      return from;
    }
    at = from;
  }
  return nullptr;
}

bool HasFunctions(const Node& node) {
  return std::any_of(node.attrs().begin(), node.attrs().end(), [](const auto& attr) {
    return attr.second.function() != nullptr ||
           attr.second.template get_if<std::vector<FunctionName>>() != nullptr;
  });
}

UpdateLedger::Entry* EntryOf(UpdateLedger* ledger, LedgerKind kind, const Node& source) {
  std::string name = source.attrs().GetOr<std::string>("shared_name", "");
  if (name.empty()) name = source.name();
  return FindInLedger(ledger, kind, source.attrs().GetOr<std::string>("container", ""), name);
}

}  // namespace

void GraphUpdates::AddPart(const Device& device, const DataflowGraph& graph,
                           std::unique_ptr<GraphUpdates>* updates) {
  if (device.parsed_name().type != "CPU") return;
  Part part;
  bool updates_any = graph.library() != nullptr;
  const auto ledger = [&] {
    if (!part.ledger) part.ledger = UpdateLedger::Of(device.resource_manager());
    return part.ledger.get();
  };
  for (const Node* node : graph.OpNodes()) {
    const std::string_view op = node->type();
    updates_any = updates_any || HasFunctions(*node);
    if (!UpdatesVariable(op) && !Accumulates(op)) continue;
    updates_any = true;
    const Node* const source = SourceOf(*node);
    if (source == nullptr) continue;
    UpdateLedger::Entry* entry = nullptr;
    if (source->type().ends_with("ConditionalAccumulator")) {
      entry = EntryOf(ledger(), LedgerKind::kAccumulator, *source);
    } else if (source->type() == "VarHandleOp" || source->type().starts_with("Variable")) {
      entry = EntryOf(ledger(), LedgerKind::kVariable, *source);
    }
    if (entry != nullptr) part.expected.push_back(entry);
  }
  if (!updates_any) return;
  (void)ledger();
  if (*updates == nullptr) *updates = std::make_unique<GraphUpdates>();
  (*updates)->parts_.push_back(std::move(part));
}

void GraphUpdates::SetSource(std::string task, uint64_t incarnation, const void* session) {
  task_ = std::move(task);
  session_ = session;
  for (Part& part : parts_) part.source = part.ledger->AddSource(task_, incarnation);
}

Status GraphUpdates::Admit(int64_t step_id) const {
  Status admitted;
  for (const Part& part : parts_) {
    Status status = part.ledger->Admit(Origin(step_id), part.source, part.expected);
    if (admitted.ok()) admitted = std::move(status);
  }
  return admitted;
}

void GraphUpdates::Begin(int64_t step_id) const {
  for (const Part& part : parts_) {
    part.ledger->BeginStep(Origin(step_id), part.source, &part.expected);
  }
}

void GraphUpdates::End(int64_t step_id, bool failed) const {
  for (const Part& part : parts_) part.ledger->EndStep(Origin(step_id), failed);
}

}  // namespace millrace
