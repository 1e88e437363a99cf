// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/tensors.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::layers {
namespace {

// Where what clients and peers send is worked on.
constexpr std::string_view kFolders[] = {
    "collective/", "device/", "distributed_runtime/", "executor/",  "io/",    "jit/",
    "kernels/",    "master/", "rendezvous/",          "transport/", "worker/"};
constexpr std::string_view kRunners[] = {"executor/", "master/", "worker/"};

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

template <typename Folders>
bool IsIn(std::string_view path, const Folders& folders) {
  return std::any_of(std::begin(folders), std::end(folders),
                     [path](std::string_view folder) { return path.starts_with(folder); });
}

bool IsOfTests(std::string_view path) {
  for (const std::string_view part : {"_test.", "_bench.", "_fuzz.", "test_", "_testlib."}) {
    if (path.find(part) != std::string_view::npos) return true;
  }
  return path.find("/cuda/library_") != std::string_view::npos;  // cases of tests
}

struct Line {
  std::string code, comment;
};

// Lines with their comments apart. Literals stay: none of those that are looked for has any.
std::vector<Line> LinesOf(std::string_view text) {
  std::vector<Line> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = text.substr(start, end - start);
    const std::size_t comment = line.find("//");
    lines.push_back({std::string(line.substr(0, comment)),
                     comment == std::string_view::npos ? "" : std::string(line.substr(comment))});
    start = end + 1;
  }
  return lines;
}

bool SaysBound(const std::vector<Line>& lines, std::size_t at) {
  const auto says = [](const Line& line) {
    return line.comment.find("Bounded:") != std::string::npos;
  };
  if (says(lines[at])) return true;
  while (at > 0 && !lines[at - 1].comment.empty() &&
         lines[at - 1].code.find_first_not_of(' ') == std::string::npos) {
    if (says(lines[--at])) return true;
  }
  return false;
}

std::string Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \n") - begin + 1));
}

// The arguments between the parenthesis that opens at `at` and the one that closes it.
std::vector<std::string> ArgumentsAt(std::string_view code, std::size_t at) {
  std::vector<std::string> arguments;
  int depth = 0;
  std::size_t begin = at + 1;
  for (std::size_t i = at; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '(' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '}' || c == ']') --depth;
    const bool ends = depth == 0;
    if (!ends && !(c == ',' && depth == 1)) continue;
    if (i > begin) arguments.push_back(Trimmed(code.substr(begin, i - begin)));
    begin = i + 1;
    if (ends) break;
  }
  return arguments;
}

// "Shape()", "Shape({2, 3})", "{2, 3}".
bool IsWrittenOut(std::string_view shape) {
  if (shape.starts_with("Shape(") && shape.ends_with(")")) {
    shape = shape.substr(6, shape.size() - 7);
    if (shape.empty()) return true;
  }
  if (!shape.starts_with("{") || !shape.ends_with("}")) return false;
  return shape.find_first_not_of("0123456789, ", 1) == shape.size() - 1;
}

// "const Tensor& x", "DataType type": of a declaration.
bool IsParameter(std::string_view argument) {
  const std::size_t space = argument.find_last_of(" &*");
  if (space == std::string_view::npos || space == 0) return false;
  const std::string_view name = argument.substr(space + 1);
  const std::string_view type = argument.substr(0, space);
  return std::all_of(name.begin(), name.end(), IsWord) &&
         std::all_of(type.begin(), type.end(), [](char c) {
           return IsWord(c) || std::string_view(":<>&* ,").find(c) != std::string_view::npos;
         });
}

// The shape that a tensor which is constructed at `at` is given; empty if it is none.
std::string ShapeOfTensorAt(std::string_view code, std::size_t at) {
  constexpr std::size_t kName = 6;  // "Tensor"
  std::size_t open = at + kName;
  while (open < code.size() && code[open] == ' ') ++open;
  const bool named = open > at + kName;
  while (named && open < code.size() && IsWord(code[open])) ++open;
  if (open >= code.size() || code[open] != '(') return "";
  const std::vector<std::string> arguments = ArgumentsAt(code, open);
  if (arguments.size() != 2 && arguments.size() != 3) return "";
  if (std::any_of(arguments.begin(), arguments.end(), IsParameter)) return "";
  return IsWrittenOut(arguments.back()) ? "" : arguments.back();
}

class FileCheck {
 public:
  FileCheck(const std::string& path, std::string_view text) : path_(path), lines_(LinesOf(text)) {
    for (const Line& line : lines_) {
      begins_.push_back(code_.size());
      code_ += line.code + "\n";
    }
  }

  void Run(std::vector<Violation>* violations) {
    ForEach("Tensor", [&](std::size_t at) {
      const std::string shape = ShapeOfTensorAt(code_, at);
      if (shape.empty() || SaysBound(lines_, LineAt(at))) return;
      violations->push_back({path_, static_cast<int>(LineAt(at)) + 1,
                             "a tensor of shape " + shape +
                                 " may not fit: use Tensor::Allocate or the kernel's context, or "
                                 "say in a comment \"Bounded: ...\" by what it is"});
    });
    ForEach("AsShape", [&](std::size_t at) {
      std::size_t begin = at;
      while (begin > 0 &&
             (IsWord(code_[begin - 1]) ||
              std::string_view(".[]>-").find(code_[begin - 1]) != std::string_view::npos)) {
        --begin;
      }
      if (begin == 0 || code_[begin - 1] != '*') return;
      violations->push_back({path_, static_cast<int>(LineAt(at)) + 1,
                             "AsShape() may give nothing, also for known sizes: ask it first"});
    });
    if (!IsIn(path_, kRunners)) return;
    for (const std::string_view call : {"Compute", "ComputeAsync"}) {
      ForEach(call, [&](std::size_t at) {
        const std::string_view before = std::string_view(code_).substr(0, at);
        if (!before.ends_with("kernel->") && !before.ends_with("kernel.get()->")) return;
        violations->push_back({path_, static_cast<int>(LineAt(at)) + 1,
                               "what a kernel throws would end the process: run it by "
                               "kernels/run_kernel.h"});
      });
    }
  }

 private:
  // Calls found(place) for every `word`.
  template <typename F>
  void ForEach(std::string_view word, F&& found) const {
    for (std::size_t at = code_.find(word); at != std::string::npos;
         at = code_.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if ((at == 0 || !IsWord(code_[at - 1])) && (end == code_.size() || !IsWord(code_[end]))) {
        found(at);
      }
    }
  }
  std::size_t LineAt(std::size_t at) const {
    return std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin() - 1;
  }

  const std::string path_;
  const std::vector<Line> lines_;
  std::string code_;
  std::vector<std::size_t> begins_;
};

}  // namespace

std::vector<Violation> CheckTensors(const Tree& tree) {
  std::vector<Violation> violations;
  for (const auto& [path, text] : tree) {
    if (IsIn(path, kFolders) && !IsOfTests(path)) FileCheck(path, text).Run(&violations);
  }
  return violations;
}

}  // namespace millrace::layers
