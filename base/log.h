// SPDX-License-Identifier: Apache-2.0
// Log lines to stderr: time, level, file:line, text. MILLRACE_LOG_LEVEL (debug, info,
// warning, error; default info) chooses the least level that is written. Thread-safe.
#ifndef BASE_LOG_H_
#define BASE_LOG_H_

#include <source_location>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace millrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

bool LogEnabled(LogLevel level);
void SetLogLevel(LogLevel level);
// `task` is printed on every later line: "/job:worker/task:0".
void SetLogTask(std::string task);
void LogLine(LogLevel level, std::source_location where, std::string_view text);

#define MR_LOG(level, ...)                                                                \
  do {                                                                                    \
    if (::millrace::LogEnabled(::millrace::LogLevel::level)) {                            \
      ::millrace::LogLine(::millrace::LogLevel::level, ::std::source_location::current(), \
                          ::millrace::StrCat(__VA_ARGS__));                               \
    }                                                                                     \
  } while (0)

// Ends the process: only for broken invariants of our own code.
[[noreturn]] void Fatal(std::source_location where, std::string_view text);
#define MR_CHECK(condition)                                                              \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::millrace::Fatal(::std::source_location::current(), "check failed: " #condition); \
  } while (0)

}  // namespace millrace

#endif  // BASE_LOG_H_
