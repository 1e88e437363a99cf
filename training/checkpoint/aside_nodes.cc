// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/aside_nodes.h"

#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "millrace/ops.h"
#include "training/checkpoint/checkpoint_files.h"

namespace millrace {

AsideNodes MakeSaveAside(const Scope& scope, const std::string& filename,
                         std::span<const SaveItem> items, bool sharded,
                         const CheckpointLayout& layout) {
  AsideNodes made;
  std::vector<SaveItem> kept(items.begin(), items.end());
  const Scope taking = scope.Named("taken");
  for (SaveItem& item : kept) {
    if (item.value.op().type() == "Const") continue;
    const Scope here = taking.WithDevice(FileDevice(item.device));
    const DataType dtype = BaseType(item.value.dtype());
    made.taken.push_back(ops::GetSessionHandle(here, item.value));
    made.handles.push_back(Placeholder(here, kString, PartialShape(Shape())));
    item.value = ops::GetSessionTensor(here, made.handles.back(), dtype);
    made.drops.push_back(ops::DeleteSessionTensor(here, made.handles.back()));
  }
  made.filename = MakeFilename(scope, filename);
  made.saved = MakeSave(scope, made.filename, kept, sharded, &made.parts_folder, layout);
  return made;
}

StatusOr<std::unique_ptr<TakenValues>> TakenValues::Take(Session& session, const AsideNodes& nodes,
                                                         const RunOptions& options) {
  std::unique_ptr<TakenValues> values(new TakenValues);
  values->options_ = options;
  values->parts_folder_ = nodes.parts_folder;
  std::vector<Output> feeds = nodes.handles;
  MR_ASSIGN_OR_RETURN(values->drop_, session.MakeCallable(feeds, {}, nodes.drops, options));
  feeds.push_back(nodes.filename);
  MR_ASSIGN_OR_RETURN(values->write_,
                      session.MakeCallable(feeds, std::span(&nodes.saved, 1), {}, options));
  if (nodes.taken.empty()) return values;
  MR_ASSIGN_OR_RETURN(values->handles_, session.Run({}, nodes.taken, {}, options));
  return values;
}

TakenValues::~TakenValues() {
  if (handles_.empty()) return;
  const Status status = drop_.Run(handles_, options_).status();
  if (!status.ok()) MR_LOG(kInfo, "values of a save stay with its session: ", Message(status));
}

Status TakenValues::Write(const std::string& prefix) const {
  MR_ASSIGN_OR_RETURN(const auto claim, WriterClaim::Make(prefix));
  std::optional<PartsFolder> parts;
  if (!parts_folder_.empty()) parts.emplace(prefix + parts_folder_);
  std::vector<Tensor> feeds = handles_;
  feeds.push_back(Tensor::String(prefix));
  return write_.Run(feeds, options_).status();
}

}  // namespace millrace
