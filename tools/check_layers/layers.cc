// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/layers.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace millrace::layers {
namespace {

namespace fs = std::filesystem;

struct Layer {
  // A folder, a folder within one, or one file; of several that fit a path, the longest counts.
  const char* folder;
  std::vector<const char*> arrows;
};

// Direct arrows, bottom first: a folder may point only to those before it, so the picture
// cannot become a circle. A folder that is not listed itself belongs to the one around it.
std::vector<Layer> EngineLayers() {
  return {
      {"include", {}},
      {"base", {"include"}},
      {"proto", {}},
      {"observe", {"base"}},
      {"tensor", {"base", "proto"}},
      {"device", {"tensor"}},
      {"device/cpu", {"device"}},
      {"device/fake", {"device"}},
      {"device/cuda/driver", {"device"}},
      {"device/cuda/trace", {"device/cuda/driver"}},
      {"device/cuda/machine", {"device/cuda/trace"}},
      {"device/cuda/simulated", {"device/cuda/trace"}},
      {"cluster", {"device"}},
      {"io", {"tensor"}},
      {"ops", {"tensor"}},
      {"graph", {"ops"}},
      {"graph/functions", {"graph"}},
      {"graph/rewrite", {"graph"}},
      {"frontend", {"graph"}},
      {"graph/gradients", {"frontend", "graph/functions"}},
      {"graph/lowering", {"graph/gradients"}},
      {"rendezvous", {"device"}},
      {"collective", {"device"}},
  };
}

std::vector<Layer> KernelLayers() {
  return {
      {"kernels", {"device", "ops", "rendezvous", "collective", "io"}},
      {"kernels/common", {"kernels"}},
      {"kernels/ragged", {"kernels/common"}},
      {"kernels/math", {"kernels/common"}},
      {"kernels/state", {"kernels/common"}},
      {"kernels/random", {"kernels/state"}},
      {"kernels/array", {"kernels/state"}},
      {"kernels/nn", {"kernels/common"}},
      {"kernels/linear_algebra", {"kernels/nn"}},
      {"kernels/image", {"kernels/common"}},
      {"kernels/text", {"kernels/common"}},
      {"kernels/sparse", {"kernels/common"}},
      {"kernels/signal", {"kernels/common"}},
      {"kernels/training", {"kernels/state"}},
      {"kernels/data_flow", {"kernels/state"}},
      {"kernels/lists", {"kernels/ragged"}},
      {"kernels/control", {"kernels/common"}},
      {"kernels/collective", {"kernels/common"}},
      {"kernels/io", {"kernels/data_flow"}},
      {"kernels/data", {"kernels/state", "kernels/lists"}},
      {"kernels/all_kernels.cc",
       {"kernels/math", "kernels/linear_algebra", "kernels/sparse", "kernels/signal",
        "kernels/control", "kernels/collective", "kernels/data", "kernels/random",
        "kernels/training"}},
      {"kernels/accelerator", {"kernels/collective", "kernels/state"}},
      {"kernels/fake", {"kernels/accelerator", "device/fake"}},
      {"kernels/gpu/loops", {"kernels/training"}},
      {"kernels/gpu", {"kernels/accelerator", "kernels/random", "kernels/gpu/loops"}},
      {"kernels/gpu/host", {"kernels/gpu"}},
      {"kernels/cuda", {"kernels/gpu/host", "device/cuda/machine"}},
  };
}

// What runs graphs.
std::vector<Layer> RunLayers() {
  return {
      {"jit", {"kernels/math", "device/fake", "device/cuda/machine"}},
      {"data", {"io"}},
      {"summary", {"io"}},
      {"placer", {"graph/functions"}},
      {"partitioner", {"graph"}},
      {"executor/memory", {"kernels/common"}},
      {"executor", {"graph", "executor/memory"}},
      {"executor/capture", {"executor", "kernels/state"}},
      {"session", {"graph", "rendezvous", "collective"}},
      {"worker",
       {"session", "placer", "partitioner", "executor/capture", "graph/lowering", "graph/rewrite"}},
      {"master", {"session", "placer", "partitioner", "graph/lowering", "io"}},
      {"eager", {"worker"}},
      {"task", {"worker", "master", "collective"}},
      {"transport", {"tensor", "observe"}},
      {"transport/security", {"base"}},
      {"transport/grpc", {"transport", "transport/security"}},
      {"transport/shm", {"tensor"}},
      {"transport/link", {"transport", "transport/shm"}},
      {"distributed_runtime", {"task", "eager", "observe", "transport/grpc", "transport/link"}},
      {"planner", {"worker", "master", "cluster"}},
      {"runtime",
       {"distributed_runtime", "planner", "jit", "data", "kernels/cuda", "kernels/fake",
        "device/cpu", "device/cuda/simulated"}},
  };
}

// What is built upon the engine.
std::vector<Layer> OuterLayers() {
  return {
      {"training", {"include"}},
      {"training/checkpoint", {"training", "frontend", "io"}},
      {"saved_model", {"training/checkpoint"}},
      {"serving", {"saved_model", "distributed_runtime"}},
      {"ranks", {"include", "base"}},
      {"strategy", {"include", "base", "data", "ranks"}},
      {"model", {"include"}},
      {"coordinator", {"base"}},
      {"examples", {"include"}},
  };
}

const std::vector<Layer>& Layers() {
  static const auto* const layers = [] {
    auto* const all = new std::vector<Layer>(EngineLayers());
    for (const auto& layers : {KernelLayers(), RunLayers(), OuterLayers()}) {
      all->insert(all->end(), layers.begin(), layers.end());
    }
    return all;
  }();
  return *layers;
}

// Single headers that a folder may include beyond its arrows.
struct Door {
  const char* folder;
  const char* header;
};
constexpr Door kDoors[] = {
    {"graph", "device/device_name.h"},
    {"placer", "device/device_name.h"},
    {"partitioner", "device/device_name.h"},
    {"graph/functions", "device/device_name.h"},
    {"graph/lowering", "device/device_name.h"},
    {"frontend", "device/cluster_spec.h"},
    {"frontend", "device/device_name.h"},
    {"training/checkpoint", "device/device_name.h"},
    {"training", "base/options/option_checks.h"},
    {"model", "base/options/option_checks.h"},
    {"transport", "device/device_name.h"},
    {"transport/security", "device/device_name.h"},
    {"session", "kernels/kernel_registry.h"},
};

// What an op accepts, and the sizes that follow: kernels/<family>/<ops>_plan.{h,cc}. The kernels of
// all devices may include it, whatever their folder; it sees what all kernels share, other plans,
// and no step. How a GPU does something is planned, too, but for itself.
constexpr std::string_view kOwnPlans[] = {"kernels/gpu/", "kernels/cuda/"};
constexpr std::string_view kPlansSee = "kernels/common";
constexpr std::string_view kStep = "kernels/kernel_context.h";

// Folders that may include anything.
constexpr const char* kFree[] = {"tools", "tests", "bench"};

// What the implementations (not the headers) of the outer folders may see besides.
constexpr const char* kOuter[] = {"training", "ranks",   "strategy",    "model",   "coordinator",
                                  "data",     "summary", "saved_model", "examples"};
constexpr const char* kSeenByImplementations[] = {"session", "graph", "frontend", "io"};

// Libraries of the machine that people also write in quotes: judged as if in brackets.
constexpr std::string_view kLibraries[] = {
    "absl/",   "benchmark/", "dnnl.hpp", "gmock/",   "google/protobuf/", "grpc/",
    "grpcpp/", "gtest/",     "isa-l/",   "leveldb/", "nlohmann/",        "spdlog/"};

constexpr std::string_view kGrpc[] = {"grpc/", "grpcpp/"};

const Layer* FindLayer(std::string_view folder) {
  for (const Layer& layer : Layers()) {
    if (folder == layer.folder) return &layer;
  }
  return nullptr;
}

std::string_view TopFolderOf(std::string_view path) { return path.substr(0, path.find('/')); }

// The layer of a file: itself, the innermost listed folder around it, or its top folder.
std::string_view FolderOf(std::string_view path) {
  if (path.starts_with("millrace/")) return "include";
  for (std::string_view part = path; !part.empty();) {
    if (FindLayer(part) != nullptr) return part;
    const size_t slash = part.rfind('/');
    if (slash == std::string_view::npos) break;
    part = part.substr(0, slash);
  }
  return TopFolderOf(path);
}

template <typename Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool EndsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }

