// SPDX-License-Identifier: Apache-2.0
#include "io/filesystem.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "io/posix_files.h"
#include "io/uri.h"

namespace millrace {
Status FileError(int error, std::string_view what, const std::string& path) {
  const std::string text = StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return errors::NotFound(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return errors::PermissionDenied(text);
    case EEXIST:
      return errors::AlreadyExists(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return errors::ResourceExhausted(text);
    case ENOTEMPTY:
    case EISDIR:
      return errors::FailedPrecondition(text);
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return errors::InvalidArgument(text);
    case EIO:  // a broken disk is no lost task, from which a training would recover
      return errors::Unknown(text);
    default:
      return errors::Unavailable(text);
  }
}

namespace {

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Status Append(std::string_view bytes) override {
    if (buffer_.size() + bytes.size() <= kBufferSize) {
      buffer_.append(bytes);
      return OkStatus();
    }
    MR_RETURN_IF_ERROR(Flush());
    if (bytes.size() >= kBufferSize) return Write(bytes);
    buffer_.append(bytes);
    return OkStatus();
  }
  Status Flush() override {
    const Status status = Write(buffer_);
    buffer_.clear();
    return status;
  }
  Status Sync() override {
    MR_RETURN_IF_ERROR(Flush());
    if (::fsync(fd_) != 0) return FileError(errno, "sync", path_);
    return OkStatus();
  }
  Status Close() override {
    Status status = Flush();
    if (::close(fd_) != 0 && status.ok()) status = FileError(errno, "close", path_);
    fd_ = -1;
    return status;
  }

 private:
  static constexpr std::size_t kBufferSize = 256 << 10;

  Status Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0) {
        if (errno == EINTR) continue;
        return FileError(errno, "write", path_);
      }
      if (n == 0) return FileError(ENOSPC, "write", path_);
      bytes.remove_prefix(static_cast<std::size_t>(n));
      written_ += n;
    }
    StartWriteback();
    return OkStatus();
  }

  // The disk begins with what there is, so that a Sync at the end finds little left to do. Whether
  // it does is no matter: errors are those of Sync.
  void StartWriteback() {
#ifdef SYNC_FILE_RANGE_WRITE
    constexpr off_t kEvery = off_t{8} << 20;
    if (written_ - started_ < kEvery) return;
    (void)::sync_file_range(fd_, started_, written_ - started_, SYNC_FILE_RANGE_WRITE);
    started_ = written_;
#endif
  }

  const std::string path_;
  int fd_;
  std::string buffer_;
  off_t written_ = 0, started_ = 0;  // bytes; those whose way to the disk was started
};

class PosixRandomAccessFile : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixRandomAccessFile() override { ::close(fd_); }

  StatusOr<std::size_t> Read(uint64_t offset, std::size_t n, char* out) const override {
    std::size_t done = 0;
    while (done < n) {
      const ssize_t got = ::pread(fd_, out + done, n - done, static_cast<off_t>(offset + done));
      if (got < 0) {
        if (errno == EINTR) continue;
        return FileError(errno, "read", path_);
      }
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

 private:
  const std::string path_;
  const int fd_;
};

}  // namespace

std::unique_ptr<WritableFile> WritableFileOf(const std::string& path, int fd) {
  // Told to DeleteUnlessWritten; no harm where there are no locks.
  (void)::flock(fd, LOCK_SH | LOCK_NB);
  return std::make_unique<PosixWritableFile>(path, fd);
}

StatusOr<std::unique_ptr<RandomAccessFile>> RandomAccessFileOf(const std::string& path, int fd) {
  std::unique_ptr<RandomAccessFile> file(new PosixRandomAccessFile(path, fd));
  struct stat info;
  if (::fstat(fd, &info) != 0) return FileError(errno, "look at", path);
  // A directory says so when it is read.
  if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    return errors::FailedPrecondition("cannot read ", path,
                                      ": it is a pipe, a socket or a device; give a file");
  }
  return file;
}

