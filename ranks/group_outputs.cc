// SPDX-License-Identifier: Apache-2.0
// Collectives as nodes of graphs.
#include "base/errors.h"
#include "base/strings.h"
#include "ranks/group_state.h"

namespace millrace {
namespace {

Status CheckShapes(std::span<const Output> values, bool by_rows) {
  for (const Output& value : values) {
    if (!value.valid()) continue;
    const PartialShape shape = value.shape();
    if (by_rows ? shape.has_rank() && shape.rank() > 0 : shape.IsFullyDefined()) continue;
    return errors::InvalidArgument(value.name(), " of shape ", shape.DebugString(),
                                   by_rows ? " has no rows that could be gathered"
                                           : " must have a known shape to travel between ranks");
  }
  return OkStatus();
}

// Whether all ranks add the same; if not, the graph's status says so.
bool AllAdd(GroupState& group, const Scope& scope, std::string_view kind,
            std::span<const Output> values, std::span<const std::string> labels,
            const Status& valid, std::string_view name, bool any_rows, std::source_location where)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mu) {
  const std::string text = StrCat(kind, " in a graph");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    texts.push_back(StrCat(DescribeValue(values[i], any_rows), labels.empty() ? "" : " ",
                           labels.empty() ? "" : labels[i]));
  }
  // What was wrong with the graph before is told to all, who would wait for these nodes in vain.
  Status wrong = scope.status();
  wrong.Update(valid);
  const Status agreed =
      group.Agree(wrong.ok() ? MakeCall(text, texts, name) : RefusedCall(text, wrong)).status();
  if (!agreed.ok()) scope.RecordError(agreed, where);
  return agreed.ok();
}

}  // namespace

Output ProcessGroup::AllReduce(const Scope& scope, ReduceOp op, const Output& value,
                               std::string_view name, std::source_location where) {
  return AllReduce(scope, op, std::span(&value, 1), name, where)[0];
}

std::vector<Output> ProcessGroup::AllReduce(const Scope& scope, ReduceOp op,
                                            std::span<const Output> values, std::string_view name,
                                            std::source_location where) {
  return GroupParts::Reduce(*state_, scope, op, values, {}, name, where);
}

std::vector<Output> GroupParts::Reduce(GroupState& group, const Scope& outer, ReduceOp op,
                                       std::span<const Output> values,
                                       std::span<const std::string> labels, std::string_view name,
                                       std::source_location where, std::vector<ReducePack>* packs) {
  MutexLock lock(&group.mu);
  const std::string kind = StrCat("AllReduce(", ReduceOpName(op), ")");
  Status valid = CheckShapes(values, false);
  for (const Output& value : values) {
    if (value.valid()) valid.Update(CheckMean(op, value.dtype()));
  }
  if (!AllAdd(group, outer, kind, values, labels, valid, name, false, where)) {
    return std::vector<Output>(values.size());
  }
  if (group.size() == 1) return {values.begin(), values.end()};
  const Scope scope = outer.CalledFrom(where).Named("AllReduce").WithDevice(group.world->device);
  return group.nodes.Reduce(scope, op, values, where, packs);
}

std::vector<Output> ProcessGroup::AllGather(const Scope& outer, std::span<const Output> values,
                                            std::string_view name, std::source_location where) {
  MutexLock lock(&state_->mu);
  if (!AllAdd(*state_, outer, "AllGather", values, {}, CheckShapes(values, true), name, true,
              where)) {
    return std::vector<Output>(values.size());
  }
  if (size() == 1) return {values.begin(), values.end()};
  const Scope scope = outer.CalledFrom(where).Named("AllGather").WithDevice(state_->world->device);
  return state_->nodes.Gather(scope, values, where);
}

std::vector<Output> ProcessGroup::Broadcast(const Scope& scope, std::span<const Output> values,
                                            int root, std::string_view name,
                                            std::source_location where) {
  return GroupParts::Broadcast(*state_, scope, values, {}, root, name, where);
}

std::vector<Output> GroupParts::Broadcast(GroupState& group, const Scope& outer,
                                          std::span<const Output> values,
                                          std::span<const std::string> labels, int root,
                                          std::string_view name, std::source_location where) {
  MutexLock lock(&group.mu);
  Status valid = CheckShapes(values, false);
  if (root < 0 || root >= group.size()) {
    valid.Update(errors::InvalidArgument("there is no rank ", root, " among ", group.size()));
  }
  const std::string kind = StrCat("Broadcast from rank ", root);
  if (!AllAdd(group, outer, kind, values, labels, valid, name, false, where)) {
    return std::vector<Output>(values.size());
  }
  if (group.size() == 1) return {values.begin(), values.end()};
  const Scope scope = outer.CalledFrom(where).Named("Broadcast").WithDevice(group.world->device);
  std::vector<Output> all;
  for (const Output& value : values) {
    all.push_back(group.nodes.Broadcast(scope, value, root, where));
  }
  return all;
}

}  // namespace millrace
