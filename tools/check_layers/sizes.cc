// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/sizes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tools/check_layers/licence.h"

namespace millrace::layers {
namespace {

// Sizes over the limits, the licence's line not counted: a path, or a path and the first line of a
// function. An entry is lowered with what it allows, and goes when that keeps to the limits.
struct Allowance {
  const char* what;
  int size;
};
constexpr Allowance kAllowed[] = {
    {"collective/directory.cc CollectiveDirectory::JoinGroup", 101},
    {"collective/directory.cc CollectiveDirectory::JoinInstance", 95},
    {"include/millrace", 79},  // a header for each subject: programs name what they use
    {"kernels/accelerator/computing_ops.cc ComputingOps", 296},
    {"kernels/cuda/batch_norm_test.cc HostCudnn", 84},
    {"kernels/cuda/conv_test.cc HostCudnn", 97},
    {"kernels/cuda/matmul_test.cc HostCublasLt", 119},
    {"master/session_test.cc", 620},
};

const Allowance* FindAllowance(std::string_view what) {
  for (const Allowance& allowance : kAllowed) {
    if (what == allowance.what) return &allowance;
  }
  return nullptr;
}

struct Function {
  int line = 0;  // 1-based, of its first line
  int lines = 0;
  std::string name;  // with its class, as it is written there
};

int Indent(std::string_view line) {
  const size_t at = line.find_first_not_of(' ');
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

bool OpensOther(std::string_view line) {
  for (const char* word : {"namespace", "class ", "struct ", "union ", "enum ", "extern ", "#"}) {
    if (line.starts_with(word)) return true;
  }
  return line.ends_with("= {") || line.ends_with("){{");
}

std::string NameOf(std::string_view signature) {
  const size_t open = signature.find('(');
  if (open == std::string_view::npos) return std::string(signature);
  const size_t space = signature.substr(0, open).rfind(' ');
  const size_t start = space == std::string_view::npos ? 0 : space + 1;
  return std::string(signature.substr(start, open - start));
}

// Functions of formatted code: from the line at the indentation of the closing brace that begins
// the signature to that brace. Those within functions belong to the outer ones.
std::vector<Function> FunctionsOf(std::string_view text) {
  const std::vector<std::string_view> lines = LinesOf(text);
  std::vector<Function> functions;
  for (const int indent : {0, 2}) {
    size_t begin = lines.size();  // of what may be a signature
    bool open = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (Indent(lines[i]) != indent) {
        if (begin < lines.size() && !open) open = lines[i].ends_with("{");
        continue;
      }
      const std::string_view line = lines[i].substr(indent);
      if (line.starts_with("}")) {
        const bool ends = line == "}" && begin < lines.size() && open;
        if (ends && lines[begin].find('(') != std::string_view::npos) {
          functions.push_back({static_cast<int>(begin) + 1, static_cast<int>(i - begin) + 1,
                               NameOf(lines[begin].substr(indent))});
        }
        begin = lines.size();
        continue;
      }
      if (line.starts_with("//") || OpensOther(line)) {
        begin = lines.size();
        continue;
      }
      if (begin == lines.size() || line.find('(') != std::string_view::npos) {
        begin = i;
        open = line.ends_with("{");
      }
    }
  }
  return functions;
}

class SizeCheck {
 public:
  void Judge(const std::string& what, const std::string& path, int line, int size, int limit,
             const char* unit) {
    const Allowance* allowance = FindAllowance(what);
    if (allowance != nullptr) met_.insert(allowance->what);
    const int most = allowance != nullptr ? std::max(allowance->size, limit) : limit;
    if (size > most) {
      violations_.push_back({path, line,
                             what + " has " + std::to_string(size) + " " + unit + ", " +
                                 std::to_string(most) + " at most: split it"});
    } else if (allowance != nullptr && size < allowance->size) {
      violations_.push_back({path, line,
                             what + " has " + std::to_string(size) + " " + unit +
                                 " by now: lower its entry in tools/check_layers/sizes.cc"});
    }
  }

  std::vector<Violation> Finish() {
    for (const Allowance& allowance : kAllowed) {
      if (met_.count(allowance.what) > 0) continue;
      violations_.push_back({"tools/check_layers/sizes.cc", 1,
                             std::string(allowance.what) + " is not there: drop its entry"});
    }
    return std::move(violations_);
  }

 private:
  std::set<std::string> met_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> CheckSizes(const Tree& tree) {
  SizeCheck check;
  std::map<std::string, int> folders;
  for (const auto& [path, text] : tree) {
    if (path.starts_with("tests/") || path.starts_with("bench/")) continue;
    ++folders[path.substr(0, path.rfind('/'))];
    const auto lines = std::count(text.begin(), text.end(), '\n');
    check.Judge(path, path, 1, static_cast<int>(lines) - text.starts_with(kLicenceLine), kFileLines,
                "lines");
    for (const Function& function : FunctionsOf(text)) {
      if (function.lines <= kFunctionLines &&
          FindAllowance(path + " " + function.name) == nullptr) {
        continue;
      }
      check.Judge(path + " " + function.name, path, function.line, function.lines, kFunctionLines,
                  "lines");
    }
  }
  for (const auto& [folder, files] : folders) {
    check.Judge(folder, folder, 1, files, kFolderFiles, "files");
  }
  return check.Finish();
}

}  // namespace millrace::layers
