// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/loop_builder.h"
#include "millrace/ops.h"
#include "millrace/scan.h"

namespace millrace {
namespace {

Status CheckElements(const std::vector<Output>& elements) {
  if (elements.empty()) return errors::InvalidArgument("there are no elements to go over");
  int64_t rows = -1;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (!elements[i].valid()) return errors::InvalidArgument("element ", i, " is not valid");
    const PartialShape shape = elements[i].shape();
    if (!shape.has_rank()) continue;
    if (shape.rank() == 0) {
      return errors::InvalidArgument("element ", i, " ('", elements[i].name(),
                                     "') is a scalar, which has no rows to go over");
    }
    if (shape.dim(0) < 0) continue;
    if (rows >= 0 && shape.dim(0) != rows) {
      return errors::InvalidArgument("the elements have different numbers of rows: ", rows, " and ",
                                     shape.dim(0), " ('", elements[i].name(), "')");
    }
    rows = shape.dim(0);
  }
  return OkStatus();
}

// A loop over rows. Its variables: the number of the iteration, and the state.
class RowLoop {
 public:
  RowLoop(const Scope& scope, const ScanOptions& options, std::source_location where)
      : scope_(scope), at_(scope.CalledFrom(where)), options_(options), where_(where) {}

  StatusOr<ScanResult> Run(const std::vector<Output>& initial, const std::vector<Output>& elements,
                           const ScanFunction& f) {
    if (!f) return errors::InvalidArgument("there is no body: the std::function is empty");
    MR_RETURN_IF_ERROR(CheckElements(elements));
    if (options_.parallel_iterations < 1) {
      return errors::InvalidArgument("parallel_iterations is ", options_.parallel_iterations,
                                     ", and must be at least 1");
    }
    MR_RETURN_IF_ERROR(TakeApart(elements));
    for (const Output& state : initial) {
      if (!state.valid()) return errors::InvalidArgument("an initial state is not valid");
      state_shapes_.push_back(state.shape());
    }
    std::vector<Output> variables = {ops::Const(at_, Tensor::Scalar<int32_t>(0), kInt32)};
    variables.insert(variables.end(), initial.begin(), initial.end());
    const auto goes_on = [&](const Scope& s, std::span<const Output> v) {
      return ops::Less(s.CalledFrom(where_), v[0], count_);
    };
    const auto body = [&](const Scope& s, std::span<const Output> v, KeptOutputs* kept) {
      return Step(s, v, f, kept);
    };
    const WhileOptions options{.parallel_iterations = options_.parallel_iterations};
    std::vector<TensorArray> results;
    MR_ASSIGN_OR_RETURN(
        const std::vector<Output> last,
        BuildKeepingLoop(scope_, variables, goes_on, body, count_, options, where_, &results));
    ScanResult result;
    result.last.assign(last.begin() + 1, last.end());
    for (const TensorArray& array : results) result.all.push_back(array.Gather(at_, all_, where_));
    MR_RETURN_IF_ERROR(scope_.status());
    return result;
  }

 private:
  Status TakeApart(const std::vector<Output>& elements) {
    const Output shape = ops::Shape(at_, elements[0]);
    count_ = ops::StridedSlice(at_, shape, {0}, {1}, {1}, {.shrink_axis_mask = 1});
    // Of all by the rows of the first: a step says so where another has more or fewer.
    all_ = ops::Range(at_, 0, count_, 1);
    for (const Output& element : elements) {
      const PartialShape rows = element.shape();
      const PartialShape row = rows.has_rank() ? PartialShape(rows.dims().subspan(1)) : rows;
      const TensorArray array(at_, element.dtype(), count_, {.element_shape = row}, where_);
      rows_.push_back(array.Scatter(at_, all_, element, where_));
    }
    return scope_.status();
  }

