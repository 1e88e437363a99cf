// SPDX-License-Identifier: Apache-2.0
// Files of the operating system that somebody has opened already.
#ifndef IO_POSIX_FILES_H_
#define IO_POSIX_FILES_H_

#include <memory>
#include <string>
#include <string_view>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// What a failed call of the system says: "cannot WHAT PATH: ..." under the code that fits `error`,
// an errno.
Status FileError(int error, std::string_view what, const std::string& path);

// Take the descriptor, which was opened to write or append, or to read without waiting; `path` is
// for errors. FailedPrecondition if what was opened to read is a pipe, a socket or a device.
std::unique_ptr<WritableFile> WritableFileOf(const std::string& path, int fd);
StatusOr<std::unique_ptr<RandomAccessFile>> RandomAccessFileOf(const std::string& path, int fd);

}  // namespace millrace

#endif  // IO_POSIX_FILES_H_
