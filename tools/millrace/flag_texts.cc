// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/flag_texts.h"

#include <algorithm>

#include "base/strings.h"

namespace millrace {
namespace {

// The parser writes bounds with six places, and no bound as the largest number there is.
constexpr std::size_t kLongestNumber = 30;

std::string Short(std::string_view number) {
  const bool is_decimal = number.find('.') != std::string_view::npos &&
                          std::all_of(number.begin(), number.end(), [](char c) {
                            return (c >= '0' && c <= '9') || c == '.' || c == '-';
                          });
  if (!is_decimal) return std::string(number);
  while (number.ends_with('0')) number.remove_suffix(1);
  if (number.ends_with('.')) number.remove_suffix(1);
  return std::string(number);
}

// Takes what is before `mark` off, and the mark; false if there is none.
bool TakeUntil(std::string_view mark, std::string_view* text, std::string_view* before) {
  const std::size_t at = text->find(mark);
  if (at == std::string_view::npos) return false;
  *before = text->substr(0, at);
  text->remove_prefix(at + mark.size());
  return true;
}

}  // namespace

std::string FlagText(std::string_view complaint) {
  std::string_view flag, value, least, rest = complaint;
  if (TakeUntil(": Value ", &rest, &flag) && TakeUntil(" not in range ", &rest, &value) &&
      TakeUntil(" to ", &rest, &least)) {
    const std::string from = Short(least);
    std::string must_be = StrCat("from ", from, " to ", Short(rest));
    // Zero itself is refused where the least number is the smallest one above it.
    const bool is_zero = Short(value) == "0" || Short(value) == "-0";
    if (rest.size() > kLongestNumber) {
      must_be = StrCat(is_zero && from == "0" ? "above " : "at least ", from);
    }
    return StrCat(flag, " must be ", must_be, ", it is ", value);
  }
  rest = complaint;
  if (TakeUntil("Could not convert: ", &rest, &value) && value.empty() &&
      TakeUntil(" = ", &rest, &flag)) {
    return StrCat(flag, " must be a number, it is ", rest);
  }
  return std::string(complaint);
}

}  // namespace millrace
