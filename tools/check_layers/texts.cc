// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/texts.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::layers {
namespace {

// Shorter ones are likely to be alike by chance.
constexpr std::size_t kShortest = 20;

constexpr std::string_view kAccelerators[] = {"kernels/accelerator/", "kernels/cuda/",
                                              "kernels/fake/", "kernels/gpu/"};

bool IsOfTests(std::string_view path) {
  for (const std::string_view part : {"_test.", "_bench.", "_fuzz.", "test_", "_testlib."}) {
    if (path.find(part) != std::string_view::npos) return true;
  }
  return path.find("/cuda/library_") != std::string_view::npos;  // cases of tests
}

struct Text {
  std::string value;
  int line = 0;
};

// The places in code where errors are made, and what is said there.
class ErrorTexts {
 public:
  explicit ErrorTexts(std::string_view code) : code_(code) {}

  std::vector<Text> Find() {
    constexpr std::string_view kErrors = "errors::";
    for (std::size_t at = code_.find(kErrors); at != std::string_view::npos;
         at = code_.find(kErrors, at)) {
      at += kErrors.size();
      while (at < code_.size() && std::isalnum(static_cast<unsigned char>(code_[at])) != 0) ++at;
      if (at < code_.size() && code_[at] == '(') at = ReadCall(at);
    }
    return std::move(texts_);
  }

 private:
  // From the parenthesis that opens at `at` to behind the one that closes it.
  std::size_t ReadCall(std::size_t at) {
    int depth = 0;
    while (at < code_.size()) {
      const char c = code_[at];
      if (c == '"') {
        at = ReadLiterals(at);
        continue;
      }
      if (c == '\'') {
        at += code_.substr(at).starts_with("'\\") ? 4 : 3;
        continue;
      }
      if (code_.substr(at).starts_with("//")) {
        at = std::min(code_.find('\n', at), code_.size());
        continue;
      }
      ++at;
      if (c == '(') ++depth;
      if (c == ')' && --depth == 0) break;
    }
    return at;
  }

  // One or several with nothing but space between, as the compiler joins them.
  std::size_t ReadLiterals(std::size_t at) {
    Text text;
    text.line = 1 + static_cast<int>(std::count(code_.begin(), code_.begin() + at, '\n'));
    while (at < code_.size() && code_[at] == '"') {
      for (++at; at < code_.size() && code_[at] != '"'; ++at) {
        if (code_[at] == '\\' && at + 1 < code_.size()) text.value += code_[at++];
        text.value += code_[at];
      }
      at = std::min(at + 1, code_.size());
      const std::size_t next = code_.find_first_not_of(" \n", at);
      if (next != std::string_view::npos && code_[next] == '"') at = next;
    }
    if (text.value.size() >= kShortest) texts_.push_back(std::move(text));
    return at;
  }

  const std::string_view code_;
  std::vector<Text> texts_;
};

bool IsOfAccelerator(std::string_view path) {
  return std::any_of(std::begin(kAccelerators), std::end(kAccelerators),
                     [path](std::string_view folder) { return path.starts_with(folder); });
}

}  // namespace

std::vector<Violation> CheckTexts(const Tree& tree) {
  std::map<std::string, std::string> of_cpu;  // to the first file that has it
  std::map<std::string, std::vector<Text>> of_accelerators;
  for (const auto& [path, code] : tree) {
    if (!path.starts_with("kernels/") || IsOfTests(path)) continue;
    std::vector<Text> texts = ErrorTexts(code).Find();
    if (IsOfAccelerator(path)) {
      of_accelerators[path] = std::move(texts);
    } else {
      for (Text& text : texts) of_cpu.insert({std::move(text.value), path});
    }
  }
  std::vector<Violation> violations;
  for (const auto& [path, texts] : of_accelerators) {
    for (const Text& text : texts) {
      const auto found = of_cpu.find(text.value);
      if (found == of_cpu.end()) continue;
      violations.push_back({path, text.line,
                            "\"" + text.value + "\" is also said in " + found->second +
                                ": let both begin with one plan (docs/adding_an_op.md)"});
    }
  }
  return violations;
}

}  // namespace millrace::layers
