// SPDX-License-Identifier: Apache-2.0
// One folder, outside of which this process opens no file for anybody.
#ifndef IO_FILE_ROOT_H_
#define IO_FILE_ROOT_H_

#include <memory>
#include <string>
#include <vector>

#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// The files of the system, but for paths that lead out of all `roots` (which exist, and are held
// open as they are now): calls with such a path end with PermissionDenied, which names it and the
// roots, but not where links lead, and look like a file that is not there where there is no status.
// Symbolic links, "." and ".." are resolved, in every part of a path, whether or not the file
// exists; what is found is opened from the root's own descriptor without following links, so that
// nobody who changes links meanwhile leads a call out. `walks`: as on kernels without openat2
// (before 5.6).
std::unique_ptr<FileSystem> NewConfinedFileSystem(std::vector<std::string> roots,
                                                  bool walks = false);

// The refusal of a path that leads out of the roots of `files`; OK for all others, and where files
// are not confined. For those who only see that a file is not there.
Status CheckNameable(FileSystem* files, const std::string& path);

// Confines PosixFileSystem(), and with it the files of all graphs and of the program, to `root` and
// `others` for the rest of the process. InvalidArgument if one is no folder; FailedPrecondition,
// naming both, if files are confined to other folders already. Thread-safe.
Status ConfineFiles(const std::string& root, const std::vector<std::string>& others = {});

// Defined beside PosixFileSystem(), which gives `files` from now on; it must live as long as the
// process. For ConfineFiles alone.
void ReplacePosixFileSystem(FileSystem* files);

}  // namespace millrace

#endif  // IO_FILE_ROOT_H_
