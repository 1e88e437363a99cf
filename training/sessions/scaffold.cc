// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/monitored_session.h"
#include "millrace/saver.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

// What `given` is set to from the collection unless it is set: an op, or an output.
template <typename Part>
Status TakeFrom(const Graph& graph, const char* collection, Part* given) {
  if (given->valid()) return OkStatus();
  const std::vector<Output> items = graph.collection(collection);
  if (items.size() > 1) {
    return errors::InvalidArgument(
        "More than one item in the collection \"", collection,
        "\". Please indicate which one to use by setting Scaffold::", collection);
  }
  if (!items.empty()) *given = items.front();
  return OkStatus();
}

Operation InitializeLocals(const Scope& s, const Graph& graph) {
  const Operation variables = InitializeVariables(s, kLocalVariables);
  const std::vector<Output> tables = graph.collection(kTableInitializers);
  if (tables.empty()) return variables;
  std::vector<Operation> all(tables.begin(), tables.end());
  all.push_back(variables);
  return Group(s.WithOpName("local_init"), all);
}

}  // namespace

Status Scaffold::Finalize(Graph& graph) {
  MR_RETURN_IF_ERROR(graph.status());
  MR_RETURN_IF_ERROR(TakeFrom(graph, kInitOp, &init_op));
  MR_RETURN_IF_ERROR(TakeFrom(graph, kReadyOp, &ready_op));
  MR_RETURN_IF_ERROR(TakeFrom(graph, kReadyForLocalInitOp, &ready_for_local_init_op));
  MR_RETURN_IF_ERROR(TakeFrom(graph, kLocalInitOp, &local_init_op));
  MR_RETURN_IF_ERROR(TakeFrom(graph, kSummaryOp, &summary_op));
  // With a name of its own in each call: a graph may be trained in one session after the other.
  const Scope s = graph.root().Named("scaffold");
  if (!init_op.valid()) init_op = InitializeVariables(s);
  if (!local_init_op.valid()) local_init_op = InitializeLocals(s, graph);
  if (!ready_for_local_init_op.valid()) ready_for_local_init_op = ReportUninitializedVariables(s);
  if (!ready_op.valid()) {
    const Output local = ReportUninitializedVariables(s, kLocalVariables);
    ready_op = ops::ConcatV2(s, {ReportUninitializedVariables(s), local}, 0);
  }
  if (!summary_op.valid()) {
    const std::vector<Output> summaries = graph.collection(kSummaries);
    if (!summaries.empty()) {
      summary_op = ops::MergeSummary(s, std::vector<Input>(summaries.begin(), summaries.end()));
    }
  }
  if (saver == nullptr && needs_saver) {
    SaverOptions options;
    options.sharded = true;
    options.allow_empty = true;
    MR_ASSIGN_OR_RETURN(saver, Saver::Create(graph, options));
  }
  return graph.status();
}

}  // namespace millrace
