// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_files.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "io/uri.h"

namespace millrace {
namespace {

bool IsDigitOrMark(char c) { return (c >= '0' && c <= '9') || c == '?'; }

// "-00000-of-00004" at the end, or with question marks: its length, else 0.
std::size_t PartTail(const std::string& name) {
  constexpr std::string_view kOf = "-of-";
  std::size_t end = name.size();
  while (end > 0 && IsDigitOrMark(name[end - 1])) --end;
  if (end == name.size() || end < kOf.size()) return 0;
  if (std::string_view(name).substr(end - kOf.size(), kOf.size()) != kOf) return 0;
  const std::size_t of = end - kOf.size();
  std::size_t begin = of;
  while (begin > 0 && IsDigitOrMark(name[begin - 1])) --begin;
  return begin < of && begin > 0 && name[begin - 1] == '-' ? name.size() - begin + 1 : 0;
}

// PREFIX.data-00000-of-00001 and so on.
std::vector<std::string> DataFiles(const std::string& prefix) {
  std::vector<std::string> files;
  const std::string directory(DirectoryName(prefix));
  const std::string start = StrCat(BaseName(prefix), ".data-");
  const StatusOr<std::vector<std::string>> names = PosixFileSystem()->List(
      directory.empty() ? (prefix.starts_with('/') ? "/" : ".") : directory);
  if (!names.ok()) return files;
  for (const std::string& name : *names) {
    if (name.starts_with(start) && PartTail(name) == name.size() - start.size() + 1) {
      files.push_back(prefix.substr(0, prefix.size() - BaseName(prefix).size()) + name);
    }
  }
  return files;
}

constexpr std::chrono::hours kAbandoned{1};
// A file is not open for a moment before it gets its name.
constexpr std::chrono::minutes kUnlocked{1};

// What follows the base of a prefix: nothing, or a number, "-20".
bool IsNumber(std::string_view text) {
  return text.empty() ||
         (text[0] == '-' && text.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// "model.ckpt-20_temp_" and 32 hexadecimal digits (save_nodes.cc).
constexpr std::size_t kDigits = 32;

bool IsPartsFolder(const std::string& name, std::string_view base) {
  constexpr std::string_view kTemp = "_temp_";
  if (!name.starts_with(base) || name.size() < base.size() + kTemp.size() + kDigits) return false;
  const std::size_t digits = name.size() - kDigits;
  if (name.find_first_not_of("0123456789abcdef", digits) != std::string::npos) return false;
  if (std::string_view(name).substr(digits - kTemp.size(), kTemp.size()) != kTemp) return false;
  return IsNumber(std::string_view(name).substr(base.size(), digits - kTemp.size() - base.size()));
}

// "model.ckpt-20.data-00000-of-00001.tempstate123", and the same of an index.
bool IsTemporaryFile(std::string_view name, std::string_view base) {
  const std::size_t suffix = name.rfind(kTemporarySuffix);
  if (!name.starts_with(base) || suffix == std::string_view::npos || suffix < base.size()) {
    return false;
  }
  const std::string_view digits = name.substr(suffix + std::string_view(kTemporarySuffix).size());
  const std::string_view between = name.substr(base.size(), suffix - base.size());
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos &&
         IsNumber(between.substr(0, between.find('.')));
}

constexpr char kOwner[] = "owner";
constexpr std::string_view kClaim = ".writer";

// "model.ckpt-20.writer"
bool IsClaim(std::string_view name, std::string_view base) {
  return name.starts_with(base) && name.ends_with(kClaim) &&
         name.size() >= base.size() + kClaim.size() &&
         IsNumber(name.substr(base.size(), name.size() - kClaim.size() - base.size()));
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

bool IsOlderThan(const std::filesystem::path& path, std::chrono::seconds age) {
  std::error_code error;
  const auto touched = std::filesystem::last_write_time(path, error);
  return !error && touched < std::filesystem::file_time_type::clock::now() - age;
}

// Whether nobody writes into a folder of parts any more.
bool IsAbandoned(const std::string& folder) {
  FileSystem* const fs = PosixFileSystem();
  const std::string owner = JoinPath(folder, kOwner);
  const StatusOr<std::string> host = fs->ReadFile(owner);
  if (host.ok() && !host->empty() && *host == HostName()) {
    const StatusOr<bool> deleted = fs->DeleteUnlessWritten(owner);
    return deleted.ok() && *deleted;
  }
  return IsOlderThan(folder, kAbandoned);
}

}  // namespace

PartsFolder::PartsFolder(std::string path) : path_(std::move(path)) {
  // Without it the folder is as one of another machine.
  FileSystem* const fs = PosixFileSystem();
  if (!fs->CreateDirectories(path_).ok()) return;
  auto owner = fs->NewWritableFile(JoinPath(path_, kOwner));
  if (!owner.ok()) return;
  owner_ = *std::move(owner);
  if (!owner_->Append(HostName()).ok() || !owner_->Flush().ok()) owner_.reset();
}

PartsFolder::~PartsFolder() {
  // A task that heard of no failure yet still writes. Under another name its files are not there
  // for it to put in place, and none appears while the others are being deleted.
  const std::string other =
      StrCat(path_.substr(0, path_.size() - kDigits), Hex16(RandomId()), Hex16(RandomId()));
  std::error_code error;
  std::filesystem::rename(path_, other, error);
  std::filesystem::remove_all(error ? path_ : other, error);
}

StatusOr<std::unique_ptr<WriterClaim>> WriterClaim::Make(const std::string& prefix) {
  constexpr int kTries = 10;
  FileSystem* const fs = PosixFileSystem();
  const std::string path = StrCat(prefix, kClaim);
  const std::string temporary = StrCat(path, kTemporarySuffix, RandomId());
  std::unique_ptr<WriterClaim> none;
  const std::string directory(DirectoryName(prefix));
  if (!directory.empty() && !fs->CreateDirectories(directory).ok()) return none;
  auto file = fs->NewWritableFile(temporary);
  if (!file.ok()) return none;
  const std::string who = StrCat("process ", ::getpid(), " of ", HostName());
  Status status = (*file)->Append(who);
  if (status.ok()) status = (*file)->Flush();
  // Under its name it is locked from the first moment.
  for (int i = 0; status.ok() && i < kTries; ++i) {
    status = fs->Link(temporary, path);
    if (!errors::IsAlreadyExists(status)) break;
    const StatusOr<bool> was_left = fs->DeleteUnlessWritten(path);
    if (was_left.ok() && !*was_left) {
      fs->DeleteFile(temporary).IgnoreError();
      return errors::FailedPrecondition(
          fs->ReadFile(path).value_or("another process"), " is writing the checkpoint ", prefix,
          ", and nothing is written by ", who, "; let one of them save, or each to its own prefix");
    }
    status = OkStatus();  // its process lives no more
  }
  fs->DeleteFile(temporary).IgnoreError();
  if (!status.ok()) return none;
  return std::unique_ptr<WriterClaim>(new WriterClaim(path, *std::move(file)));
}

WriterClaim::~WriterClaim() { PosixFileSystem()->DeleteFile(path_).IgnoreError(); }

void DeleteAbandonedParts(const std::string& prefix) {
  const std::string directory(DirectoryName(prefix));
  const auto names = PosixFileSystem()->List(directory.empty() ? "." : directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(directory, name);
    if (IsPartsFolder(name, BaseName(prefix)) && IsAbandoned(path)) {
      std::error_code error;
      std::filesystem::remove_all(path, error);
      MR_LOG(kInfo, "deleted ", path, ", which a save that was killed has left");
    } else if (IsClaim(name, BaseName(prefix)) ||
               (IsTemporaryFile(name, BaseName(prefix)) && IsOlderThan(path, kUnlocked))) {
      PosixFileSystem()->DeleteUnlessWritten(path).status().IgnoreError();
    }
  }
}

double NowSeconds() { return static_cast<double>(WallMicros()) * 1e-6; }

std::optional<double> CheckpointTime(const std::string& prefix) {
  for (const std::string& file : {BundleIndexName(prefix), prefix}) {
    const StatusOr<std::string> local = LocalPath(file);
    if (!local.ok()) continue;
    std::error_code error;
    const auto time = std::filesystem::last_write_time(*local, error);
    if (error || std::filesystem::is_directory(*local, error)) continue;
    const auto system = std::chrono::file_clock::to_sys(time).time_since_epoch();
    return std::chrono::duration<double>(system).count();
  }
  return std::nullopt;
}

std::string MetaGraphFilename(const std::string& prefix, const std::string& suffix) {
  return StrCat(prefix.substr(0, prefix.size() - PartTail(prefix)), ".", suffix);
}

bool CheckpointExists(const std::string& prefix) {
  FileSystem* const fs = PosixFileSystem();
  return fs->FileExists(BundleIndexName(prefix)) ||
         (!prefix.empty() && fs->FileExists(prefix) && !fs->IsDirectory(prefix));
}

bool CheckpointIsComplete(const std::string& prefix) {
  FileSystem* const fs = PosixFileSystem();
  const auto reader = BundleReader::Open(fs, prefix);
  if (!reader.ok()) return false;
  // Only those that hold something: a checkpoint that took the place of another one under its name
  // counts one more than it has (io/bundle_files.h).
  std::map<int, uint64_t> needed;
  for (const BundleReader::Entry& entry : (*reader)->entries()) {
    // One that was written again has fewer data files than their names say.
    if (entry.proto.size() == 0) continue;
    uint64_t& size = needed[entry.proto.shard_id()];
    size = std::max(size, static_cast<uint64_t>(entry.proto.offset() + entry.proto.size()));
  }
  for (const auto& [shard, size] : needed) {
    const auto have = fs->FileSize(BundleDataName(prefix, shard, (*reader)->header().num_shards()));
    if (!have.ok() || *have < size) return false;
  }
  return true;
}

Status RemoveCheckpoint(const std::string& prefix, const std::string& meta_graph_suffix) {
  FileSystem* const fs = PosixFileSystem();
  if (!CheckpointExists(prefix)) {
    return errors::NotFound("there is no checkpoint ", prefix, " to delete");
  }
  // The index goes first: what has none is no checkpoint, whatever ends the process here.
  const std::string index = BundleIndexName(prefix);
  if (fs->FileExists(index)) {
    MR_RETURN_IF_ERROR(fs->DeleteFile(index));
    for (const std::string& file : DataFiles(prefix)) MR_RETURN_IF_ERROR(fs->DeleteFile(file));
  } else {
    MR_RETURN_IF_ERROR(fs->DeleteFile(prefix));
  }
  const std::string meta = MetaGraphFilename(prefix, meta_graph_suffix);
  return fs->FileExists(meta) ? fs->DeleteFile(meta) : OkStatus();
}

void RemoveOldCheckpoint(const std::string& prefix, const std::string& meta_graph_suffix) {
  const Status removed = RemoveCheckpoint(prefix, meta_graph_suffix);
  if (!removed.ok() && !errors::IsNotFound(removed)) {
    MR_LOG(kWarning, "Ignoring: ", Message(removed));
  }
}

}  // namespace millrace
