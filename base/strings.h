// SPDX-License-Identifier: Apache-2.0
// Text helpers over standard string_views (absl's are another type here).
#ifndef BASE_STRINGS_H_
#define BASE_STRINGS_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

namespace strings_internal {
void Append(std::string* out, std::string_view v);
void Append(std::string* out, char v);
void Append(std::string* out, bool v);  // "true" / "false"
void Append(std::string* out,
            double v);  // shortest text that reads back as a float/double ("%g"-like)
void Append(std::string* out, float v);
void AppendSigned(std::string* out, int64_t v);
void AppendUnsigned(std::string* out, uint64_t v);
template <typename T>
  requires(std::signed_integral<T> && !std::same_as<T, char>)
void Append(std::string* out, T v) {
  AppendSigned(out, v);
}
template <typename T>
  requires(std::unsigned_integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>)
void Append(std::string* out, T v) {
  AppendUnsigned(out, v);
}
inline void Append(std::string* out, const char* v) { Append(out, std::string_view(v)); }
inline void Append(std::string* out, const std::string& v) { Append(out, std::string_view(v)); }
}  // namespace strings_internal

// Concatenates text, numbers and bools.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::string out;
  (strings_internal::Append(&out, args), ...);
  return out;
}
template <typename... Args>
void StrAppend(std::string* out, const Args&... args) {
  (strings_internal::Append(out, args), ...);
}

// Elements of any range of text or numbers, with `separator` between them.
template <typename Range>
std::string StrJoin(const Range& range, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : range) {
    if (!first) out.append(separator);
    first = false;
    strings_internal::Append(&out, item);
  }
  return out;
}

// Pieces between separators, empty ones included; one empty piece for empty text.
std::vector<std::string_view> StrSplit(std::string_view text, char separator);
// Whole text as a decimal number; false if it is anything else or does not fit.
bool ParseInt64(std::string_view text, int64_t* value);
bool ParseUint64Hex(std::string_view text, uint64_t* value);
bool ParseDouble(std::string_view text, double* value);
// 16 lower-case hexadecimal digits.
std::string Hex16(uint64_t value);
// Escapes backslash, quotes, newlines and bytes that are not printable, as in C.
std::string CEscape(std::string_view text);
std::string_view StripWhitespace(std::string_view text);

}  // namespace millrace

#endif  // BASE_STRINGS_H_
