// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/own_process.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/strings.h"
#include "gtest/gtest.h"

namespace millrace::testing {
namespace {

constexpr char kIsOwn[] = "MILLRACE_TEST_OWN_PROCESS";
constexpr int kTimedOut = 124;  // of timeout(1)

std::string& Output() {
  static auto* const output = new std::string;
  return *output;
}

std::string Quoted(const std::string& text) { return StrCat("'", text, "'"); }

std::string CommandOf(const OwnProcess& how) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  // What a runner of tests wants to hear of the first process alone.
  std::string command = "exec env -u XML_OUTPUT_FILE -u GTEST_OUTPUT -u TEST_TOTAL_SHARDS";
  StrAppend(&command, " -u TEST_SHARD_INDEX -u TEST_SHARD_STATUS_FILE -u TESTBRIDGE_TEST_ONLY");
  StrAppend(&command, " -u TEST_PREMATURE_EXIT_FILE ", kIsOwn, "=1");
  for (const auto& [name, value] : how.environment) {
    StrAppend(&command, " ", name, "=", Quoted(value));
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  StrAppend(&command, " timeout --foreground --kill-after=10 ", how.seconds, " ", Quoted(program));
  StrAppend(&command, " --gtest_color=no --gtest_filter=",
            Quoted(StrCat(test->test_suite_name(), ".", test->name())), " 2>&1");
  return command;
}

// "" if it ended as it should.
std::string WrongEnd(const OwnProcess& how, int status) {
  // timeout(1) ends by the signal that ended its program, or tells it by its exit code.
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (code > 128) signal = code - 128;
  if (how.signal != 0) {
    if (signal == how.signal) return "";
    return StrCat("it was to end by signal ", how.signal, ", not with ", code, " or signal ",
                  signal);
  }
  if (signal != 0) return StrCat("it was ended by signal ", signal);
  if (code == kTimedOut) return StrCat("it did not end within ", how.seconds, " s");
  return code == 0 ? "" : StrCat("it ended with ", code);
}

}  // namespace

bool InOwnProcess(const OwnProcess& how) {
  if (std::getenv(kIsOwn) != nullptr) return true;
  FILE* const pipe = popen(CommandOf(how).c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "no process could be started";
    return false;
  }
  Output().clear();
  char part[4096];
  for (std::size_t n; (n = fread(part, 1, sizeof(part), pipe)) > 0;) Output().append(part, n);
  const std::string wrong = WrongEnd(how, pclose(pipe));
  if (!wrong.empty()) {
    ADD_FAILURE() << "in its own process: " << wrong << "\n" << Output();
    return false;
  }
  const std::size_t skipped = Output().find(": Skipped\n");
  if (skipped != std::string::npos) {
    const std::size_t begin = Output().find('\n', skipped) + 1;
    const std::string why = Output().substr(begin, Output().find('\n', begin) - begin);
    [&why] { GTEST_SKIP() << why; }();
  } else if (how.signal == 0 && Output().find("[       OK ]") == std::string::npos) {
    ADD_FAILURE() << "its own process ran no test\n" << Output();
  }
  return false;
}

const std::string& OutputOfOwnProcess() { return Output(); }

}  // namespace millrace::testing
