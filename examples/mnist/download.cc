// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/download.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/child_process.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

extern char** environ;

namespace millrace::mnist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(bytes.data(), static_cast<std::size_t>(n));
  }
}

// Runs a program that is looked for in PATH, with nothing to read. Its end as of waitpid; what it
// says goes to `said`.
StatusOr<int> RunProgram(const std::vector<std::string>& command, std::string* said) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errors::ResourceExhausted("no pipe is left");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error == 0) *said = ReadAll(ends[0]);
  close(ends[0]);
  if (error == ENOENT) {
    return errors::FailedPrecondition("the program ", command[0], " is not installed, which ",
                                      "--download_only needs (apt-get install ", command[0], ")");
  }
  if (error != 0) {
    return errors::Unavailable(command[0],
                               " cannot be started: ", std::generic_category().message(error));
  }
  int end = 0;
  while (waitpid(pid, &end, 0) < 0 && errno == EINTR) {
  }
  return end;
}

Status Fetch(const std::string& url, const fs::path& to) {
  const std::string part = StrCat(to.string(), ".part.", getpid());
  std::string said;
  const StatusOr<int> end =
      RunProgram({"curl", "--fail", "--silent", "--show-error", "--location", "--proto",
                  "=http,https,file", "--connect-timeout", "15", "--speed-time", "30",
                  "--speed-limit", "1", "--max-time", "600", "--output", part, "--", url},
                 &said);
  std::error_code error;
  if (!end.ok() || *end != 0) fs::remove(part, error);
  MR_RETURN_IF_ERROR(end.status());
  if (*end != 0) {
    while (!said.empty() && said.back() == '\n') said.pop_back();
    return errors::Unavailable(url, " could not be fetched: ",
                               said.empty() ? "curl ended with " + DescribeEnd(*end) : said,
                               "; put the file into ", to.parent_path().string(),
                               " by hand, or name another source by --data_url");
  }
  fs::rename(part, to, error);
  if (error) return errors::Unavailable(to.string(), " cannot be made: ", error.message());
  return OkStatus();
}

}  // namespace

Status DownloadDigits(const std::string& dir, const std::string& url) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return errors::Unavailable(dir, " cannot be made: ", error.message());
  const fs::path folder(dir);
  const bool npz = fs::exists(folder / "mnist.npz", error);
  for (const std::string file : kFiles) {
    const fs::path zipped = folder / (file + ".gz");
    if (npz || fs::exists(folder / file, error) || fs::exists(zipped, error)) continue;
    const std::string from = StrCat(url, url.ends_with('/') ? "" : "/", file, ".gz");
    std::printf("fetching %s\n", from.c_str());
    std::fflush(stdout);
    MR_RETURN_IF_ERROR(Fetch(from, zipped));
  }
  return OkStatus();
}

}  // namespace millrace::mnist
