// SPDX-License-Identifier: Apache-2.0
#include "tools/run/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/child_process.h"
#include "base/errors.h"

extern char** environ;

namespace millrace::run {
namespace {

constexpr size_t kLongestLine = 64 << 10;

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The parent's variables, but for those that are given anew.
std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(StrCat(name, "=", value));
  return all;
}

// In the child, between fork and exec: only async-signal-safe calls. What exec says goes through
// `failure`, which a successful exec closes.
[[noreturn]] void BecomeChild(pid_t parent, int output, int failure, char* const* argv,
                              char* const* variables) {
  EnterChild(parent, output);
  execvpe(argv[0], argv, variables);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof(error));
  _exit(127);
}

Status StartError(const std::string& program, int error) {
  if (error == ENOENT) return errors::NotFound("there is no program '", program, "'");
  if (error == EACCES) return errors::PermissionDenied("'", program, "' is no program to run");
  return errors::Internal("cannot start '", program, "': ", std::strerror(error));
}

}  // namespace

Child::~Child() {
  Signal(SIGKILL);
  if (running()) waitpid(pid_, &wait_status_, 0);
  CloseOutput();
}

Status Child::Start(const std::vector<std::string>& command,
                    const std::map<std::string, std::string>& variables) {
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0) return StartError(command[0], errno);
  if (pipe2(failure, O_CLOEXEC) != 0) {
    const int error = errno;
    close(output[0]);
    close(output[1]);
    return StartError(command[0], error);
  }
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = EnvironmentWith(variables);
  const std::vector<char*> argv = Pointers(&arguments);
  const std::vector<char*> envp = Pointers(&environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(parent, output[1], failure[1], argv.data(), envp.data());
  int error = pid < 0 ? errno : 0;
  close(output[1]);
  close(failure[1]);
  if (pid > 0) {
    setpgid(pid, pid);  // as the child does: whoever comes first
    while (read(failure[0], &error, sizeof(error)) < 0 && errno == EINTR) {
    }
  }
  close(failure[0]);
  if (error != 0) {
    if (pid > 0) waitpid(pid, nullptr, 0);
    close(output[0]);
    return StartError(command[0], error);
  }
  CloseOutput();
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  output_ = output[0];
  pid_ = pid;
  return OkStatus();
}

void Child::ReadLines(const std::function<void(std::string_view line)>& line) {
  char buffer[16 << 10];
  while (output_ >= 0) {
    const ssize_t size = read(output_, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      CloseOutput();
      break;
    }
    tail_.append(buffer, static_cast<size_t>(size));
    size_t start = 0;
    for (size_t end; (end = tail_.find('\n', start)) != std::string::npos; start = end + 1) {
      line(std::string_view(tail_).substr(start, end - start));
    }
    tail_.erase(0, start);
    if (tail_.size() >= kLongestLine) {
      line(tail_);
      tail_.clear();
    }
  }
  if (output_ < 0 && !tail_.empty()) {
    line(tail_);
    tail_.clear();
  }
}

bool Child::Reap() {
  if (!running()) return true;
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      ended.si_pid != pid_) {
    return false;
  }
  // What it has started and left behind, while nobody else can have the group's number.
  kill(-pid_, SIGKILL);
  waitpid(pid_, &wait_status_, 0);
  pid_ = -1;
  return true;
}

void Child::Signal(int number) {
  if (running()) kill(-pid_, number);
}

void Child::CloseOutput() {
  if (output_ >= 0) close(output_);
  output_ = -1;
}

int ExitCodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace millrace::run
