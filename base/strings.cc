// SPDX-License-Identifier: Apache-2.0
#include "base/strings.h"

#include <charconv>
#include <system_error>

namespace millrace {
namespace strings_internal {
namespace {

// Room for the longest number: a double in scientific form.
constexpr int kNumberRoom = 40;

template <typename T>
void AppendNumber(std::string* out, T value) {
  char text[kNumberRoom];
  const std::to_chars_result result = std::to_chars(text, text + sizeof(text), value);
  out->append(text, result.ptr);
}

}  // namespace

void Append(std::string* out, std::string_view v) { out->append(v); }
void Append(std::string* out, char v) { out->push_back(v); }
void Append(std::string* out, bool v) { out->append(v ? "true" : "false"); }
void Append(std::string* out, double v) { AppendNumber(out, v); }
void Append(std::string* out, float v) { AppendNumber(out, v); }
void AppendSigned(std::string* out, int64_t v) { AppendNumber(out, v); }
void AppendUnsigned(std::string* out, uint64_t v) { AppendNumber(out, v); }

}  // namespace strings_internal

namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

template <typename T, typename... Base>
bool ParseWhole(std::string_view text, T* value, Base... base) {
  T parsed{};
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, parsed, base...);
  if (result.ec != std::errc() || result.ptr != end) return false;
  *value = parsed;
  return true;
}

constexpr char kHexDigits[] = "0123456789abcdef";

}  // namespace

std::vector<std::string_view> StrSplit(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

bool ParseInt64(std::string_view text, int64_t* value) { return ParseWhole(text, value, 10); }

bool ParseUint64Hex(std::string_view text, uint64_t* value) { return ParseWhole(text, value, 16); }

bool ParseDouble(std::string_view text, double* value) { return ParseWhole(text, value); }

std::string Hex16(uint64_t value) {
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[i] = kHexDigits[value & 15];
  return out;
}

std::string CEscape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const unsigned byte = static_cast<unsigned char>(c);
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\\':
      case '"':
      case '\'':
        out += '\\';
        out += c;
        break;
      default:
        if (byte >= 0x20 && byte < 0x7f) {
          out += c;
        } else {
          // Octal: unlike \x it cannot swallow the digits that follow.
          out += '\\';
          out += static_cast<char>('0' + (byte >> 6));
          out += static_cast<char>('0' + ((byte >> 3) & 7));
          out += static_cast<char>('0' + (byte & 7));
        }
    }
  }
  return out;
}

std::string_view StripWhitespace(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace millrace
