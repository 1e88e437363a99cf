// SPDX-License-Identifier: Apache-2.0
// Text in UTF-8 in lower or upper case, by Unicode's rules that hold in every language.
#ifndef KERNELS_TEXT_UNICODE_CASE_H_
#define KERNELS_TEXT_UNICODE_CASE_H_

#include <string>

namespace millrace {

// As TensorFlow has it, whose text ends at the first byte 0: what follows that is dropped. Bytes
// that are not UTF-8 become U+FFFD, one for each beginning of a character.
std::string LowerUtf8(const std::string& text);
std::string UpperUtf8(const std::string& text);

}  // namespace millrace

#endif  // KERNELS_TEXT_UNICODE_CASE_H_
