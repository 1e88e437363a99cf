// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/environment.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>

namespace millrace::layers {
namespace {

constexpr std::string_view kMayAsk[] = {
    "base/options/engine_options.cc",        // what the engine is told
    "base/log.cc",                           // before anything else is there
    "cluster/resolvers/resolver.cc",         // TF_CONFIG, and what launchers and schedulers set
    "device/cuda/driver/shared_library.cc",  // where CUDA is, before it is loaded
    "device/cuda/machine/cuda_device.cc",    // what a process opens its GPUs with
    "examples/log_flag.h",                   // a flag for the log, before its first line
    "examples/mnist/launcher.cc",            // the terminal
    "examples/mnist/main.cc",                // where the user stood
    "kernels/cuda/cuda_loops.cc",            // where the loops are, before they are loaded
    "master/master_session.cc",              // TMPDIR
    "planner/cluster_source.cc",             // TF_CONFIG of a plan
    "tools/check_layers/check_layers.cc",    // where the workspace is
    "tools/millrace/main.cc",                // a flag for the log, before its first line
    "tools/millrace/run_command.cc",         // the terminal
    "tools/millrace/server_command.cc",      // TF_CONFIG of a server
};
constexpr std::string_view kCalls[] = {"getenv", "secure_getenv", "setenv", "unsetenv", "putenv"};

bool IsOfTests(std::string_view path) {
  if (path.starts_with("tests/") || path.starts_with("bench/")) return true;
  for (const std::string_view part : {"_test.", "_bench.", "_fuzz.", "_test_util.", "_testlib."}) {
    if (path.find(part) != std::string_view::npos) return true;
  }
  return false;
}

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether a call of `name` stands in the line; a parameter of that name counts as well.
bool Calls(std::string_view line, std::string_view name) {
  for (std::size_t at = line.find(name); at != std::string_view::npos;
       at = line.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !IsWord(line[at - 1])) && end < line.size() && line[end] == '(') return true;
  }
  return false;
}

// The lines, from 1, that ask or change the environment.
std::vector<int> LinesThatAsk(std::string_view text) {
  std::vector<int> lines;
  int number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    line = line.substr(0, line.find("//"));
    ++number;
    if (std::any_of(std::begin(kCalls), std::end(kCalls),
                    [line](std::string_view name) { return Calls(line, name); })) {
      lines.push_back(number);
    }
    start = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<Violation> CheckEnvironment(const Tree& tree) {
  std::vector<Violation> violations;
  for (const auto& [path, text] : tree) {
    if (IsOfTests(path)) continue;
    const std::vector<int> lines = LinesThatAsk(text);
    const bool may = std::find(std::begin(kMayAsk), std::end(kMayAsk), path) != std::end(kMayAsk);
    if (may && lines.empty()) {
      violations.push_back({path, 1,
                            path + " does not ask the environment any more: take it off the list "
                                   "in tools/check_layers/environment.cc"});
    }
    if (may) continue;
    for (const int line : lines) {
      violations.push_back({path, line,
                            path + " asks the environment: read the variable in "
                                   "base/options/engine_options.cc and hand the option down"});
    }
  }
  return violations;
}

}  // namespace millrace::layers
