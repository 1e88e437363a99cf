// SPDX-License-Identifier: Apache-2.0
// What people are told of a flag whose value cannot be.
#ifndef TOOLS_MILLRACE_FLAG_TEXTS_H_
#define TOOLS_MILLRACE_FLAG_TEXTS_H_

#include <string>
#include <string_view>

namespace millrace {

// The complaint of the parser in one form for all flags: "--x must be from A to B, it is C",
// "--x must be at least A, it is C", "--x must be a number, it is C". Other complaints stay as they
// are.
std::string FlagText(std::string_view complaint);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_FLAG_TEXTS_H_
