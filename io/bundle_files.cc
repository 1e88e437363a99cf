// SPDX-License-Identifier: Apache-2.0
#include "io/bundle_files.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/tensor_bundle.h"

namespace millrace {
namespace {

// More names in a row than that are not taken by saves that run at the same time.
constexpr int kMostTries = 100;

constexpr int kNoIndex = -1;

// The number of shards that the index of a prefix states, which is part of the names of all its
// data files; kNoIndex if there is none, no value if it cannot be read.
std::optional<int> ShardsInUse(FileSystem* fs, const std::string& prefix) {
  if (!fs->FileExists(BundleIndexName(prefix))) return kNoIndex;
  const auto reader = BundleReader::Open(fs, prefix);
  if (!reader.ok()) return std::nullopt;
  return (*reader)->header().num_shards();
}

std::string_view TakeDigits(std::string_view* text) {
  const std::string_view digits = text->substr(0, text->find_first_not_of("0123456789"));
  text->remove_prefix(digits.size());
  return digits;
}

bool Take(std::string_view* text, std::string_view expected) {
  if (!text->starts_with(expected)) return false;
  text->remove_prefix(expected.size());
  return true;
}

// True for data files of the prefix with another number of shards, and for what is or was on its
// way to be one of its files.
bool IsLeftOver(std::string_view name, std::string_view prefix, int shards_in_use) {
  if (!Take(&name, prefix)) return false;
  if (Take(&name, ".index")) return name.starts_with(kTemporarySuffix);
  if (!Take(&name, ".data-") || TakeDigits(&name).empty() || !Take(&name, "-of-")) return false;
  const std::string_view digits = TakeDigits(&name);
  if (digits.empty()) return false;
  if (!name.empty()) return name.starts_with(kTemporarySuffix);
  int64_t shards = 0;
  return ParseInt64(digits, &shards) && shards != shards_in_use;
}

}  // namespace

NewDataFiles::NewDataFiles(FileSystem* fs, std::string prefix)
    : fs_(fs), prefix_(std::move(prefix)), old_shards_(ShardsInUse(fs, prefix_)) {}

NewDataFiles::~NewDataFiles() {
  if (!kept_) TakeBack();
}

Status NewDataFiles::Name(const std::vector<std::string>& files) {
  const int least = static_cast<int>(files.size());
  Status status;
  for (num_shards_ = least; num_shards_ < least + kMostTries; ++num_shards_) {
    if (num_shards_ == old_shards_) continue;  // the old bundle stays as it is
    status = TryNames(files);
    if (status.ok()) return fs_->SyncPath(std::string(DirectoryName(prefix_)));
    TakeBack();
    if (!errors::IsAlreadyExists(status)) return status;
  }
  return status;
}

Status NewDataFiles::TryNames(const std::vector<std::string>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = BundleDataName(prefix_, static_cast<int>(i), num_shards_);
    // What a killed save left. Beside an index that cannot be read, it may be anything.
    if (fs_->FileExists(name) && !(old_shards_ && fs_->DeleteUnlessWritten(name).value_or(false))) {
      return errors::AlreadyExists(name, " is there, and is none of this save's files");
    }
    MR_RETURN_IF_ERROR(NameOne(files[i], name));
  }
  return OkStatus();
}

Status NewDataFiles::NameOne(const std::string& file, const std::string& name) {
  Status status = fs_->Link(file, name);
  const bool has_both = !errors::IsUnimplemented(status);
  if (!has_both) status = fs_->Rename(file, name);
  if (status.ok()) named_.push_back({file, name, has_both});
  return status;
}

void NewDataFiles::TakeBack() {
  // The index may be in place although its writer was told of an error.
  const std::optional<int> in_use = ShardsInUse(fs_, prefix_);
  for (const Named& file : named_) {
    if (!in_use || *in_use == num_shards_) continue;
    const Status status =
        file.has_both ? fs_->DeleteFile(file.now) : fs_->Rename(file.now, file.before);
    if (!status.ok()) MR_LOG(kInfo, "left after a save that failed: ", Message(status));
  }
  named_.clear();
}

void NewDataFiles::Keep() {
  kept_ = true;
  for (const Named& file : named_) {
    const Status status = file.has_both ? fs_->DeleteFile(file.before) : OkStatus();
    if (!status.ok()) MR_LOG(kInfo, "left after a save: ", Message(status));
  }
  const std::string directory(DirectoryName(prefix_));
  const auto names = fs_->List(directory.empty() ? "." : directory);
  const std::optional<int> in_use = ShardsInUse(fs_, prefix_);
  if (!names.ok() || !in_use) return;
  for (const std::string& name : *names) {
    if (!IsLeftOver(name, BaseName(prefix_), *in_use)) continue;
    const StatusOr<bool> deleted = fs_->DeleteUnlessWritten(JoinPath(directory, name));
    if (!deleted.ok()) MR_LOG(kInfo, "left by an earlier save: ", Message(deleted.status()));
  }
}

}  // namespace millrace
