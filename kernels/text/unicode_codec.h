// SPDX-License-Identifier: Apache-2.0
// Characters in bytes, by encoding.
#ifndef KERNELS_TEXT_UNICODE_CODEC_H_
#define KERNELS_TEXT_UNICODE_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/text/code_table.h"
#include "millrace/status.h"

namespace millrace {

enum class TextForm {
  kUtf8,
  kUtf16,  // as a mark at the beginning says, else big-endian
  kUtf16Be,
  kUtf16Le,
  kUtf32,
  kUtf32Be,
  kUtf32Le,
  kAscii,
  kLatin1,
  kTable,
};

struct TextEncoding {
  TextEncoding(TextForm form) : form(form) {}  // NOLINT: most need no more
  explicit TextEncoding(const CodeTable* table) : form(TextForm::kTable), table(table) {}

  TextForm form;
  const CodeTable* table = nullptr;  // of kTable
};

// The encoding of a name in which case, spaces, '-' and '_' do not matter. InvalidArgument
// "Could not create converter for input encoding: NAME" for others.
StatusOr<TextEncoding> ParseTextEncoding(std::string_view name);

// One character, and the bytes that it took.
struct Character {
  int32_t code = 0;
  int bytes = 0;
  bool malformed = false;  // and `code` is U+FFFD
};

// Characters from the front of a text, one after the other. Of a sequence that breaks off, the
// bytes that could begin a character go together.
class TextReader {
 public:
  TextReader(std::string_view text, TextEncoding encoding);
  // False at the end.
  bool Next(Character* next);

 private:
  Character Take() const;
  Character TakeUtf8() const;
  Character TakeUtf16() const;
  Character TakeUtf32() const;
  uint32_t Byte(std::size_t i) const { return static_cast<uint8_t>(rest_[i]); }
  uint32_t Unit(std::size_t i, int size) const;

  std::string_view rest_;
  TextForm form_;
  const CodeTable* const table_;
  int mark_ = 0;  // bytes of a mark that was skipped: the first character's
};

// `code` is a scalar value: below 0x110000, and no half of a surrogate pair; what is none is
// written as U+FFFD. Only UTF-8, UTF-16BE and UTF-32BE are written.
void AppendCharacter(int32_t code, TextForm form, std::string* out);

}  // namespace millrace

#endif  // KERNELS_TEXT_UNICODE_CODEC_H_
