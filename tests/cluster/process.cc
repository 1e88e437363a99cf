// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace millrace::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Between two looks at something that cannot be waited for.
constexpr milliseconds kLook{20};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

int ExitCode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

}  // namespace

void AdoptOrphans() { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }

bool NoProcessIsLeft(std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno == ECHILD) return true;
    if (ended != 0) continue;
    if (Clock::now() > deadline) break;
    std::this_thread::sleep_for(kLook);
  }
  for (const pid_t child : ChildrenOf(getpid())) {
    ADD_FAILURE() << "left behind: " << child << " "
                  << ReadAll("/proc/" + std::to_string(child) + "/cmdline");
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return false;
}

std::vector<pid_t> ChildrenOf(pid_t parent, const std::string& phrase) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || !std::all_of(name.begin(), name.end(), ::isdigit)) continue;
    // "pid (name) state ppid ..."; the name may contain anything.
    const std::string stat = ReadAll(entry.path().string() + "/stat");
    const std::size_t after = stat.rfind(')');
    if (after == std::string::npos) continue;  // it has just ended
    std::istringstream rest(stat.substr(after + 1));
    std::string state;
    pid_t ppid = 0;
    rest >> state >> ppid;
    if (ppid != parent || state == "Z") continue;
    if (ReadAll(entry.path().string() + "/cmdline").find(phrase) == std::string::npos) continue;
    children.push_back(std::atoi(name.c_str()));
  }
  return children;
}

void FreezeProcess(pid_t process) {
  kill(process, SIGSTOP);
  const auto stands_still = [](const std::filesystem::path& thread) {
    std::ifstream file(thread / "stat");
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    return text.empty() || text.find(") T ") != std::string::npos;  // empty: it has ended
  };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < limit) {
    std::error_code error;
    const std::filesystem::directory_iterator threads("/proc/" + std::to_string(process) + "/task",
                                                      error);
    if (std::all_of(begin(threads), end(threads),
                    [&](const auto& thread) { return stands_still(thread.path()); })) {
      return;
    }
  }
  ADD_FAILURE() << "process " << process << " does not stop";
}

Process::Process(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    unsetenv("TF_CONFIG");
    // Of the test that starts it, should the program be one as well.
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    unsetenv("XML_OUTPUT_FILE");
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  EXPECT_GT(pid_, 0);
  close(ends[1]);
  fd_ = ends[0];
}

Process::~Process() {
  if (!ended_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

void Process::Signal(int number) {
  if (!ended_) kill(pid_, number);
}

bool Process::ReadSome(milliseconds limit) {
  pollfd wait{fd_, POLLIN, 0};
  if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, limit.count()))) <= 0) return true;
  char buffer[16384];
  const ssize_t n = read(fd_, buffer, sizeof(buffer));
  if (n > 0) output_.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

bool Process::WaitForOutput(const std::string& phrase, std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (output_.find(phrase) == std::string::npos) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || !ReadSome(left)) return output_.find(phrase) != std::string::npos;
  }
  return true;
}

int Process::WaitForEnd(std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  bool more = true;
  for (bool late = false; !ended_ && !late;) {
    late = Clock::now() >= deadline;  // it is looked at once, at least
    // A grandchild may hold the pipe open after the process has ended.
    if (more) {
      more = ReadSome(kLook);
    } else {
      std::this_thread::sleep_for(kLook);
    }
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = true;
      result_ = ExitCode(status);
    }
  }
  std::size_t size = 0;
  do {  // what is still in the pipe
    size = output_.size();
    if (more) more = ReadSome(milliseconds(0));
  } while (output_.size() != size);
  return result_;
}

}  // namespace millrace::testing
