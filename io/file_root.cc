// SPDX-License-Identifier: Apache-2.0
#include "io/file_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/beneath.h"
#include "io/posix_files.h"
#include "io/uri.h"

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
  Confined(std::vector<std::string> roots, bool walks) : roots_(std::move(roots)), walks_(walks) {
    for (const std::string& root : roots_) {
      folders_.emplace_back(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
  }

  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    return OpenToWrite(path, O_TRUNC);
  }
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override {
    return OpenToWrite(path, O_APPEND);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) override {
    MR_ASSIGN_OR_RETURN(Descriptor file, Open(path, O_RDONLY | O_NONBLOCK, "open"));
    return RandomAccessFileOf(path, file.Release());
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const Descriptor file, Open(path, O_PATH, "look at"));
    struct stat info{};
    if (fstat(file.get(), &info) != 0) return FileError(errno, "look at", path);
    return static_cast<uint64_t>(info.st_size);
  }
  bool FileExists(const std::string& path) override { return Open(path, O_PATH, "").ok(); }
  bool IsDirectory(const std::string& path) override {
    return Open(path, O_PATH | O_DIRECTORY, "").ok();
  }
  Status Rename(const std::string& from, const std::string& to) override {
    MR_ASSIGN_OR_RETURN(const Entry source, Find(from));
    MR_ASSIGN_OR_RETURN(const Entry target, Find(to));
    if (renameat(source.folder.get(), source.name.c_str(), target.folder.get(),
                 target.name.c_str()) == 0) {
      return OkStatus();
    }
    return FileError(errno, StrCat("rename ", from, " to"), to);
  }
  Status Link(const std::string& from, const std::string& to) override {
    MR_ASSIGN_OR_RETURN(const Entry source, Find(from));
    MR_ASSIGN_OR_RETURN(const Entry target, Find(to));
    if (linkat(source.folder.get(), source.name.c_str(), target.folder.get(), target.name.c_str(),
               0) == 0) {
      return OkStatus();
    }
    const int error = errno;
    if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
      return errors::Unimplemented("cannot give ", from, " the second name ", to, ": ",
                                   std::strerror(error));
    }
    return FileError(error, StrCat("give ", from, " the second name"), to);
  }
  Status SyncPath(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const Descriptor file, Open(path, O_RDONLY | O_NONBLOCK, "open to sync"));
    if (fsync(file.get()) == 0) return OkStatus();
    const int error = errno;
    // Some file systems keep no names that could be lost.
    if (error == EINVAL && IsDirectory(path)) return OkStatus();
    return FileError(error, "sync", path);
  }
  Status DeleteFile(const std::string& path) override { return Delete(path, 0); }
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const Entry entry, Find(path));
    const Descriptor file(OpenBeneath(entry.folder.get(), entry.name, O_RDWR, 0, walks_));
    if (file.get() < 0) return FileError(-file.get(), "open", path);
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
    if (unlinkat(entry.folder.get(), entry.name.c_str(), 0) != 0) {
      return FileError(errno, "delete", path);
    }
    return true;
  }
  Status DeleteDirectory(const std::string& path) override { return Delete(path, AT_REMOVEDIR); }
  Status CreateDirectories(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const Place place, Locate(path));
    const Descriptor made(MakeFoldersBeneath(place.root, place.path));
    return made.get() < 0 ? Failed(-made.get(), "make the directory", path) : OkStatus();
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(Descriptor folder, Open(path, O_RDONLY | O_DIRECTORY, "list"));
    DIR* const directory = fdopendir(folder.get());
    if (directory == nullptr) return FileError(errno, "list", path);
    (void)folder.Release();  // closed with the directory
    std::vector<std::string> names;
    while (const dirent* entry = readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    closedir(directory);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  // Where a path leads: below which root.
  struct Place {
    int root = -1;
    std::string path{};
  };
  // A name in a folder that is held open.
  struct Entry {
    Descriptor folder{};
    std::string name{};
  };

  StatusOr<Place> Locate(const std::string& path) const {
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
    for (std::size_t i = 0; !leads.empty() && i < roots_.size(); ++i) {
      if (!IsWithin(leads, roots_[i])) continue;
      const std::size_t prefix = roots_[i] == "/" ? 0 : roots_[i].size();
      std::string rest = leads.substr(std::min(prefix, leads.size()));
      rest.erase(0, rest.find_first_not_of('/'));
      return Place{folders_[i].get(), std::move(rest)};
    }
    // Where it leads is nobody's business: links would tell what there is elsewhere.
    return errors::PermissionDenied(
        "'", CEscape(path), "' ",
        leads.empty() ? "leads nowhere" : "is elsewhere, by itself or by links on its way",
        ": this task opens files in ", StrJoin(roots_, ", "),
        " only (--file_root): name one there, or start the task with another --file_root");
  }

  Status Failed(int error, std::string_view what, const std::string& path) const {
    if (error != ELOOP && error != EXDEV) return FileError(error, what, path);
    return errors::PermissionDenied("cannot ", what, " '", CEscape(path),
                                    "': a link on its way was changed meanwhile, and this task "
                                    "opens files in ",
                                    StrJoin(roots_, ", "), " only (--file_root)");
  }

  StatusOr<Descriptor> Open(const std::string& path, int flags, std::string_view what) const {
    MR_ASSIGN_OR_RETURN(const Place place, Locate(path));
    Descriptor file(OpenBeneath(place.root, place.path, flags, 0666, walks_));
    if (file.get() < 0) return Failed(-file.get(), what, path);
    return file;
  }

  // A link is renamed or deleted itself, and must lead to a root all the same.
  StatusOr<Entry> Find(const std::string& path) const {
    MR_RETURN_IF_ERROR(Locate(path).status());
    std::string_view text = path;
    while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
    Entry entry;
    entry.name = BaseName(text);
    if (entry.name.empty() || entry.name == "." || entry.name == "..") {
      return errors::InvalidArgument("'", CEscape(path), "' does not end with a name");
    }
    const std::string_view folder = DirectoryName(text);
    MR_ASSIGN_OR_RETURN(const Place place, Locate(folder.empty() ? "." : std::string(folder)));
    entry.folder = Descriptor(OpenBeneath(place.root, place.path, O_PATH | O_DIRECTORY, 0, walks_));
    if (entry.folder.get() < 0) return Failed(-entry.folder.get(), "open the folder of", path);
    return entry;
  }

  StatusOr<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path, int flag) const {
    MR_ASSIGN_OR_RETURN(Descriptor file, Open(path, O_WRONLY | O_CREAT | flag, "open for writing"));
    return WritableFileOf(path, file.Release());
  }

  Status Delete(const std::string& path, int flags) const {
    MR_ASSIGN_OR_RETURN(const Entry entry, Find(path));
    if (unlinkat(entry.folder.get(), entry.name.c_str(), flags) == 0) return OkStatus();
    return FileError(errno, "delete", path);
  }

  const std::vector<std::string> roots_;
  const bool walks_;
  std::vector<Descriptor> folders_;  // of the roots
};

struct Confinement {
  Mutex mu;
  std::vector<std::string> roots ABSL_GUARDED_BY(mu);
};

}  // namespace

std::unique_ptr<FileSystem> NewConfinedFileSystem(std::vector<std::string> roots, bool walks) {
  for (std::string& root : roots) root = Resolve(root);
  return std::make_unique<Confined>(std::move(roots), walks);
}

Status CheckNameable(FileSystem* files, const std::string& path) {
  Status seen = files->FileSize(path).status();
  const bool is_ours = errors::IsPermissionDenied(seen) &&
                       Message(seen).find("(--file_root)") != std::string_view::npos;
  return is_ours ? std::move(seen) : OkStatus();
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
  ReplacePosixFileSystem(NewUriFileSystem(NewConfinedFileSystem(std::move(roots))).release());
  return OkStatus();
}

}  // namespace millrace
