#include "examples/mnist/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace millrace::mnist {
namespace {

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeChild(pid_t parent, int output, char* const* argv) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before it could be watched
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
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

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return StrCat("signal ", number, " (", strsignal(number), ")");
  }
  return StrCat("exit code ", WEXITSTATUS(wait_status));
}

}  // namespace millrace::mnist
