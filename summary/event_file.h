// SPDX-License-Identifier: Apache-2.0
// An event file and the thread that writes it. EventWriter makes the events; here they are bytes.
#ifndef SUMMARY_EVENT_FILE_H_
#define SUMMARY_EVENT_FILE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"
#include "io/filesystem.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe, but for destruction.
class EventFile {
 public:
  struct Options {
    int64_t max_queue_bytes;
    std::chrono::milliseconds flush_interval;
  };
  // A new file in `directory`, which is made if there is none.
  static StatusOr<std::unique_ptr<EventFile>> Create(FileSystem* files,
                                                     const std::string& directory,
                                                     const std::string& suffix, Options options);
  // `path` is for messages.
  EventFile(std::string path, std::unique_ptr<WritableFile> file, Options options);
  ~EventFile();

  // Appends a record. Waits while there is no room in the queue; into an empty one goes a record of
  // any size. The first error of the disk, from then on; FailedPrecondition after Close.
  Status Append(std::string_view record);
  Status Flush();
  Status Close();

  const std::string& path() const { return path_; }

 private:
  void Write();  // the thread

  const std::string path_;
  const Options options_;
  const std::unique_ptr<WritableFile> file_;  // used by the thread alone while it runs

  Mutex mu_;
  CondVar work_;      // there is something to write, to flush, or the end
  CondVar progress_;  // the queue was taken, or everything asked for was flushed
  std::string queue_ ABSL_GUARDED_BY(mu_);  // records as they lie in the file
  uint64_t appended_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t flush_asked_ ABSL_GUARDED_BY(mu_) = 0;  // of appended_
  uint64_t flushed_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);
  Mutex join_mu_;  // before mu_
  std::thread thread_ ABSL_GUARDED_BY(join_mu_);
};

}  // namespace millrace

#endif  // SUMMARY_EVENT_FILE_H_