bool IsHeader(std::string_view path) { return EndsWith(path, ".h") || EndsWith(path, ".cuh"); }

// Tests, benchmarks and fuzzers, whether beside the code or in a folder of their own, and
// what only they use.
bool IsTestCode(std::string_view path) {
  const std::string_view folder = FolderOf(path);
  if (folder == "tests" || folder == "bench") return true;
  const std::string_view stem = path.substr(0, path.rfind('.'));
  for (std::string_view end : {"_test", "_bench", "_fuzz", "_test_util", "_testlib"}) {
    if (EndsWith(stem, end)) return true;
  }
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("test_") || name.starts_with("testing.");
}

template <typename Starts>
bool StartsWithAny(std::string_view text, const Starts& starts) {
  return std::any_of(std::begin(starts), std::end(starts),
                     [text](std::string_view start) { return text.starts_with(start); });
}

bool IsOpPlan(std::string_view path) {
  return path.starts_with("kernels/") && !StartsWithAny(path, kOwnPlans) &&
         EndsWith(path.substr(0, path.rfind('.')), "_plan");
}

struct Include {
  int line = 0;
  bool quoted = false;
  std::string path;
};

// The text with comments and the contents of literals blanked; lines stay where they are.
std::string CodeOf(std::string_view text) {
  std::string code(text);
  enum { kPlain, kLine, kBlock, kString, kChar, kRaw } state = kPlain;
  std::string raw_end;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    switch (state) {
      case kPlain:
        if (c == '/' && (next == '/' || next == '*')) {
          state = next == '/' ? kLine : kBlock;
          code[i] = ' ';
          code[++i] = ' ';
        } else if (c == 'R' && next == '"' &&
                   (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
          const size_t open = text.find('(', i);
          if (open == std::string_view::npos) break;
          raw_end = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
          i = open;
          state = kRaw;
        } else if (c == '"') {
          state = kString;
        } else if (c == '\'' &&
                   (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
          state = kChar;  // and not the separator of 1'000
        }
        break;
      case kLine:
        if (c == '\n') {
          state = kPlain;
        } else {
          code[i] = ' ';
        }
        break;
      case kBlock:
        if (c == '*' && next == '/') {
          code[i] = ' ';
          code[++i] = ' ';
          state = kPlain;
        } else if (c != '\n') {
          code[i] = ' ';
        }
        break;
      case kString:
      case kChar:
        if (c == '\\') {
          code[i] = ' ';
          if (i + 1 < text.size() && next != '\n') code[++i] = ' ';
        } else if (c == (state == kString ? '"' : '\'') || c == '\n') {
          state = kPlain;
        } else {
          code[i] = ' ';
        }
        break;
      case kRaw:
        if (text.substr(i, raw_end.size()) == raw_end) {
          i += raw_end.size() - 1;
          state = kPlain;
        } else if (c != '\n') {
          code[i] = ' ';
        }
        break;
    }
  }
  return code;
}

// The #include lines of `text`. `code` is the same text after CodeOf: it says whether a
// line is code at all, while the quoted path is read from the original.
std::vector<Include> IncludesOf(std::string_view text, std::string_view code) {
  std::vector<Include> includes;
  int line = 0;
  for (size_t start = 0; start < text.size();) {
    ++line;
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view blanked = code.substr(start, end - start);
    const std::string_view original = text.substr(start, end - start);
    start = end + 1;
    size_t at = blanked.find_first_not_of(" \t");
    if (at == std::string_view::npos || blanked[at] != '#') continue;
    at = blanked.find_first_not_of(" \t", at + 1);
    if (at == std::string_view::npos || !blanked.substr(at).starts_with("include")) continue;
    at = blanked.find_first_of("\"<", at + 7);
    if (at == std::string_view::npos) continue;
    const bool quoted = blanked[at] == '"';
    const size_t close = original.find(quoted ? '"' : '>', at + 1);
    if (close == std::string_view::npos) continue;
    includes.push_back({line, quoted, std::string(original.substr(at + 1, close - at - 1))});
  }
  return includes;
}

// C++ headers have no suffix; of C's, those that the C++ standard lists.
bool IsStandardHeader(std::string_view path) {
  if (path.find('/') != std::string_view::npos) return false;
  if (path.find('.') == std::string_view::npos) return true;
  constexpr const char* kC[] = {"assert.h", "errno.h",  "float.h",  "inttypes.h",
                                "limits.h", "math.h",   "stddef.h", "stdint.h",
                                "stdio.h",  "stdlib.h", "string.h", "time.h"};
  return Contains(kC, path);
}

std::string Join(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// What is wrong with an include of the machine's headers; empty if nothing is.
std::string JudgeSystemInclude(std::string_view path, const Include& include) {
  const std::string_view folder = FolderOf(path);
  if (folder == "include" && !IsStandardHeader(include.path)) {
    return "public headers may include the standard library and each other only";
  }
  if (StartsWithAny(include.path, kGrpc) && !path.starts_with("transport/grpc/")) {
    return "only transport/grpc may include gRPC";
  }
  if (include.path.starts_with("google/protobuf/") && (folder == "include" || folder == "base")) {
    return "protobuf begins at proto/ and tensor/";
  }
  return "";
}

// What is wrong with an include of ours by a plan; empty if nothing is.
std::string JudgeIncludeOfPlan(const Include& include, std::string_view to) {
  if (IsOpPlan(include.path)) return "";
  const bool shared = AllowedFolders(kPlansSee).count(std::string(to)) > 0;
  if (shared && include.path != kStep) return "";
  return "a plan may include what all kernels share and other plans, and not the context of a step";
}

// What is wrong with an include of ours; empty if nothing is.
std::string JudgeOwnInclude(std::string_view path, const Include& include) {
  const std::string_view from = FolderOf(path);
  const std::string_view to = FolderOf(include.path);
  const bool rooted = include.path.find('/') != std::string::npos &&
                      (FindLayer(to) != nullptr || Contains(kFree, to));
  if (!rooted || include.path.starts_with("include/")) {
    return "include our headers by their path from the root of the workspace (\"graph/graph.h\"), "
           "the public ones as \"millrace/...\"";
  }
  if (IsOpPlan(path)) return JudgeIncludeOfPlan(include, to);
  if (from == to || IsTestCode(path) || Contains(kFree, from)) return "";
  if (path.starts_with("kernels/") && IsOpPlan(include.path)) return "";
  if (IsTestCode(include.path)) return "code of the product may not include test code";
  std::set<std::string> allowed = AllowedFolders(from);
  if (Contains(kOuter, from) && !IsHeader(path)) {
    for (const char* seen : kSeenByImplementations) {
      allowed.merge(AllowedFolders(seen));
    }
  }
  if (allowed.count(std::string(to)) > 0) return "";
  for (const Door& door : kDoors) {
    if (from == door.folder && include.path == door.header) return "";
  }
  allowed.erase(std::string(from));
  return std::string(from) + " may not include " + std::string(to) +
         " (it may: " + (allowed.empty() ? "nothing of ours" : Join(allowed)) + ")";
}

// The word that ends right before `at`, with "a::b::" qualifications skipped; for a
// declaration or a definition that is (the end of) its type.
std::string_view TokenBefore(std::string_view code, size_t at) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto skip_space = [&] {
    while (at > 0 && std::isspace(static_cast<unsigned char>(code[at - 1])) != 0) --at;
  };
  skip_space();
  while (at >= 2 && code.substr(at - 2, 2) == "::") {
    at -= 2;
    while (at > 0 && is_word(code[at - 1])) --at;
    skip_space();
  }
  if (at == 0) return "";
  size_t start = at - 1;
  if (is_word(code[start])) {
    while (start > 0 && is_word(code[start - 1])) --start;
  } else if (start > 0 && code.substr(start - 1, 2) == "->") {
    --start;
  }
  return code.substr(start, at - start);
}

// Whether a name that follows `token` is being declared or defined, not used.
bool IsDeclaration(std::string_view token) {
  if (token.empty()) return false;
  if (token == "return" || token == "co_return" || token == "co_await" || token == "else" ||
      token == "do" || token == "case") {
    return false;
  }
  if (token == ">" || token == "&" || token == "*") return true;
  return std::isalnum(static_cast<unsigned char>(token[0])) != 0 || token[0] == '_';
}

struct Mention {
  std::string name;
  int line = 0;
  bool declares = false;
  bool indented = false;  // as members of a class are, and functions of a namespace are not
};

// Every RegisterX of `code`.
std::vector<Mention> RegistrationsIn(std::string_view code) {
  constexpr std::string_view kStem = "Register";
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  std::vector<Mention> mentions;
  int line = 1;
  size_t counted = 0;
  for (size_t at = code.find(kStem); at != std::string_view::npos; at = code.find(kStem, at)) {
    const size_t start = at;
    size_t end = at + kStem.size();
    while (end < code.size() && is_word(code[end])) ++end;
    at = end;
    if (start > 0 && is_word(code[start - 1])) continue;
    if (end == start + kStem.size() ||
        std::isupper(static_cast<unsigned char>(code[start + kStem.size()])) == 0) {
      continue;
    }
    line += static_cast<int>(std::count(code.begin() + counted, code.begin() + start, '\n'));
    counted = start;
    const size_t after = code.find_first_not_of(" \t\n", end);
    const bool called = after != std::string_view::npos && code[after] == '(';
    // "&Name" without parentheses takes an address; with them, & and * end a type.
    const std::string_view before = TokenBefore(code, start);
    const bool declares = called && IsDeclaration(before);
    const bool names_type = !called && (before == "class" || before == "struct" ||
                                        before == "using" || before == "enum");
    if (names_type) continue;
    const size_t newline = code.rfind('\n', start);
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    const bool indented = std::isspace(static_cast<unsigned char>(code[line_start])) != 0;
    mentions.push_back({std::string(code.substr(start, end - start)), line, declares, indented});
  }
  return mentions;
}

bool IsSource(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh";
}

}  // namespace

