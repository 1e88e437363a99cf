// SPDX-License-Identifier: Apache-2.0
// A child process whose output comes through pipes.
#ifndef EXAMPLES_MNIST_CHILD_PROCESS_H_
#define EXAMPLES_MNIST_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "millrace/status.h"

namespace millrace::mnist {

// The program itself run once more with other arguments. The child is in a process group of
// its own (Ctrl-C reaches it through the launcher only) and dies with this process.
struct ChildProcess {
  std::string name;  // "worker/0"
  pid_t pid = -1;
  int output_fd = -1;                      // its stdout and stderr; not blocking
  int progress_fd = -1;                    // its progress records; not blocking
  std::string output_tail, progress_tail;  // incomplete last lines
  std::string last_line;                   // the last line it printed
  bool running = false;
  int wait_status = 0;  // as of waitpid, once it has ended
};

// `args` without the program's name. The child finds the other end of progress_fd under the
// number that "--progress_fd=" in its arguments says; it is appended here.
Status StartChild(const std::string& name, std::vector<std::string> args, ChildProcess* child);

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_CHILD_PROCESS_H_
