// SPDX-License-Identifier: Apache-2.0
#include "summary/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <ctime>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/record_writer.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host(name);
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

// Ten digits, so that the order of the names is that of time.
std::string Seconds() {
  const std::string digits = StrCat(static_cast<int64_t>(std::time(nullptr)));
  return std::string(digits.size() < 10 ? 10 - digits.size() : 0, '0') + digits;
}

std::string NewPath(FileSystem* files, const std::string& directory, const std::string& suffix) {
  static std::atomic<uint64_t> files_of_process{0};
  const std::string start = JoinPath(
      directory, StrCat("events.out.tfevents.", Seconds(), ".", HostName(), ".", getpid(), "."));
  // Containers may share a directory and have the same names and numbers.
  while (true) {
    std::string path = StrCat(start, files_of_process.fetch_add(1), suffix);
    if (!files->FileExists(path)) return path;
  }
}

}  // namespace

StatusOr<std::unique_ptr<EventFile>> EventFile::Create(FileSystem* files,
                                                       const std::string& directory,
                                                       const std::string& suffix, Options options) {
  MR_RETURN_IF_ERROR(files->CreateDirectories(directory));
  std::string path = NewPath(files, directory, suffix);
  MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->NewWritableFile(path));
  return std::make_unique<EventFile>(std::move(path), std::move(file), options);
}

EventFile::EventFile(std::string path, std::unique_ptr<WritableFile> file, Options options)
    : path_(std::move(path)),
      options_(options),
      file_(std::move(file)),
      thread_([this] { Write(); }) {}

EventFile::~EventFile() { Close().IgnoreError(); }

Status EventFile::Append(std::string_view record) {
  MutexLock lock(&mu_);
  while (status_.ok() && !closed_ && !queue_.empty() &&
         static_cast<int64_t>(queue_.size() + record.size()) > options_.max_queue_bytes) {
    progress_.Wait(&mu_);
  }
  if (!status_.ok()) return status_;
  if (closed_) {
    return errors::FailedPrecondition("the event file ", path_,
                                      " is closed: create another EventWriter to write more");
  }
  AppendRecord(record, &queue_);
  ++appended_;
  work_.Signal();
  return OkStatus();
}

Status EventFile::Flush() {
  MutexLock lock(&mu_);
  const uint64_t wanted = appended_;
  flush_asked_ = std::max(flush_asked_, wanted);
  work_.Signal();
  while (status_.ok() && flushed_ < wanted) progress_.Wait(&mu_);
  return status_;
}

Status EventFile::Close() {
  MutexLock join(&join_mu_);
  {
    MutexLock lock(&mu_);
    closed_ = true;
    work_.Signal();
    progress_.SignalAll();
  }
  if (thread_.joinable()) {
    thread_.join();
    const Status closed = file_->Close();
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = closed;
  }
  MutexLock lock(&mu_);
  return status_;
}

void EventFile::Write() {
  std::string batch;
  Clock::time_point flush_at;  // where something is not flushed
  bool unflushed = false;
  MutexLock lock(&mu_);
  while (true) {
    while (queue_.empty() && !closed_ && flush_asked_ <= flushed_) {
      if (!unflushed) {
        work_.Wait(&mu_);
      } else if (!work_.WaitUntil(&mu_, flush_at)) {
        break;
      }
    }
    if (closed_ && queue_.empty() && !unflushed) return;
    const uint64_t taken = appended_;
    batch.clear();
    std::swap(batch, queue_);
    if (!batch.empty() && !unflushed) {
      unflushed = true;
      flush_at = Clock::now() + options_.flush_interval;
    }
    const bool flush = closed_ || flush_asked_ > flushed_ || Clock::now() >= flush_at;
    progress_.SignalAll();

    mu_.Unlock();
    Status status = file_->Append(batch);
    if (flush && status.ok()) status = file_->Flush();
    mu_.Lock();

    if (flush) {
      unflushed = false;
      flushed_ = taken;
    }
    if (status_.ok() && !status.ok()) {
      status_ = Annotate(status, "; no further events are written to this file");
    }
    progress_.SignalAll();
    // What was written in part would make what follows unreadable.
    if (!status_.ok()) return;
  }
}

}  // namespace millrace
