// SPDX-License-Identifier: Apache-2.0
// One process of a job: started with an environment of its own, its output read line by line.
#ifndef TOOLS_RUN_CHILD_H_
#define TOOLS_RUN_CHILD_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace::run {

// Leads a process group of its own, so that a terminal's Ctrl-C reaches it through its parent only,
// and is killed when its parent ends. Not thread-safe.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // kills the group if it still runs

  // Starts `command` (looked up in PATH), with these variables besides the parent's. NotFound or
  // PermissionDenied, naming the program, if it cannot be run.
  Status Start(const std::vector<std::string>& command,
               const std::map<std::string, std::string>& variables);

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  // Of its stdout and stderr, for poll(); -1 once both are closed.
  int output() const { return output_; }
  // Gives `line` each line that has come. What is longer than 64 KiB comes in pieces.
  void ReadLines(const std::function<void(std::string_view line)>& line);
  // True once it has ended: wait_status() says how, as of waitpid. What else runs in its group is
  // killed then.
  bool Reap();
  int wait_status() const { return wait_status_; }
  // To the group. Nothing if it has ended.
  void Signal(int number);

 private:
  void CloseOutput();

  pid_t pid_ = -1;
  int output_ = -1;
  std::string tail_;  // an incomplete last line
  int wait_status_ = 0;
};

// As a shell says it: the exit code, or 128 and the signal.
int ExitCodeOf(int wait_status);

}  // namespace millrace::run

#endif  // TOOLS_RUN_CHILD_H_
