// SPDX-License-Identifier: Apache-2.0
// Files, as the rest of the engine sees them: checkpoints, records and events are read and
// written through here, so that a test may fail or delay any of it by decorating a FileSystem.
#ifndef IO_FILESYSTEM_H_
#define IO_FILESYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// Errors carry the path: NotFound, PermissionDenied, AlreadyExists, ResourceExhausted (no
// space), Unavailable (the disk) otherwise.

// Written from start to end by one thread at a time. Destroying it without Close drops what is
// still buffered.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Append(std::string_view bytes) = 0;
  // Hands everything to the operating system.
  virtual Status Flush() = 0;
  // Flush, and waits until it is on the disk.
  virtual Status Sync() = 0;
  // Flush, then no other calls.
  virtual Status Close() = 0;
};

// Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads up to `n` bytes at `offset`; the number read is less than `n` only at the end of the
  // file.
  virtual StatusOr<std::size_t> Read(uint64_t offset, std::size_t n, char* out) const = 0;
};

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Truncates a file that exists.
  virtual StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(
      const std::string& path) = 0;
  virtual StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  virtual bool FileExists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // Replaces `to` in one step.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // A second name for a file. AlreadyExists if there is a file `to`, Unimplemented where files
  // have one name only.
  virtual Status Link(const std::string& from, const std::string& to) = 0;
  // Waits until the content of a file, or the names in a directory, are on the disk: what was
  // written, made, renamed and deleted before may be lost with the power until then, in any order.
  virtual Status SyncPath(const std::string& path) = 0;
  virtual Status DeleteFile(const std::string& path) = 0;
  // False if some process of this machine has it open as a WritableFile; then it stays.
  virtual StatusOr<bool> DeleteUnlessWritten(const std::string& path) = 0;
  // Only if it is empty: FailedPrecondition otherwise.
  virtual Status DeleteDirectory(const std::string& path) = 0;
  // And its parents, on the disk; one that exists is not an error.
  virtual Status CreateDirectories(const std::string& path) = 0;
  // Names (without the path) in a directory, sorted.
  virtual StatusOr<std::vector<std::string>> List(const std::string& path) = 0;

  // Composed of the calls above.
  StatusOr<std::string> ReadFile(const std::string& path);
  // Under a temporary name first, then renamed: readers see the old content or the new.
  Status WriteFileAtomically(const std::string& path, std::string_view content);
  // The same, also for those who read after the power was lost; on the disk when it returns.
  Status WriteFileDurably(const std::string& path, std::string_view content);

 private:
  Status Replace(const std::string& path, std::string_view content, bool durably);
};

// What the names of files end with, before a number, that are not complete yet.
inline constexpr char kTemporarySuffix[] = ".tempstate";

// The files of the machine, by path or as "file:///path"; other schemes are Unimplemented
// (io/uri.h). Never destroyed.
FileSystem* PosixFileSystem();

// The part up to the last '/', without it; "" if there is none. The part after it.
std::string_view DirectoryName(std::string_view path);
std::string_view BaseName(std::string_view path);
std::string JoinPath(std::string_view directory, std::string_view name);

}  // namespace millrace

#endif  // IO_FILESYSTEM_H_
