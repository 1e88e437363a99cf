// SPDX-License-Identifier: Apache-2.0
// export_map script|link SYMBOLS HEADER...: the version script of libmillrace.so, or the flags by
// which a program has and exports the same API. SYMBOLS is what
// `nm --defined-only --extern-only -P` prints of the engine.
#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "tools/install/exports.h"

namespace millrace::exports {
namespace {

// Of a macro's line "#define MILLRACE_VERSION_MINOR 2".
std::string NumberOf(std::string_view macro, std::string_view text) {
  const std::size_t at = text.find(macro);
  if (at == std::string_view::npos) return "";
  std::string digits;
  for (std::size_t i = at + macro.size() + 1; i < text.size() && text[i] >= '0' && text[i] <= '9';
       ++i) {
    digits += text[i];
  }
  return digits;
}

bool ReadFile(const char* path, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(in), {});
  return static_cast<bool>(in);
}

int Main(int argc, char** argv) {
  PublicNames names;
  std::string major, minor, text;
  for (int i = 3; i < argc; ++i) {
    if (!ReadFile(argv[i], text)) {
      std::fprintf(stderr, "export_map: %s cannot be read\n", argv[i]);
      return 1;
    }
    ReadHeader(text, names);
    if (const std::string found = NumberOf("MILLRACE_VERSION_MAJOR", text); !found.empty()) {
      major = found;
      minor = NumberOf("MILLRACE_VERSION_MINOR", text);
    }
  }
  const std::string_view mode = argc < 4 ? "" : argv[1];
  if ((mode != "script" && mode != "link") || major.empty() || minor.empty()) {
    std::fprintf(
        stderr,
        "export_map: usage: script|link SYMBOLS HEADER..., millrace/version.h among them\n");
    return 2;
  }
  std::vector<std::string> kept;
  std::ifstream symbols(argv[2]);
  std::string line;
  while (std::getline(symbols, line)) {
    const std::string mangled = line.substr(0, line.find(' '));
    // Constants that headers define: each program has its own, and shared ones could not be told
    // apart from those of another library.
    if (line.starts_with(mangled + " u")) continue;
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> demangled(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
    if (demangled != nullptr && IsPublic(demangled.get(), names)) kept.push_back(mangled);
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  if (kept.empty()) {
    std::fprintf(stderr, "export_map: no symbol of %s is public\n", argv[2]);
    return 1;
  }
  const std::string made =
      mode == "link" ? LinkFlags(kept) : VersionScript("MILLRACE_" + major + "." + minor, kept);
  std::fputs(made.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace millrace::exports

int main(int argc, char** argv) { return millrace::exports::Main(argc, argv); }
