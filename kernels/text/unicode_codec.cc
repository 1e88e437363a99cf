// SPDX-License-Identifier: Apache-2.0
#include "kernels/text/unicode_codec.h"

#include <initializer_list>
#include <utility>

#include "base/errors.h"

namespace millrace {
namespace {

constexpr int32_t kReplacement = 0xfffd;

bool IsSurrogate(uint32_t code) { return code >= 0xd800 && code < 0xe000; }

Character Malformed(std::size_t bytes) {
  return {kReplacement, static_cast<int>(bytes), /*malformed=*/true};
}

Character Well(uint32_t code, std::size_t bytes) {
  return {static_cast<int32_t>(code), static_cast<int>(bytes), /*malformed=*/false};
}

}  // namespace

StatusOr<TextEncoding> ParseTextEncoding(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == ' ') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const auto& [known, encoding] :
       std::initializer_list<std::pair<const char*, TextForm>>{{"utf8", TextForm::kUtf8},
                                                               {"utf16", TextForm::kUtf16},
                                                               {"utf16be", TextForm::kUtf16Be},
                                                               {"utf16le", TextForm::kUtf16Le},
                                                               {"utf32", TextForm::kUtf32},
                                                               {"utf32be", TextForm::kUtf32Be},
                                                               {"utf32le", TextForm::kUtf32Le},
                                                               {"usascii", TextForm::kAscii},
                                                               {"ascii", TextForm::kAscii},
                                                               {"iso88591", TextForm::kLatin1},
                                                               {"latin1", TextForm::kLatin1}}) {
    if (plain == known) return TextEncoding(encoding);
  }
  if (const CodeTable* const table = CodeTable::Find(plain)) return TextEncoding(table);
  return errors::InvalidArgument("Could not create converter for input encoding: ", name);
}

TextReader::TextReader(std::string_view text, TextEncoding encoding)
    : rest_(text), form_(encoding.form), table_(encoding.table) {
  const auto skip = [&](std::string_view mark, TextForm means) {
    if (!rest_.starts_with(mark)) return false;
    rest_.remove_prefix(mark.size());
    mark_ = static_cast<int>(mark.size());
    form_ = means;
    return true;
  };
  using namespace std::string_view_literals;
  if (encoding.form == TextForm::kUtf16 && !skip("\xfe\xff"sv, TextForm::kUtf16Be) &&
      !skip("\xff\xfe"sv, TextForm::kUtf16Le)) {
    form_ = TextForm::kUtf16Be;
  }
  if (encoding.form == TextForm::kUtf32 && !skip("\0\0\xfe\xff"sv, TextForm::kUtf32Be) &&
      !skip("\xff\xfe\0\0"sv, TextForm::kUtf32Le)) {
    form_ = TextForm::kUtf32Be;
  }
}

bool TextReader::Next(Character* next) {
  if (rest_.empty()) {
    // After a mark alone TensorFlow has U+FFFF: what ICU calls a character that is not there.
    *next = Well(0xffff, 0);
    next->bytes = std::exchange(mark_, 0);
    return next->bytes > 0;
  }
  *next = Take();
  rest_.remove_prefix(static_cast<std::size_t>(next->bytes));
  next->bytes += std::exchange(mark_, 0);
  return true;
}

Character TextReader::Take() const {
  switch (form_) {
    case TextForm::kUtf8:
      return TakeUtf8();
    case TextForm::kUtf16:
    case TextForm::kUtf16Be:
    case TextForm::kUtf16Le:
      return TakeUtf16();
    case TextForm::kUtf32:
    case TextForm::kUtf32Be:
    case TextForm::kUtf32Le:
      return TakeUtf32();
    case TextForm::kAscii:
      if (Byte(0) >= 0x80) return Malformed(1);
      break;
    case TextForm::kTable: {
      const CodeTable::Code first = table_->First(rest_);
      const auto bytes = static_cast<std::size_t>(first.bytes);
      return first.code < 0 ? Malformed(bytes) : Well(static_cast<uint32_t>(first.code), bytes);
    }
    case TextForm::kLatin1:
      break;
  }
  return Well(Byte(0), 1);
}

Character TextReader::TakeUtf8() const {
  const uint32_t lead = Byte(0);
  if (lead < 0x80) return Well(lead, 1);
  if (lead < 0xc2 || lead > 0xf4) return Malformed(1);
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code = lead & (0x7fu >> length);
  // The second byte excludes forms that are too long, surrogates, and what is beyond U+10FFFF.
  uint32_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint32_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  std::size_t taken = 1;
  while (taken < length && taken < rest_.size() && Byte(taken) >= low && Byte(taken) <= high) {
    code = code << 6 | (Byte(taken++) & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  return taken == length ? Well(code, length) : Malformed(taken);
}

uint32_t TextReader::Unit(std::size_t i, int size) const {
  const bool little = form_ == TextForm::kUtf16Le || form_ == TextForm::kUtf32Le;
  uint32_t unit = 0;
  for (int k = 0; k < size; ++k) {
    unit = unit << 8 | Byte(i + static_cast<std::size_t>(little ? size - 1 - k : k));
  }
  return unit;
}

Character TextReader::TakeUtf16() const {
  if (rest_.size() < 2) return Malformed(rest_.size());
  const uint32_t unit = Unit(0, 2);
  if (!IsSurrogate(unit)) return Well(unit, 2);
  if (unit >= 0xdc00) return Malformed(2);
  if (rest_.size() < 4) return Malformed(rest_.size());
  const uint32_t second = Unit(2, 2);
  if (second < 0xdc00 || second >= 0xe000) return Malformed(2);
  return Well(0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00), 4);
}

Character TextReader::TakeUtf32() const {
  if (rest_.size() < 4) return Malformed(rest_.size());
  const uint32_t code = Unit(0, 4);
  return code > 0x10ffff || IsSurrogate(code) ? Malformed(4) : Well(code, 4);
}

void AppendCharacter(int32_t signed_code, TextForm form, std::string* out) {
  auto code = static_cast<uint32_t>(signed_code);
  if (code > 0x10ffff || IsSurrogate(code)) code = static_cast<uint32_t>(kReplacement);
  const auto add = [&](uint32_t byte) { out->push_back(static_cast<char>(byte & 0xff)); };
  const auto add_unit = [&](uint32_t unit) {
    add(unit >> 8);
    add(unit);
  };
  if (form == TextForm::kUtf32Be) {
    add_unit(code >> 16);
    add_unit(code & 0xffff);
  } else if (form == TextForm::kUtf16Be) {
    if (code >= 0x10000) {
      add_unit(0xd800 + ((code - 0x10000) >> 10));
      code = 0xdc00 + ((code - 0x10000) & 0x3ff);
    }
    add_unit(code);
  } else {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static constexpr uint32_t kLeads[] = {0, 0xc0, 0xe0, 0xf0};
    add(kLeads[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; --i) add(0x80 | (code >> (6 * i) & 0x3f));
  }
}

}  // namespace millrace
