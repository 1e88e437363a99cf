// SPDX-License-Identifier: Apache-2.0
// A disk in memory for tests: says what may be left of it when the power is lost, and fails any
// operation on demand.
#ifndef IO_CRASH_DISK_H_
#define IO_CRASH_DISK_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "io/filesystem.h"

namespace millrace {

// One thread. Directories need not be made.
class CrashDisk : public FileSystem {
 public:
  using Contents = std::map<std::string, std::string>;  // by path

  CrashDisk() = default;
  explicit CrashDisk(const Contents& contents);

  // Called after every operation that changes something.
  std::function<void()> after_change;
  // Operations that may fail, counted; that of number `fails_at` does, with the path in its text:
  // it alone (Unavailable), or it and all after it that need room (ResourceExhausted; of a write
  // that does not fit half the bytes are there).
  enum class Failure { kOnce, kFull };
  int operations = 0;
  int fails_at = -1;
  Failure failure = Failure::kOnce;
  bool has_links = true;

  // What there may be after a loss of power now. Of what was not synced, each change of a name in
  // `directory` may be there or not (those in others are), and files may have all of their bytes,
  // those that were synced, half of the others, or zeros for them.
  std::set<Contents> AfterPowerLoss(const std::string& directory) const;
  Contents Now() const;

  StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override;
  StatusOr<std::unique_ptr<WritableFile>> NewAppendableFile(const std::string& path) override;
  StatusOr<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(const std::string& path) override;
  StatusOr<uint64_t> FileSize(const std::string& path) override;
  bool FileExists(const std::string& path) override { return names_.contains(path); }
  bool IsDirectory(const std::string&) override { return true; }
  Status Rename(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status SyncPath(const std::string& path) override;
  Status DeleteFile(const std::string& path) override;
  StatusOr<bool> DeleteUnlessWritten(const std::string& path) override;
  Status DeleteDirectory(const std::string&) override { return OkStatus(); }
  Status CreateDirectories(const std::string&) override { return OkStatus(); }
  StatusOr<std::vector<std::string>> List(const std::string& path) override;

 private:
  struct Inode {
    std::string content;
    std::string synced;
    int writers = 0;
  };
  using File = std::shared_ptr<Inode>;
  // A change of names: a rename is one of two.
  struct Change {
    std::string name, old_name;  // "": none
    File file;                   // what `name` stands for afterwards; null: nothing
  };
  class Writer;
  using Names = std::map<std::string, File>;

  static void Apply(const Change& change, Names* names);
  Status Operate(std::string_view what, const std::string& path, bool needs_room = false);
  void Record(Change change);
  void Changed() {
    if (after_change) after_change();
  }

  Names names_, durable_;
  std::vector<Change> pending_;  // not synced
};

}  // namespace millrace

#endif  // IO_CRASH_DISK_H_
