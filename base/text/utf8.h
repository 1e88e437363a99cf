// SPDX-License-Identifier: Apache-2.0
// Characters within text that may be anything.
#ifndef BASE_TEXT_UTF8_H_
#define BASE_TEXT_UTF8_H_

#include <cstddef>
#include <string_view>

namespace millrace {

// The bytes of the character of UTF-8 that `text`, which is not empty, begins with; 0 if it begins
// with none: overlong forms, halves of surrogate pairs and what lies beyond U+10FFFF are none.
std::size_t Utf8Length(std::string_view text);

}  // namespace millrace

#endif  // BASE_TEXT_UTF8_H_
