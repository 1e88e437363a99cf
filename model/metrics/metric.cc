// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "base/errors.h"
#include "base/exceptions.h"
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

// What a function of the rule gives; nothing, and an error in the graph, if it throws.
template <typename Function, typename... Arguments>
auto Ask(const Scope& scope, std::source_location where, const std::string& metric,
         const char* function, const Function& of, const Arguments&... arguments)
    -> std::optional<decltype(of(arguments...))> {
  std::optional<decltype(of(arguments...))> answer;
  const Status called = Guarded([&] {
    answer.emplace(of(arguments...));
    return OkStatus();
  });
  if (called.ok()) return answer;
  scope.RecordError(WithMessage(called, StrCat("metric '", metric, "': ", function,
                                               " of its rule: ", Message(called))),
                    where);
  return std::nullopt;
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
    const auto sums = Ask(scope, where, name_, "sums", rule_.sums, y_true, batch.y_pred.shape());
    if (!sums) return Operation();
    for (const Sum& sum : *sums) {
      variables_.push_back(
          MakeVariable(root, StrCat(name_, "/", sum.name), Zeros(root, sum), {.trainable = false}));
    }
  }
  const Scope s = scope.Named(StrCat(name_, "_update"));
  const auto made = Ask(scope, where, name_, "additions", rule_.additions, s, batch);
  if (!made || !scope.status().ok()) return Operation();
  const std::vector<Expr>& additions = *made;
  if (additions.size() != variables_.size()) {
    scope.RecordError(
        errors::InvalidArgument("metric '", name_, "': its rule has ", variables_.size(),
                                " sums, and makes ", additions.size(), " additions for them"),
        where);
    return Operation();
  }
  std::vector<Operation> computed, updates;
  for (const Expr& addition : additions) {
    if (!addition.output().valid()) {
      scope.RecordError(
          errors::InvalidArgument("metric '", name_, "': the addition to its sum '",
                                  variables_[computed.size()].handle.op().name(), "' is no output"),
          where);
      return Operation();
    }
    computed.push_back(addition.output().op());
  }
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
  if (!rule_.result) return Output();
  const auto result = Ask(s, where, name_, "result", rule_.result, sums);
  return result ? result->output() : Output();
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
