// SPDX-License-Identifier: Apache-2.0
// Several steps as one call of the graph: a loop whose body is what one step runs.
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/subgraph_copy.h"
#include "millrace/control_flow.h"
#include "millrace/math.h"
#include "model/steps.h"

namespace millrace::model {
namespace {

// Of all rows that are fed those of one step, fewer in the last.
Output RowsOfStep(const Scope& scope, const Output& all, const Output& step,
                  const Output& batch_size) {
  const Expr begin = Expr(scope, step) * batch_size;
  const Output end = begin + batch_size;
  return ops::StridedSlice(scope, all, ops::ExpandDims(scope, begin, 0),
                           ops::ExpandDims(scope, end, 0), {int64_t{1}});
}

}  // namespace

bool Steps::HasExecutions(const Function& function) const {
  return compiled_ && compiled_->steps_per_execution > 1 && strategy_->num_workers() == 1 &&
         strategy_->num_replicas_in_sync() == 1 &&
         (function.execution || AsksForNoTask(function.done));
}

Status Steps::MakeExecution(Kind kind, Function* function) {
  Function::Execution made;
  const Scope scope = RootScope().Named(StrCat(NameOf(kind), "_execution"));
  const Output steps = Placeholder(scope.WithOpName("steps"), kInt64, PartialShape({}), where_);
  const Output batch_size =
      Placeholder(scope.WithOpName("batch_size"), kInt64, PartialShape({}), where_);
  made.feeds = function->feeds;
  made.feeds.insert(made.feeds.end(), {steps, batch_size});

  const Output counter = ops::VarHandleOp(scope.WithOpName("count"), kInt64, PartialShape({}));
  const Output zero = Constant(scope, Tensor::Scalar<int64_t>(0));
  const Operation begun = ops::AssignVariableOp(scope, counter, zero);
  const Output first = ops::Identity(scope.WithControlDependencies({begun}), zero);
  Status copied;
  const auto body = [&](const Scope& s, std::span<const Output> loop) -> std::vector<Output> {
    std::vector<OutputReplacement> rows;
    for (const Output& feed : function->feeds) {
      rows.emplace_back(feed, RowsOfStep(s, feed, loop[0], batch_size));
    }
    const StatusOr<Operation> done = CopySubgraph(function->done, rows, loop[0].op());
    copied = done.status();
    if (!done.ok()) return {};
    const Operation counted =
        ops::AssignAddVariableOp(s.WithControlDependencies({*done}), counter, int64_t{1});
    return {Expr(s.WithControlDependencies({counted}), loop[0]) + int64_t{1}};
  };
  const std::vector<Output> ended = WhileLoop(
      scope, {first},
      [&](const Scope& s, std::span<const Output> loop) { return Expr(s, loop[0]) < steps; }, body,
      {.parallel_iterations = 1}, where_);
  MR_RETURN_IF_ERROR(copied);
  MR_RETURN_IF_ERROR(graph_.status());
  made.count = ops::ReadVariableOp(scope, counter, kInt64);
  const Operation targets[] = {ended[0].op()};
  MR_ASSIGN_OR_RETURN(made.alone, MakeCallable(made.feeds, {}, targets));
  const Scope after = scope.Named("results").WithControlDependencies({ended[0].op()});
  const std::vector<Output> results = ReadResults(after);
  MR_ASSIGN_OR_RETURN(made.with_results, MakeCallable(made.feeds, results, targets));
  MR_ASSIGN_OR_RETURN(made.read_count, MakeCallable({}, {{made.count}}, {}));
  function->execution = std::move(made);
  return OkStatus();
}

Status Steps::Execute(Kind kind, Function* function, std::span<const Tensor> feeds,
                      int64_t batch_size, int64_t steps, Logs* logs, int64_t* done) {
  if (!function->execution) MR_RETURN_IF_ERROR(MakeExecution(kind, function));
  Function::Execution& execution = *function->execution;
  std::vector<Tensor> all(feeds.begin(), feeds.end());
  all.push_back(Tensor::Scalar<int64_t>(steps));
  all.push_back(Tensor::Scalar<int64_t>(batch_size));
  const Callable& callable = logs != nullptr ? *execution.with_results : *execution.alone;
  if (const Status status = callable.Run(all, &fetched_); !status.ok()) {
    // A session that cannot say it any more has made none that count.
    const Status read = execution.read_count->Run({}, &fetched_);
    *done = read.ok() ? fetched_[0].TryScalar<int64_t>().value_or(0) : 0;
    // Data that end are no failure of the steps before.
    if (logs != nullptr && *done > 0 && errors::IsOutOfRange(status)) {
      MR_ASSIGN_OR_RETURN(*logs, Results());
    }
    return status;
  }
  *done = steps;
  return logs != nullptr ? FillLogs(fetched_, logs) : OkStatus();
}

}  // namespace millrace::model