namespace {

class Posix : public FileSystem {
 public:
  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    return OpenToWrite(path, O_TRUNC);
  }
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override {
    return OpenToWrite(path, O_APPEND);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) override {
    // A pipe without a writer would hold up who opens it.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FileError(errno, "open", path);
    return RandomAccessFileOf(path, fd);
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return FileError(errno, "look at", path);
    return static_cast<uint64_t>(info.st_size);
  }
  bool FileExists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }
  bool IsDirectory(const std::string& path) override {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
      return FileError(errno, StrCat("rename ", from, " to"), to);
    }
    return OkStatus();
  }
  Status Link(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) return OkStatus();
    const int error = errno;
    if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
      return errors::Unimplemented("cannot give ", from, " the second name ", to, ": ",
                                   std::strerror(error));
    }
    return FileError(error, StrCat("give ", from, " the second name"), to);
  }
  Status SyncPath(const std::string& path) override {
    const int fd = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FileError(errno, "open to sync", path);
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    // Some file systems keep no names that could be lost.
    if (error == 0 || (error == EINVAL && IsDirectory(path))) return OkStatus();
    return FileError(error, "sync", path);
  }
  Status DeleteFile(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return FileError(errno, "delete", path);
    return OkStatus();
  }
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return FileError(errno, "open", path);
    const int error = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    Status status;
    if (error == 0 && ::unlink(path.c_str()) != 0) status = FileError(errno, "delete", path);
    ::close(fd);
    if (!status.ok()) return status;
    return error == 0;
  }
  Status DeleteDirectory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return FileError(errno, "delete", path);
    return OkStatus();
  }
  Status CreateDirectories(const std::string& path) override {
    for (std::size_t end = 1; end <= path.size(); ++end) {
      if (end < path.size() && path[end] != '/') continue;
      const std::string prefix = path.substr(0, end);
      if (::mkdir(prefix.c_str(), 0777) == 0) {
        MR_RETURN_IF_ERROR(SyncPath(std::string(DirectoryName(prefix))));
      } else if (errno != EEXIST) {
        return FileError(errno, "make the directory", prefix);
      }
    }
    if (!path.empty() && !IsDirectory(path)) return FileError(ENOTDIR, "make", path);
    return OkStatus();
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return FileError(errno, "list", path);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    ::closedir(directory);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static StatusOr<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path, int flag) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flag, 0666);
    if (fd < 0) return FileError(errno, "open for writing", path);
    return WritableFileOf(path, fd);
  }
};

constexpr std::size_t kReadStep = std::size_t{16} << 20;

}  // namespace

StatusOr<std::string> FileSystem::ReadFile(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, NewRandomAccessFile(path));
  MR_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  // Files may state any size, those with holes for one: nothing is touched before it is there.
  std::string content;
  const Status room = Guarded([&]() -> Status {
    content.reserve(size);
    return OkStatus();
  });
  if (!room.ok()) {
    return errors::ResourceExhausted("cannot read ", path, ": it has ", size,
                                     " bytes, which do not fit into memory");
  }
  while (content.size() < size) {
    const std::size_t at = content.size(), step = std::min<uint64_t>(size - at, kReadStep);
    content.resize(at + step);
    MR_ASSIGN_OR_RETURN(const std::size_t read, file->Read(at, step, content.data() + at));
    content.resize(at + read);
    if (read < step) break;
  }
  return content;
}

Status FileSystem::WriteFileAtomically(const std::string& path, std::string_view content) {
  return Replace(path, content, /*durably=*/false);
}

Status FileSystem::WriteFileDurably(const std::string& path, std::string_view content) {
  return Replace(path, content, /*durably=*/true);
}

Status FileSystem::Replace(const std::string& path, std::string_view content, bool durably) {
  const std::string temporary = StrCat(path, kTemporarySuffix, RandomId());
  Status status = [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, NewWritableFile(temporary));
    MR_RETURN_IF_ERROR(file->Append(content));
    if (durably) MR_RETURN_IF_ERROR(file->Sync());
    MR_RETURN_IF_ERROR(file->Close());
    return Rename(temporary, path);
  }();
  if (!status.ok() && FileExists(temporary)) DeleteFile(temporary).IgnoreError();
  if (!status.ok() || !durably) return status;
  return SyncPath(std::string(DirectoryName(path)));
}

namespace {

std::atomic<FileSystem*>& Current() {
  static std::atomic<FileSystem*> current{NewUriFileSystem(std::make_unique<Posix>()).release()};
  return current;
}

}  // namespace

FileSystem* PosixFileSystem() { return Current().load(std::memory_order_acquire); }

// Declared in io/file_root.h: whoever only uses files does not see it.
void ReplacePosixFileSystem(FileSystem* files);
void ReplacePosixFileSystem(FileSystem* files) {
  Current().store(files, std::memory_order_release);
}

std::string_view DirectoryName(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return "";
  return slash == 0 ? path.substr(0, 1) : path.substr(0, slash);
}

std::string_view BaseName(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return StrCat(directory, directory.back() == '/' ? "" : "/", name);
}

}  // namespace millrace
