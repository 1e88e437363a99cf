// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_LOGGING_JSON_LINES_H_
#define TESTS_LOGGING_JSON_LINES_H_

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace {

using Json = nlohmann::json;

// What `write` writes to stderr in a process of its own, whose log is JSON.
template <typename Write>
std::string WrittenBy(Write write) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("MILLRACE_LOG_FORMAT", "json", 1);
    write();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return text;
}

// The only object of one line; null if there is something else.
inline Json OnlyLine(const std::string& text) {
  if (text.empty() || text.find('\n') != text.size() - 1) return nullptr;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace millrace

#endif  // TESTS_LOGGING_JSON_LINES_H_
