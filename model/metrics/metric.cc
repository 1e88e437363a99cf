// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "base/strings.h"
#include "millrace/metrics.h"

namespace millrace::metrics {
namespace {

Output Zeros(const Scope& scope, const Metric::Sum& sum) {
  const std::vector<int32_t> dims(sum.shape.dims().begin(), sum.shape.dims().end());
  return ops::Fill(scope, Tensor::FromValues<int32_t>(dims, Shape({sum.shape.rank()})),
                   ops::Cast(scope, Tensor::Scalar<float>(0), sum.dtype));
}

Output ReadNow(const Scope& scope, const Variable& v) {
  return v.is_resource() ? ops::ReadVariableOp(scope, v.handle, v.dtype())
                         : ops::Identity(scope, v.handle);
}

}  // namespace

bool Metric::IsBuilt(const Scope& scope, std::source_location where) const {
  if (!variables_.empty()) return true;
  scope.RecordError(
      errors::FailedPrecondition("metric '", name_, "' has no variables yet: call Update first"),
      where);
  return false;
}

Operation Metric::Update(const Scope& outer, const Batch& batch, std::source_location where) {
  const Scope scope = outer.CalledFrom(where);
  if (!batch.y_pred.valid() || !scope.status().ok()) return Operation();
  if (!rule_.sums || !rule_.additions || !rule_.result) {
    scope.RecordError(errors::InvalidArgument("metric '", name_,
                                              "': sums, additions or result of its rule is null"),
                      where);
    return Operation();
  }
  if (variables_.empty()) {
    const Scope root = scope.WithoutControlDependencies();
    const PartialShape y_true = batch.y_true.valid() ? batch.y_true.shape() : PartialShape();
    for (const Sum& sum : rule_.sums(y_true, batch.y_pred.shape())) {
      variables_.push_back(
          MakeVariable(root, StrCat(name_, "/", sum.name), Zeros(root, sum), {.trainable = false}));
    }
  }
  const Scope s = scope.Named(StrCat(name_, "_update"));
  const std::vector<Expr> additions = rule_.additions(s, batch);
  if (!scope.status().ok() || additions.size() != variables_.size()) return Operation();
  std::vector<Operation> computed, updates;
  for (const Expr& addition : additions) computed.push_back(addition.output().op());
  // All or nothing: what is wrong with a batch shows before the first sum has grown.
  const Scope after = s.WithControlDependencies(computed);
  for (std::size_t i = 0; i < additions.size(); ++i) {
    const Output value = additions[i].Cast(variables_[i].dtype());
    updates.push_back(AssignAdd(after, variables_[i], value));
  }
  return Group(s.WithScopeName(), updates);
}

Output Metric::Result(const Scope& outer, std::source_location where) const {
  const Scope scope = outer.CalledFrom(where);
  if (!IsBuilt(scope, where)) return Output();
  const Scope s = scope.Named(StrCat(name_, "_result"));
  std::vector<Expr> sums;
  for (const Variable& v : variables_) sums.emplace_back(s, ReadNow(s, v));
  return rule_.result(sums);
}

Operation Metric::Reset(const Scope& outer, std::source_location where) const {
  const Scope scope = outer.CalledFrom(where);
  if (!IsBuilt(scope, where)) return Operation();
  const Scope s = scope.Named(StrCat(name_, "_reset"));
  std::vector<Operation> resets;
  for (const Variable& v : variables_) {
    const Scope beside = s.ColocateWith(v.handle);
    resets.push_back(Assign(s, v, Zeros(beside, Sum{"", *v.shape().AsShape(), v.dtype()})));
  }
  return Group(s.WithScopeName(), resets);
}

}  // namespace millrace::metrics
