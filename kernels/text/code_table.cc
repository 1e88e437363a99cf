// SPDX-License-Identifier: Apache-2.0
#include "kernels/text/code_table.h"

#include <iconv.h>

#include <cstddef>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace millrace {
namespace {

// Encodings in which the C library agrees with ICU, which TensorFlow asks, for every character that
// is not of private use.
struct Known {
  const char* plain;
  const char* library;
  bool has_pairs = false;
  bool has_ibm_controls = false;  // 1A, 1C and 7F have changed places in ICU's table
};
constexpr Known kKnown[] = {
    {"shiftjis", "CP932", true, true},
    {"sjis", "CP932", true, true},
    {"mskanji", "CP932", true, true},
    {"windows31j", "CP932", true, true},
    {"gbk", "CP936", true},
    {"cp936", "CP936", true},
    {"big5", "CP950", true},
    {"iso88592", "ISO-8859-2"},
    {"iso88595", "ISO-8859-5"},
    {"iso88597", "ISO-8859-7"},
    {"iso88599", "ISO-8859-9"},
    {"iso885915", "ISO-8859-15"},
    {"koi8r", "KOI8-R"},
    {"koi8u", "KOI8-U"},
    {"windows1250", "CP1250"},
    {"cp1250", "CP1250"},
    {"windows1251", "CP1251"},
    {"cp1251", "CP1251"},
    {"windows1252", "CP1252"},
    {"cp1252", "CP1252"},
    {"windows1254", "CP1254"},
    {"cp1254", "CP1254"},
    {"windows1256", "CP1256"},
    {"cp1256", "CP1256"},
};

// The only character that `bytes` are; negative if they are none, or more.
int32_t Convert(iconv_t converter, std::string_view bytes) {
  char in[2] = {};
  for (std::size_t i = 0; i < bytes.size(); ++i) in[i] = bytes[i];
  uint8_t out[16];
  char* from = in;
  char* to = reinterpret_cast<char*>(out);
  std::size_t from_left = bytes.size(), to_left = sizeof(out);
  iconv(converter, nullptr, nullptr, nullptr, nullptr);  // begin anew
  const std::size_t lost = iconv(converter, &from, &from_left, &to, &to_left);
  if (lost != 0 || from_left != 0 || to_left != sizeof(out) - 4) return -1;
  return out[0] | out[1] << 8 | out[2] << 16 | out[3] << 24;  // UTF-32LE
}

bool CouldBeSecond(uint8_t byte) { return byte >= 0x40 && byte <= 0xfe && byte != 0x7f; }

}  // namespace

bool CodeTable::Load(const char* library_name, bool has_pairs, bool has_ibm_controls) {
  const iconv_t converter = iconv_open("UTF-32LE", library_name);
  if (converter == reinterpret_cast<iconv_t>(-1)) return false;  // NOLINT: as it is documented
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    int32_t& code = single_[static_cast<std::size_t>(byte)];
    code = Convert(converter, {&text, 1});
    // Windows' tables leave a few control codes out, which are themselves in ICU's.
    if (code < 0 && !has_pairs && byte < 0xa0) code = byte;
  }
  if (has_pairs) {
    pairs_.assign(std::size_t{128} * 256, -1);
    for (int first = 0x80; first < 256; ++first) {
      if (single_[static_cast<std::size_t>(first)] >= 0) continue;
      for (int second = 0x40; second < 256; ++second) {
        const char text[2] = {static_cast<char>(first), static_cast<char>(second)};
        const int32_t code = Convert(converter, {text, 2});
        pairs_[static_cast<std::size_t>((first - 0x80) * 256 + second)] = code;
        if (code >= 0) is_first_[static_cast<std::size_t>(first)] = true;
      }
    }
  }
  if (has_ibm_controls) {
    single_[0x1a] = 0x1c;
    single_[0x1c] = 0x7f;
    single_[0x7f] = 0x1a;
  }
  iconv_close(converter);
  return true;
}

CodeTable::Code CodeTable::First(std::string_view text) const {
  const auto first = static_cast<uint8_t>(text[0]);
  if (!is_first_[first]) return {single_[first], 1};
  if (text.size() < 2) return {-1, 1};
  const auto second = static_cast<uint8_t>(text[1]);
  const int32_t code = pairs_[static_cast<std::size_t>((first - 0x80) * 256 + second)];
  const bool begins = single_[second] >= 0 || is_first_[second];
  return {code, code < 0 && begins && !CouldBeSecond(second) ? 1 : 2};
}

const CodeTable* CodeTable::Find(std::string_view plain_name) {
  for (const Known& known : kKnown) {
    if (plain_name != known.plain) continue;
    static Mutex mu;
    static auto* const tables = new std::map<std::string_view, std::unique_ptr<const CodeTable>>;
    MutexLock lock(&mu);
    std::unique_ptr<const CodeTable>& table = (*tables)[known.library];
    if (table == nullptr) {
      std::unique_ptr<CodeTable> made(new CodeTable);
      if (!made->Load(known.library, known.has_pairs, known.has_ibm_controls)) return nullptr;
      table = std::move(made);
    }
    return table.get();
  }
  return nullptr;
}

}  // namespace millrace