std::string ToString(const Violation& violation) {
  return violation.path + ":" + std::to_string(violation.line) + ": " + violation.message;
}

std::set<std::string> AllowedFolders(std::string_view folder) {
  std::set<std::string> allowed;
  const Layer* layer = FindLayer(folder);
  if (layer == nullptr) return allowed;
  // Everything may include the public headers, but for the messages, which know nobody.
  allowed.insert(layer->folder);
  if (folder != "proto") allowed.insert("include");
  for (const char* arrow : layer->arrows) {
    allowed.merge(AllowedFolders(arrow));
  }
  return allowed;
}

std::vector<Violation> CheckIncludes(const Tree& tree) {
  std::vector<Violation> violations;
  for (const auto& [path, text] : tree) {
    const std::string_view folder = FolderOf(path);
    if (path.find('/') == std::string::npos ||
        (FindLayer(folder) == nullptr && !Contains(kFree, folder))) {
      violations.push_back({path, 1, "this folder is not in the picture of the layers"});
      continue;
    }
    for (const Include& include : IncludesOf(text, CodeOf(text))) {
      const bool ours = include.quoted && !StartsWithAny(include.path, kLibraries);
      const std::string fault =
          ours ? JudgeOwnInclude(path, include) : JudgeSystemInclude(path, include);
      if (fault.empty()) continue;
      const char open = include.quoted ? '"' : '<';
      const char close = include.quoted ? '"' : '>';
      violations.push_back(
          {path, include.line, "#include " + (open + include.path + close) + ": " + fault});
    }
  }
  return violations;
}

