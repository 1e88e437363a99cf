// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/admission.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/function_library.h"
#include "ops/custom/custom_ops.h"
#include "session/forwarding_worker.h"

namespace millrace {

namespace {

constexpr std::string_view kCapabilities[] = {"file_read", "file_write", "environment", "network",
                                              "custom_code"};
constexpr unsigned kEverything = (1u << std::size(kCapabilities)) - 1;

unsigned BitOf(std::string_view capability) {
  const auto* const at = std::find(std::begin(kCapabilities), std::end(kCapabilities), capability);
  return at == std::end(kCapabilities) ? 0 : 1u << (at - std::begin(kCapabilities));
}

// In order of names. Also ops that have no kernel here, so that whoever adds one need not remember
// this table. A cache of a data set is in memory alone, whatever its file is called.
struct Capability {
  std::string_view op, capability;
};
constexpr Capability kOps[] = {
    {"CreateSummaryDbWriter", "file_write"},
    {"CreateSummaryFileWriter", "file_write"},
    {"EagerPyFunc", "custom_code"},
    {"ExperimentalCSVDataset", "file_read"},
    {"FixedLengthRecordDataset", "file_read"},
    {"FixedLengthRecordDatasetV2", "file_read"},
    {"FixedLengthRecordReader", "file_read"},
    {"FixedLengthRecordReaderV2", "file_read"},
    {"GenerateVocabRemapping", "file_read"},
    {"InitializeTableFromTextFile", "file_read"},
    {"InitializeTableFromTextFileV2", "file_read"},
    {"LMDBDataset", "file_read"},
    {"LMDBReader", "file_read"},
    {"LoadAndRemapMatrix", "file_read"},
    {"LoadDataset", "file_read"},
    {"MatchingFiles", "file_read"},
    {"MatchingFilesDataset", "file_read"},
    {"MergeV2Checkpoints", "file_write"},
    {"PyFunc", "custom_code"},
    {"PyFuncStateless", "custom_code"},
    {"ReadFile", "file_read"},
    {"Restore", "file_read"},
    {"RestoreSlice", "file_read"},
    {"RestoreV2", "file_read"},
    {"Save", "file_write"},
    {"SaveDataset", "file_write"},
    {"SaveDatasetV2", "file_write"},
    {"SaveSlices", "file_write"},
    {"SaveV2", "file_write"},
    {"SnapshotDataset", "file_write"},
    {"SnapshotDatasetV2", "file_write"},
    {"SqlDataset", "file_read"},
    {"TFRecordDataset", "file_read"},
    {"TFRecordDatasetV2", "file_read"},
    {"TFRecordReader", "file_read"},
    {"TFRecordReaderV2", "file_read"},
    {"TextLineDataset", "file_read"},
    {"TextLineReader", "file_read"},
    {"TextLineReaderV2", "file_read"},
    {"WholeFileReader", "file_read"},
    {"WholeFileReaderV2", "file_read"},
    {"WriteFile", "file_write"},
};
// No op twice: one of the two rows would be read, whatever the other says.
static_assert(std::adjacent_find(std::begin(kOps), std::end(kOps),
                                 [](const Capability& a, const Capability& b) {
                                   return a.op >= b.op;
                                 }) == std::end(kOps));

class AdmittingWorker final : public ForwardingWorker {
 public:
  AdmittingWorker(WorkerInterface* worker, std::string task, const Admission& admission)
      : ForwardingWorker(worker), task_(std::move(task)), admission_(admission) {}

  void RegisterGraphAsync(const CallOptions& options, RegisterGraphArgs args,
                          std::string* graph_handle, Done done) override {
    const Status admitted = args.graph == nullptr ? OkStatus() : admission_.Check(*args.graph);
    if (!admitted.ok()) return done(Annotate(admitted, StrCat(" (", task_, ")")));
    ForwardingWorker::RegisterGraphAsync(options, std::move(args), graph_handle, std::move(done));
  }

 private:
  const std::string task_;
  const Admission admission_;
};

}  // namespace

std::string_view CapabilityOf(std::string_view op) {
  const auto* const at =
      std::lower_bound(std::begin(kOps), std::end(kOps), op,
                       [](const Capability& row, std::string_view name) { return row.op < name; });
  if (at != std::end(kOps) && at->op == op) return at->capability;
  // Nobody here knows what the code of a loaded library does.
  return IsCustomOp(op) ? "custom_code" : "";
}

StatusOr<Admission> Admission::Parse(const std::vector<std::string>& allow) {
  Admission admission;
  for (const std::string& word : allow) {
    if (word == "none") continue;
    const unsigned bits = word == "all" ? kEverything : BitOf(word);
    if (bits == 0) {
      return errors::InvalidArgument("--allow: '", CEscape(word), "' is none of all, none, ",
                                     StrJoin(kCapabilities, ", "));
    }
    admission.allowed_ |= bits;
  }
  return admission;
}

Admission Admission::All() {
  Admission admission;
  admission.allowed_ = kEverything;
  return admission;
}

Admission Admission::AllButFileWrite() {
  Admission admission = All();
  admission.allowed_ &= ~BitOf("file_write");
  return admission;
}

bool Admission::allows_all() const { return allowed_ == kEverything; }

bool Admission::Allows(std::string_view capability) const {
  return (allowed_ & BitOf(capability)) != 0;
}

Status Admission::CheckOp(std::string_view op, const std::string& where) const {
  const std::string_view capability = CapabilityOf(op);
  if (capability.empty() || (allowed_ & BitOf(capability)) != 0) return OkStatus();
  // The flag says all that is allowed, so that what is allowed now has to be in it again.
  std::string flag = StrCat("--allow=", capability);
  for (const std::string_view word : kCapabilities) {
    if (Allows(word)) StrAppend(&flag, ",", word);
  }
  return errors::PermissionDenied(where, " is a ", op, ", which needs ", capability,
                                  ", and this task does not allow it: start the task with ", flag,
                                  allowed_ == 0 ? "" : " (which keeps what it allows now)",
                                  capability == "file_write" ? ", or with a --file_root" : "");
}

Status Admission::Check(const DataflowGraph& graph) const {
  if (allows_all()) return OkStatus();
  for (const Node* node : graph.OpNodes()) {
    MR_RETURN_IF_ERROR(CheckOp(node->type(), StrCat("node '", node->name(), "'")));
  }
  if (graph.library() == nullptr) return OkStatus();
  for (const auto& function : graph.library()->functions()) {
    for (const std::string& op : function->mentions) {
      if (CapabilityOf(op).empty()) continue;
      std::string where = StrCat("function '", function->name(), "'");
      for (const pb::NodeDef& node : function->def.node_def()) {
        if (node.op() == op) where = StrCat("node '", node.name(), "' of ", where);
      }
      MR_RETURN_IF_ERROR(CheckOp(op, where));
    }
  }
  return OkStatus();
}

std::unique_ptr<WorkerInterface> NewAdmittingWorker(WorkerInterface* worker, std::string task,
                                                    const Admission& admission) {
  return std::make_unique<AdmittingWorker>(worker, std::move(task), admission);
}

}  // namespace millrace
