// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/child_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/child_process.h"
#include "base/errors.h"

namespace millrace::mnist {
namespace {

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeChild(pid_t parent, int output, char* const* argv) {
  EnterChild(parent, output);
  execv("/proc/self/exe", argv);
  _exit(127);
}

}  // namespace

Status StartChild(const std::string& name, std::vector<std::string> args, ChildProcess* child) {
  int output[2], progress[2];
  if (pipe2(output, O_CLOEXEC) != 0) {
    return errors::Internal("cannot make a pipe for ", name, ": ", std::strerror(errno));
  }
  if (pipe2(progress, O_CLOEXEC) != 0) {
    close(output[0]);
    close(output[1]);
    return errors::Internal("cannot make a pipe for ", name, ": ", std::strerror(errno));
  }
  fcntl(progress[1], F_SETFD, 0);  // the one descriptor that the child inherits by number
  args.insert(args.begin(), "mnist_replica");
  args.push_back("--progress_fd=" + std::to_string(progress[1]));
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(parent, output[1], argv.data());
  close(output[1]);
  close(progress[1]);
  if (pid < 0) {
    close(output[0]);
    close(progress[0]);
    return errors::Internal("cannot start ", name, ": ", std::strerror(errno));
  }
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  fcntl(progress[0], F_SETFL, O_NONBLOCK);
  child->name = name;
  child->pid = pid;
  child->output_fd = output[0];
  child->progress_fd = progress[0];
  child->running = true;
  return OkStatus();
}

}  // namespace millrace::mnist