std::vector<Violation> CheckRegistrations(const Tree& tree) {
  std::map<std::string, Violation> declared;
  std::set<std::string> used;
  for (const auto& [path, text] : tree) {
    if (IsTestCode(path)) continue;
    for (const Mention& mention : RegistrationsIn(CodeOf(text))) {
      if (!mention.declares) {
        used.insert(mention.name);
      } else if (IsHeader(path) && !mention.indented) {
        declared.insert(
            {mention.name, {path, mention.line, mention.name + " is declared and never called"}});
      }
    }
  }
  std::vector<Violation> violations;
  for (const auto& [name, violation] : declared) {
    if (used.count(name) == 0) violations.push_back(violation);
  }
  return violations;
}

std::vector<Violation> CheckTree(const Tree& tree) {
  std::vector<Violation> violations = CheckIncludes(tree);
  for (Violation& violation : CheckRegistrations(tree)) violations.push_back(std::move(violation));
  std::stable_sort(violations.begin(), violations.end(),
                   [](const Violation& a, const Violation& b) { return a.path < b.path; });
  return violations;
}

bool ReadTree(const std::string& root, Tree& tree, std::string& error) {
  std::error_code code;
  fs::recursive_directory_iterator at(root, code);
  for (; !code && at != fs::recursive_directory_iterator(); at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (at->is_directory()) {
      if (name.starts_with(".") || name == "third_party" || name.starts_with("bazel-")) {
        at.disable_recursion_pending();
      }
      continue;
    }
    if (!at->is_regular_file() || !IsSource(at->path())) continue;
    std::ifstream file(at->path(), std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    if (!file) {
      error = "cannot read " + at->path().string();
      return false;
    }
    tree[at->path().lexically_relative(root).generic_string()] = content.str();
  }
  if (code) {
    error = "cannot list " + root + ": " + code.message();
    return false;
  }
  return true;
}

}  // namespace millrace::layers
