// SPDX-License-Identifier: Apache-2.0
// Checkpoints of tensors that are in no graph.
#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "millrace/checkpoint.h"

namespace millrace {

Status WriteTensors(const std::string& prefix, const std::map<std::string, Tensor>& tensors) {
  if (prefix.empty() || prefix.ends_with('/')) {
    return errors::InvalidArgument("'", prefix, "' is no prefix of a checkpoint's files");
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleWriter> writer,
                      BundleWriter::Create(PosixFileSystem(), prefix));
  for (const auto& [name, tensor] : tensors) {
    if (name.empty() || !tensor.IsInitialized()) {
      return errors::InvalidArgument("'", name, "' cannot be written to ", prefix, ": it has no ",
                                     name.empty() ? "name" : "value");
    }
    MR_RETURN_IF_ERROR(writer->Add(name, tensor));
  }
  return writer->Finish();
}

StatusOr<std::map<std::string, Tensor>> ReadTensors(const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                      CheckpointReader::Open(prefix));
  std::map<std::string, Tensor> tensors;
  for (const CheckpointReader::Entry& entry : reader->entries()) {
    MR_ASSIGN_OR_RETURN(tensors[entry.name], reader->Read(entry.name));
  }
  return tensors;
}

}  // namespace millrace
