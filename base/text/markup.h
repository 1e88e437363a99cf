// SPDX-License-Identifier: Apache-2.0
// Text within HTML and XML.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// `text` as it is written into an element or a quoted attribute, of HTML and of XML: the five
// characters with a meaning as entities, and '?' for bytes that XML does not take at all.
std::string MarkupText(std::string_view text);

}  // namespace millrace
