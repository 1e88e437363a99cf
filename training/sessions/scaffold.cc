#include "base/status_macros.h"
#include "millrace/monitored_session.h"
#include "millrace/saver.h"
#include "millrace/variables.h"

namespace millrace {

Status Scaffold::Finalize(Graph& graph) {
  MR_RETURN_IF_ERROR(graph.status());
  // With a name of its own in each call: a graph may be trained in one session after the other.
  const Scope s = graph.root().Named("scaffold");
  if (!init_op.valid()) init_op = InitializeVariables(s);
  if (!local_init_op.valid()) local_init_op = InitializeVariables(s, kLocalVariables);
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
