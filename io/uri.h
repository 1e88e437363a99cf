// SPDX-License-Identifier: Apache-2.0
// Names of files that say where the file is: "file:///tmp/x", "gs://bucket/x".
#ifndef IO_URI_H_
#define IO_URI_H_

#include <memory>
#include <string>
#include <string_view>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// What stands before "://" where that is a scheme (a letter, then letters, digits and dots); ""
// elsewhere.
std::string_view SchemeOf(std::string_view path);

// The path of a file of this machine: what follows "file://", with "localhost" or without, and what
// has no scheme as it is. Unimplemented "File system scheme 'gs' not implemented (file:
// 'gs://bucket/x')" for other schemes, InvalidArgument for other hosts.
StatusOr<std::string> LocalPath(std::string_view path);

// `files`, whose paths may be such names. Where there is no status a file that is not local is not
// there. Thread-safe as `files` are.
std::unique_ptr<FileSystem> NewUriFileSystem(std::unique_ptr<FileSystem> files);

}  // namespace millrace

#endif  // IO_URI_H_
