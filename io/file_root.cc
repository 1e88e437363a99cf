#include "io/file_root.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// As many as the kernel follows.
constexpr int kMostLinks = 40;

// The parts of `path` before those that `parts` holds already.
void Prepend(std::string_view path, std::deque<std::string>* parts) {
  const std::vector<std::string_view> split = StrSplit(path, '/');
  for (auto part = split.rbegin(); part != split.rend(); ++part) {
    if (!part->empty() && *part != ".") parts->emplace_front(*part);
  }
}

// Where an absolute path leads; its last parts need not exist. "" if links go round in circles.
std::string Resolve(const std::string& path) {
  std::deque<std::string> parts;
  Prepend(path, &parts);
  std::string at;  // without links; "" is "/"
  for (int links = 0; !parts.empty();) {
    const std::string part = std::move(parts.front());
    parts.pop_front();
    if (part == "..") {
      at.resize(std::min(at.rfind('/'), at.size()));
      continue;
    }
    const std::string next = at + "/" + part;
    struct stat file{};
    if (lstat(next.c_str(), &file) != 0 || !S_ISLNK(file.st_mode)) {
      at = next;
      continue;
    }
    char target[PATH_MAX];
    const ssize_t size = readlink(next.c_str(), target, sizeof(target));
    if (size <= 0 || ++links > kMostLinks) return "";
    if (target[0] == '/') at.clear();
    Prepend(std::string_view(target, static_cast<std::size_t>(size)), &parts);
  }
  return at.empty() ? "/" : at;
}

bool IsWithin(const std::string& path, const std::string& root) {
  return path == root || root == "/" ||
         (path.size() > root.size() && path.starts_with(root) && path[root.size()] == '/');
}

class Confined : public FileSystem {
 public:
  Confined(FileSystem* base, std::vector<std::string> roots)
      : base_(base), roots_(std::move(roots)) {}

  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->NewWritableFile(path);
  }
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->NewAppendableFile(path);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->NewRandomAccessFile(path);
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->FileSize(path);
  }
  bool FileExists(const std::string& path) override {
    return Check(path).ok() && base_->FileExists(path);
  }
  bool IsDirectory(const std::string& path) override {
    return Check(path).ok() && base_->IsDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    MR_RETURN_IF_ERROR(Check(from));
    MR_RETURN_IF_ERROR(Check(to));
    return base_->Rename(from, to);
  }
  Status Link(const std::string& from, const std::string& to) override {
    MR_RETURN_IF_ERROR(Check(from));
    MR_RETURN_IF_ERROR(Check(to));
    return base_->Link(from, to);
  }
  Status SyncPath(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->SyncPath(path);
  }
  Status DeleteFile(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->DeleteFile(path);
  }
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->DeleteUnlessWritten(path);
  }
  Status DeleteDirectory(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->DeleteDirectory(path);
  }
  Status CreateDirectories(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->CreateDirectories(path);
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    MR_RETURN_IF_ERROR(Check(path));
    return base_->List(path);
  }

 private:
  Status Check(const std::string& path) const {
    std::string absolute = path;
    if (!path.starts_with('/')) {
      char here[PATH_MAX];
      if (getcwd(here, sizeof(here)) == nullptr) {
        return errors::PermissionDenied("cannot tell where '", path, "' is");
      }
      absolute = StrCat(here, "/", path);
    }
    // What the system would cut off there.
    const bool whole = absolute.find('\0') == std::string::npos;
    const std::string leads = whole ? Resolve(absolute) : "";
    if (!leads.empty() && std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) {
          return IsWithin(leads, root);
        })) {
      return OkStatus();
    }
    return errors::PermissionDenied(
        "'", CEscape(path), "' ", leads.empty() ? "leads nowhere" : StrCat("leads to ", leads),
        ", and this task opens files in ", StrJoin(roots_, ", "),
        " only: name one there, or start the task with another --file_root");
  }

  FileSystem* const base_;
  const std::vector<std::string> roots_;
};

struct Confinement {
  Mutex mu;
  std::vector<std::string> roots ABSL_GUARDED_BY(mu);
};

}  // namespace

std::unique_ptr<FileSystem> NewConfinedFileSystem(FileSystem* base,
                                                  std::vector<std::string> roots) {
  for (std::string& root : roots) root = Resolve(root);
  return std::make_unique<Confined>(base, std::move(roots));
}

Status ConfineFiles(const std::string& root, const std::vector<std::string>& others) {
  static auto* const confinement = new Confinement;
  std::vector<std::string> roots;
  for (const std::string& folder : others) {
    char* const real = realpath(folder.c_str(), nullptr);
    if (real != nullptr) roots.emplace_back(real);
    std::free(real);
  }
  char* const real = realpath(root.c_str(), nullptr);
  struct stat file{};
  const bool is_folder = real != nullptr && stat(real, &file) == 0 && S_ISDIR(file.st_mode);
  if (is_folder) roots.insert(roots.begin(), real);
  std::free(real);
  if (!is_folder) return errors::InvalidArgument("--file_root: ", root, " is not a folder");
  MutexLock lock(&confinement->mu);
  if (confinement->roots == roots) return OkStatus();
  if (!confinement->roots.empty()) {
    return errors::FailedPrecondition(
        "the files of this process are confined to ", StrJoin(confinement->roots, ", "),
        " already; all of its servers have the same --file_root, not ", root);
  }
  confinement->roots = roots;
  // Never destroyed: whoever has it may use it as long as the process lives.
  ReplacePosixFileSystem(NewConfinedFileSystem(PosixFileSystem(), std::move(roots)).release());
  return OkStatus();
}

}  // namespace millrace
