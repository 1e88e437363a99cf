// SPDX-License-Identifier: Apache-2.0
// The rules of who may include whom, and the check of a source tree against them.
// Run by tools/check_layers; docs/architecture.md draws the same picture.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::layers {

// Source text by path, relative to the root of the workspace ("graph/graph.cc").
using Tree = std::map<std::string, std::string>;

struct Violation {
  std::string path;
  int line = 0;  // 1-based
  std::string message;
};

// "path:line: message", as compilers print it.
std::string ToString(const Violation& violation);

// The folders whose headers files of `folder` may include, itself among them; the
// arrows of the picture, followed to their ends. Empty for an unknown folder.
std::set<std::string> AllowedFolders(std::string_view folder);

// Every #include of every file that breaks a rule:
//  - a folder that the includer's folder has no arrow to (tests, benchmarks and fuzzers
//    beside the code, and tools/, tests/ and bench/, may include anything);
//  - a quoted path that does not start at the root of the workspace;
//  - include/millrace: anything but the standard library, Abseil and itself;
//  - <grpc/...> and <grpcpp/...> outside transport/grpc;
//  - <google/protobuf/...> below tensor/, where only proto/ knows it.
std::vector<Violation> CheckIncludes(const Tree& tree);

// Every RegisterX function (not method) that a header declares and no code of the product calls or
// lists: such a family of ops or kernels would be missing without a word. A test's call
// does not count.
std::vector<Violation> CheckRegistrations(const Tree& tree);

// Both checks, in the order of the paths.
std::vector<Violation> CheckTree(const Tree& tree);

// Reads the sources (.h, .cc, .cu, .cuh) under `root`, without hidden folders, Bazel's
// links and third_party. Returns false, with the reason in `error`, when a folder or a
// file cannot be read.
bool ReadTree(const std::string& root, Tree& tree, std::string& error);

}  // namespace millrace::layers
