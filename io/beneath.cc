// SPDX-License-Identifier: Apache-2.0
#include "io/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace millrace {
namespace {

constexpr int kFolder = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// A link is opened, and not refused, by O_PATH | O_NOFOLLOW.
int RefuseLink(int fd, int flags) {
  struct stat info{};
  if ((flags & O_PATH) == 0) return fd;
  const int error = fstat(fd, &info) != 0 ? errno : S_ISLNK(info.st_mode) ? ELOOP : 0;
  if (error == 0) return fd;
  close(fd);
  return -error;
}

int OpenPart(int folder, const std::string& part, int flags, mode_t mode) {
  const int fd = openat(folder, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode);
  return fd < 0 ? -errno : RefuseLink(fd, flags);
}

int Walk(int root, const std::string& path, int flags, mode_t mode) {
  Descriptor at;
  std::string last = ".";
  for (const std::string_view part : StrSplit(path, '/')) {
    if (part.empty()) continue;
    if (last != ".") {
      const int folder = OpenPart(at.get() >= 0 ? at.get() : root, last, kFolder, 0);
      if (folder < 0) return folder;
      at = Descriptor(folder);
    }
    last = part;
  }
  return OpenPart(at.get() >= 0 ? at.get() : root, last, flags, mode);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int OpenBeneath(int root, const std::string& path, int flags, mode_t mode, bool walks) {
  static std::atomic<bool> has_openat2{true};
  if (walks || !has_openat2.load(std::memory_order_relaxed)) return Walk(root, path, flags, mode);
  open_how how{};
  how.flags = static_cast<decltype(how.flags)>(flags | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const std::string& name = path.empty() ? "." : path;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const long fd = syscall(SYS_openat2, root, name.c_str(), &how, sizeof(how));
    if (fd >= 0) return static_cast<int>(fd);
    // EAGAIN: something was renamed meanwhile, and the kernel could not tell. Who goes on renaming
    // must not keep the call here.
    if (errno == EINTR || errno == EAGAIN) continue;
    // Sandboxes refuse calls that they do not know with EPERM.
    const int error = errno;
    if (error != ENOSYS && error != EPERM) return -error;
    const int walked = Walk(root, path, flags, mode);
    if (error == ENOSYS || walked >= 0) has_openat2.store(false, std::memory_order_relaxed);
    return walked;
  }
  return Walk(root, path, flags, mode);
}

int MakeFoldersBeneath(int root, const std::string& path) {
  Descriptor at(OpenPart(root, ".", kFolder, 0));
  if (at.get() < 0) return at.Release();
  for (const std::string_view text : StrSplit(path, '/')) {
    if (text.empty()) continue;
    const std::string part(text);
    if (mkdirat(at.get(), part.c_str(), 0777) == 0) {
      const Descriptor readable(openat(at.get(), ".", O_RDONLY | O_CLOEXEC));
      // Some file systems keep no names that could be lost.
      if (readable.get() >= 0 && fsync(readable.get()) != 0 && errno != EINVAL) return -errno;
    } else if (errno != EEXIST) {
      return -errno;
    }
    const int next = OpenPart(at.get(), part, kFolder, 0);
    if (next < 0) return next;
    at = Descriptor(next);
  }
  return at.Release();
}

}  // namespace millrace
