// SPDX-License-Identifier: Apache-2.0
// Opening files below a folder that is held open, whatever others do to its links meanwhile.
#ifndef IO_BENEATH_H_
#define IO_BENEATH_H_

#include <sys/types.h>

#include <string>

namespace millrace {

// A descriptor of a file; closed with it. A value that can be moved.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

// Opens `path`, relative to the folder `root` and without ".", ".." and empty parts ("" is the
// folder itself), as open(2) with these flags and O_CLOEXEC. No part may be a symbolic link: ELOOP.
// The kernel sees to it (openat2) where it can; else, or with `walks`, each part is opened in the
// one before it. A negative errno if it fails.
int OpenBeneath(int root, const std::string& path, int flags, mode_t mode, bool walks);

// Makes the folders of such a path that are not there, and writes their names to the disk. A
// descriptor of the last one, or a negative errno.
int MakeFoldersBeneath(int root, const std::string& path);

}  // namespace millrace

#endif  // IO_BENEATH_H_
