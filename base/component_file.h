// SPDX-License-Identifier: Apache-2.0
// Shared libraries of ours that a program loads when it has a use for them.
#ifndef BASE_COMPONENT_FILE_H_
#define BASE_COMPONENT_FILE_H_

#include <string>
#include <string_view>

namespace millrace {

// The path of the component `name` ("libmillrace_jit.so"), whose place in the source tree, in
// Bazel's and in a bundle's is `folder` ("jit"): beside the program, in ../lib beside it, or in
// `folder` where that is one or two folders above the program. "" if it is in none of them.
std::string FindComponentFile(std::string_view name, std::string_view folder);

}  // namespace millrace

#endif  // BASE_COMPONENT_FILE_H_
