// SPDX-License-Identifier: Apache-2.0
#include "io/uri.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::string_view kMark = "://";

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsOfScheme(char c) { return IsLetter(c) || (c >= '0' && c <= '9') || c == '.'; }

class UriFileSystem : public FileSystem {
 public:
  explicit UriFileSystem(std::unique_ptr<FileSystem> files) : files_(std::move(files)) {}

  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->NewWritableFile(local);
  }
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->NewAppendableFile(local);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->NewRandomAccessFile(local);
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->FileSize(local);
  }
  bool FileExists(const std::string& path) override {
    const StatusOr<std::string> local = LocalPath(path);
    return local.ok() && files_->FileExists(*local);
  }
  bool IsDirectory(const std::string& path) override {
    const StatusOr<std::string> local = LocalPath(path);
    return local.ok() && files_->IsDirectory(*local);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    MR_ASSIGN_OR_RETURN(const std::string local_from, LocalPath(from));
    MR_ASSIGN_OR_RETURN(const std::string local_to, LocalPath(to));
    return files_->Rename(local_from, local_to);
  }
  Status Link(const std::string& from, const std::string& to) override {
    MR_ASSIGN_OR_RETURN(const std::string local_from, LocalPath(from));
    MR_ASSIGN_OR_RETURN(const std::string local_to, LocalPath(to));
    return files_->Link(local_from, local_to);
  }
  Status SyncPath(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->SyncPath(local);
  }
  Status DeleteFile(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->DeleteFile(local);
  }
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->DeleteUnlessWritten(local);
  }
  Status DeleteDirectory(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->DeleteDirectory(local);
  }
  Status CreateDirectories(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->CreateDirectories(local);
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
    return files_->List(local);
  }

 private:
  const std::unique_ptr<FileSystem> files_;
};

}  // namespace

std::string_view SchemeOf(std::string_view path) {
  const std::size_t end = path.find(kMark);
  if (end == std::string_view::npos || end == 0) return "";
  const std::string_view scheme = path.substr(0, end);
  return IsLetter(scheme[0]) && std::all_of(scheme.begin(), scheme.end(), IsOfScheme) ? scheme : "";
}

StatusOr<std::string> LocalPath(std::string_view path) {
  const std::string_view scheme = SchemeOf(path);
  if (scheme.empty()) return std::string(path);
  if (scheme != "file") {
    return errors::Unimplemented("File system scheme '", scheme, "' not implemented (file: '",
                                 CEscape(path), "')");
  }
  const std::string_view rest = path.substr(scheme.size() + kMark.size());
  const std::string_view host = rest.substr(0, rest.find('/'));
  if (!host.empty() && host != "localhost") {
    return errors::InvalidArgument("'", CEscape(path), "' names a file of the host '",
                                   CEscape(host), "': files of this machine are file:///path");
  }
  const std::string_view local = rest.substr(host.size());
  return std::string(local.empty() ? "/" : local);
}

std::unique_ptr<FileSystem> NewUriFileSystem(std::unique_ptr<FileSystem> files) {
  return std::make_unique<UriFileSystem>(std::move(files));
}

}  // namespace millrace
