// SPDX-License-Identifier: Apache-2.0
// Checkpoints as lists of tensors, for programs that look into files.
#include <algorithm>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "millrace/checkpoint.h"
#include "training/checkpoint/object_names.h"

namespace millrace {

struct CheckpointReader::Impl {
  std::unique_ptr<BundleReader> bundle;
  std::vector<Entry> entries;
  std::set<int> files;  // that have anything

  // Parts of tensors have entries of their own under keys that are no names.
  Status Fill() {
    std::set<std::string> part_keys;
    for (const BundleReader::Entry& e : bundle->entries()) {
      for (const pb::TensorSliceProto& slice : e.proto.slices()) {
        part_keys.insert(EncodeSliceKey(e.key, TensorSlice::FromProto(slice)));
      }
    }
    for (const BundleReader::Entry& e : bundle->entries()) {
      if (part_keys.contains(e.key)) continue;
      Entry entry;
      entry.name = e.key;
      MR_RETURN_IF_ERROR(bundle->Lookup(e.key, &entry.dtype, &entry.shape));
      entry.parts = std::max(1, e.proto.slices_size());
      std::set<int> of_entry;
      if (e.proto.slices_size() == 0) {
        entry.bytes = e.proto.size();
        of_entry.insert(e.proto.shard_id());
      }
      for (const pb::TensorSliceProto& slice : e.proto.slices()) {
        const auto* part = bundle->Find(EncodeSliceKey(e.key, TensorSlice::FromProto(slice)));
        if (part == nullptr) continue;
        entry.bytes += part->size();
        of_entry.insert(part->shard_id());
      }
      entry.files.assign(of_entry.begin(), of_entry.end());
      files.insert(of_entry.begin(), of_entry.end());
      entries.push_back(std::move(entry));
    }
    return OkStatus();
  }
};

CheckpointReader::CheckpointReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointReader::~CheckpointReader() = default;

StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const std::string& prefix) {
  auto impl = std::make_unique<Impl>();
  MR_ASSIGN_OR_RETURN(impl->bundle, BundleReader::Open(PosixFileSystem(), prefix));
  MR_RETURN_IF_ERROR(impl->Fill());
  return std::unique_ptr<CheckpointReader>(new CheckpointReader(std::move(impl)));
}

const std::vector<CheckpointReader::Entry>& CheckpointReader::entries() const {
  return impl_->entries;
}

const CheckpointReader::Entry* CheckpointReader::Find(const std::string& name) const {
  const auto it = std::lower_bound(impl_->entries.begin(), impl_->entries.end(), name,
                                   [](const Entry& e, const std::string& n) { return e.name < n; });
  return it != impl_->entries.end() && it->name == name ? &*it : nullptr;
}

int CheckpointReader::num_files() const { return static_cast<int>(impl_->files.size()); }

StatusOr<Tensor> CheckpointReader::Read(const std::string& name, const std::string& slice) const {
  if (slice.empty()) return impl_->bundle->Read(name);
  DataType dtype;
  Shape shape;
  MR_RETURN_IF_ERROR(impl_->bundle->Lookup(name, &dtype, &shape));
  return impl_->bundle->Restore(name, slice, dtype);
}

StatusOr<std::string> CheckpointReader::ObjectGraph() const {
  MR_ASSIGN_OR_RETURN(const pb::TrackableObjectGraph graph, ReadObjectGraph(*impl_->bundle));
  return graph.SerializeAsString();
}

}  // namespace millrace