  // An empty result where an error is in the graph's status.
  std::vector<Output> Step(const Scope& scope, std::span<const Output> variables,
                           const ScanFunction& f, KeptOutputs* kept) {
    const Scope at = scope.CalledFrom(where_);
    const Output i = variables[0];
    kept->index = options_.reverse ? ops::Sub(at, ops::Sub(at, count_, 1), i) : i;
    std::vector<Output> row;
    for (const TensorArray& rows : rows_) row.push_back(rows.Read(at, kept->index, where_));
    if (!scope.status().ok()) return {};
    // Nothing is known of a loop's variables but what they begin as.
    std::vector<Output> before(variables.begin() + 1, variables.end());
    for (std::size_t k = 0; k < before.size(); ++k) {
      if (!state_shapes_[k].has_rank()) continue;
      before[k] = ops::EnsureShape(at, before[k], state_shapes_[k]);
    }
    ScanStep step = f(scope, before, row);
    if (!scope.status().ok()) return {};
    const Status status = Check(step, before);
    if (!status.ok()) {
      scope.RecordError(status, where_);
      return {};
    }
    kept->values = std::move(step.results);
    std::vector<Output> next = {ops::AddV2(at, i, 1)};
    next.insert(next.end(), step.state.begin(), step.state.end());
    return next;
  }

  static Status Check(const ScanStep& step, std::span<const Output> before) {
    if (step.state.size() != before.size()) {
      return errors::InvalidArgument("the body is given ", before.size(), " states and gives ",
                                     step.state.size());
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Output& after = step.state[i];
      if (!after.valid()) return errors::InvalidArgument("state ", i, " of the body is not valid");
      if (BaseType(after.dtype()) != BaseType(before[i].dtype()) ||
          !after.shape().IsCompatibleWith(before[i].shape())) {
        return errors::InvalidArgument(
            "state ", i, " begins as ", DataTypeName(BaseType(before[i].dtype())),
            before[i].shape().DebugString(), ", but the body gives ",
            DataTypeName(BaseType(after.dtype())), after.shape().DebugString());
      }
    }
    for (std::size_t i = 0; i < step.results.size(); ++i) {
      if (!step.results[i].valid()) {
        return errors::InvalidArgument("result ", i, " of the body is not valid");
      }
    }
    return OkStatus();
  }

  const Scope scope_;
  const Scope at_;  // for nodes that the program did not make itself
  const ScanOptions options_;
  const std::source_location where_;
  Output count_, all_;
  std::vector<PartialShape> state_shapes_;
  std::vector<TensorArray> rows_;
};

StatusOr<ScanResult> RunLoop(const Scope& scope, const std::vector<Output>& initial,
                             const std::vector<Output>& elements, const ScanFunction& f,
                             const ScanOptions& options, std::source_location where) {
  MR_RETURN_IF_ERROR(scope.status());
  return RowLoop(scope, options, where).Run(initial, elements, f);
}

}  // namespace

ScanResult Scan(const Scope& scope, const std::vector<Output>& initial,
                const std::vector<Output>& elements, const ScanFunction& f,
                const ScanOptions& options, std::source_location where) {
  StatusOr<ScanResult> result = RunLoop(scope.Named("scan"), initial, elements, f, options, where);
  if (result.ok()) return *std::move(result);
  scope.RecordError(Annotate(result.status(), " (of a Scan)"), where);
  return {};
}

std::vector<Output> MapFn(const Scope& scope, const std::vector<Output>& elements,
                          const RowFunction& f, const MapFnOptions& options,
                          std::source_location where) {
  ScanFunction body;
  if (f) {
    body = [&](const Scope& s, std::span<const Output>, std::span<const Output> row) {
      return ScanStep{{}, f(s, row)};
    };
  }
  StatusOr<ScanResult> result =
      RunLoop(scope.Named("map"), {}, elements, body,
              {.parallel_iterations = options.parallel_iterations}, where);
  if (result.ok()) return std::move(result->all);
  scope.RecordError(Annotate(result.status(), " (of a MapFn)"), where);
  return {};
}

}  // namespace millrace
