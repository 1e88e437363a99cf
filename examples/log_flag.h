// SPDX-License-Identifier: Apache-2.0
// The flag of every example that says how log lines look.
#ifndef EXAMPLES_LOG_FLAG_H_
#define EXAMPLES_LOG_FLAG_H_

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <functional>
#include <string>

namespace millrace::examples {

// To be parsed before the first line is logged. Processes that are started have it, too.
inline void AddLogFlag(CLI::App& app) {
  const std::function<void(const std::string&)> set = [](const std::string& format) {
    setenv("MILLRACE_LOG_FORMAT", format.c_str(), 1);
  };
  app.add_option_function("--log_format", set,
                          "Log lines as text or as JSON, one object a line (default: what "
                          "MILLRACE_LOG_FORMAT says, text without it)")
      ->check(CLI::IsMember({"text", "json"}));
}

}  // namespace millrace::examples

#endif  // EXAMPLES_LOG_FLAG_H_
