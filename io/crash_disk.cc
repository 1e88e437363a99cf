// SPDX-License-Identifier: Apache-2.0
#include "io/crash_disk.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

class Reader : public RandomAccessFile {
 public:
  explicit Reader(std::string content) : content_(std::move(content)) {}
  StatusOr<std::size_t> Read(uint64_t offset, std::size_t n, char* out) const override {
    if (offset >= content_.size()) return 0;
    return content_.copy(out, n, offset);
  }

 private:
  const std::string content_;
};

enum class Torn { kAll, kSynced, kHalf, kZeros };

std::string AfterLoss(const std::string& content, const std::string& synced, Torn torn) {
  const std::size_t kept = std::min(content.size(), synced.size());
  switch (torn) {
    case Torn::kAll:
      return content;
    case Torn::kSynced:
      return synced;
    case Torn::kHalf:
      return content.substr(0, kept + (content.size() - kept) / 2);
    case Torn::kZeros:
      return content.substr(0, kept) + std::string(content.size() - kept, '\0');
  }
  return content;
}

}  // namespace

class CrashDisk::Writer : public WritableFile {
 public:
  Writer(CrashDisk* disk, std::string path, File file)
      : disk_(disk), path_(std::move(path)), file_(std::move(file)) {
    ++file_->writers;
  }
  ~Writer() override { Release(); }

  Status Append(std::string_view bytes) override {
    const Status status = disk_->Operate("write", path_, /*needs_room=*/true);
    if (errors::IsResourceExhausted(status)) bytes = bytes.substr(0, bytes.size() / 2);
    if (!status.ok() && !errors::IsResourceExhausted(status)) return status;
    file_->content.append(bytes);
    disk_->Changed();
    return status;
  }
  Status Flush() override { return OkStatus(); }
  Status Sync() override {
    MR_RETURN_IF_ERROR(disk_->Operate("sync", path_));
    file_->synced = file_->content;
    disk_->Changed();
    return OkStatus();
  }
  Status Close() override {
    Release();
    return disk_->Operate("close", path_);
  }

 private:
  void Release() {
    if (file_ != nullptr) --file_->writers;
    file_ = nullptr;
  }
  CrashDisk* const disk_;
  const std::string path_;
  File file_;
};

CrashDisk::CrashDisk(const Contents& contents) {
  for (const auto& [path, content] : contents) {
    names_[path] = std::make_shared<Inode>(Inode{content, content, 0});
  }
  durable_ = names_;
}

void CrashDisk::Apply(const Change& change, Names* names) {
  if (!change.old_name.empty()) names->erase(change.old_name);
  if (change.name.empty()) return;
  if (change.file == nullptr) {
    names->erase(change.name);
  } else {
    (*names)[change.name] = change.file;
  }
}

void CrashDisk::Record(Change change) {
  Apply(change, &names_);
  pending_.push_back(std::move(change));
  Changed();
}

Status CrashDisk::Operate(std::string_view what, const std::string& path, bool needs_room) {
  const int number = operations++;
  if (fails_at < 0 || number < fails_at) return OkStatus();
  if (failure == Failure::kFull) {
    if (!needs_room) return OkStatus();
    return errors::ResourceExhausted("cannot ", what, " ", path, ": the disk is full");
  }
  if (number > fails_at) return OkStatus();
  return errors::Unavailable("cannot ", what, " ", path, ": the disk fails");
}

std::set<CrashDisk::Contents> CrashDisk::AfterPowerLoss(const std::string& directory) const {
  std::set<Contents> all;
  const auto in_question = [&](const Change& change) {
    return DirectoryName(change.name) == directory;
  };
  const auto changes = std::count_if(pending_.begin(), pending_.end(), in_question);
  for (std::size_t subset = 0; subset < std::size_t{1} << changes; ++subset) {
    Names names = durable_;
    int bit = 0;
    for (const Change& change : pending_) {
      if (!in_question(change) || (subset >> bit++ & 1)) Apply(change, &names);
    }
    for (const Torn torn : {Torn::kAll, Torn::kSynced, Torn::kHalf, Torn::kZeros}) {
      Contents contents;
      for (const auto& [name, file] : names) {
        contents[name] = AfterLoss(file->content, file->synced, torn);
      }
      all.insert(std::move(contents));
    }
  }
  return all;
}

CrashDisk::Contents CrashDisk::Now() const {
  Contents contents;
  for (const auto& [name, file] : names_) contents[name] = file->content;
  return contents;
}

StatusOr<std::unique_ptr<WritableFile>> CrashDisk::NewWritableFile(const std::string& path) {
  MR_RETURN_IF_ERROR(Operate("open for writing", path, /*needs_room=*/true));
  auto file = std::make_shared<Inode>();
  Record({path, "", file});
  return std::unique_ptr<WritableFile>(new Writer(this, path, file));
}

StatusOr<std::unique_ptr<WritableFile>> CrashDisk::NewAppendableFile(const std::string& path) {
  return errors::Unimplemented("append to ", path);
}

StatusOr<std::unique_ptr<RandomAccessFile>> CrashDisk::NewRandomAccessFile(
    const std::string& path) {
  const auto it = names_.find(path);
  if (it == names_.end()) return errors::NotFound(path);
  return std::unique_ptr<RandomAccessFile>(new Reader(it->second->content));
}

StatusOr<uint64_t> CrashDisk::FileSize(const std::string& path) {
  const auto it = names_.find(path);
  if (it == names_.end()) return errors::NotFound(path);
  return it->second->content.size();
}

Status CrashDisk::Rename(const std::string& from, const std::string& to) {
  MR_RETURN_IF_ERROR(Operate("rename", from));
  const auto it = names_.find(from);
  if (it == names_.end()) return errors::NotFound(from);
  Record({to, from, it->second});
  return OkStatus();
}

Status CrashDisk::Link(const std::string& from, const std::string& to) {
  if (!has_links) return errors::Unimplemented("files of this disk have one name");
  MR_RETURN_IF_ERROR(Operate("link", to, /*needs_room=*/true));
  const auto it = names_.find(from);
  if (it == names_.end()) return errors::NotFound(from);
  if (FileExists(to)) return errors::AlreadyExists(to);
  Record({to, "", it->second});
  return OkStatus();
}

Status CrashDisk::SyncPath(const std::string& path) {
  MR_RETURN_IF_ERROR(Operate("sync", path));
  if (const auto it = names_.find(path); it != names_.end()) {
    it->second->synced = it->second->content;
  } else {
    std::vector<Change> others;
    for (Change& change : pending_) {
      if (DirectoryName(change.name) == path) {
        Apply(change, &durable_);
      } else {
        others.push_back(std::move(change));
      }
    }
    pending_ = std::move(others);
  }
  Changed();
  return OkStatus();
}

Status CrashDisk::DeleteFile(const std::string& path) {
  MR_RETURN_IF_ERROR(Operate("delete", path));
  if (!FileExists(path)) return errors::NotFound(path);
  Record({path, "", nullptr});
  return OkStatus();
}

StatusOr<bool> CrashDisk::DeleteUnlessWritten(const std::string& path) {
  const auto it = names_.find(path);
  if (it == names_.end()) return errors::NotFound(path);
  if (it->second->writers > 0) return false;
  MR_RETURN_IF_ERROR(DeleteFile(path));
  return true;
}

StatusOr<std::vector<std::string>> CrashDisk::List(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& [name, file] : names_) {
    if (DirectoryName(name) == path) names.emplace_back(BaseName(name));
  }
  return names;
}

}  // namespace millrace
