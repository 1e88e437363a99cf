// SPDX-License-Identifier: Apache-2.0
// Writes to files that go on beside training: one at a time, on a thread of its own.
#ifndef IO_BACKGROUND_WRITE_H_
#define IO_BACKGROUND_WRITE_H_

#include <functional>
#include <thread>

#include "millrace/status.h"

namespace millrace {

// One thread at a time.
class BackgroundWrite {
 public:
  BackgroundWrite() = default;
  // Waits. An error that nobody has asked for goes to the log.
  ~BackgroundWrite();
  BackgroundWrite(const BackgroundWrite&) = delete;
  BackgroundWrite& operator=(const BackgroundWrite&) = delete;

  // Begins when the one before has ended. ResourceExhausted if there is no thread for it.
  Status Start(std::function<Status()> write);
  // Waits. The error of the last write, once.
  Status Sync();
  // Waits. An error that nobody has asked for goes to the log.
  void SyncOrLog();
  // Waits, and leaves the error to Sync.
  void Wait();

 private:
  std::thread thread_;
  Status error_;  // of that thread; read after it was joined
};

}  // namespace millrace

#endif  // IO_BACKGROUND_WRITE_H_
