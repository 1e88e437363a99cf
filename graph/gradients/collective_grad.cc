// SPDX-License-Identifier: Apache-2.0
// Derivatives through collectives: of a sum, or a mean, over workers, each of which computes losses
// of its own.
#include "base/errors.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"

namespace millrace {
namespace {

// Derivatives are instances of their own, as far from those that programs number.
constexpr int64_t kKeysOfDerivatives = int64_t{1} << 24;

// What each member brought counts in the losses of all; in a mean for as much less as there are
// members, which is the mean of what arrives.
Status SumGradient(GradContext& c) {
  const Operation& op = c.op();
  const AttrMap& given = op.node()->attrs();
  const auto text = [&](const char* name) { return given.GetOr<std::string>(name, ""); };
  if (text("merge_op") != "Add" || (text("final_op") != "Id" && text("final_op") != "Div")) {
    return errors::Unimplemented("the derivative of ", op.name(), " by ", text("merge_op"), " and ",
                                 text("final_op"), " is not there: only sums and means have one");
  }
  std::vector<std::pair<std::string, AttrValue>> attrs;
  for (const char* name : {"group_size", "group_key", "merge_op", "final_op", "subdiv_offsets",
                           "communication_hint", "timeout_seconds"}) {
    attrs.emplace_back(name, op.attr(name));
  }
  // The derivative is added up in the order of the sum.
  if (given.GetOr<bool>("_in_rank_order", false)) attrs.emplace_back("_in_rank_order", true);
  const int64_t key = given.GetOr<int64_t>("instance_key", 0);
  attrs.emplace_back("instance_key", key + kKeysOfDerivatives);
  // Members are devices: this one is that of the sum.
  const Scope scope = c.scope().WithDevice(op.device());
  const std::vector<Input> dy = {c.dy()};
  const std::source_location where = std::source_location::current();
  c.set_dx(0, scope.AddOp("CollectiveReduce", dy, std::move(attrs), where).output(0));
  return OkStatus();
}

}  // namespace

void RegisterCollectiveGradients(GradientRegistry& r) {
  r.Register("CollectiveReduce", SumGradient);
}

}  // namespace millrace
