// SPDX-License-Identifier: Apache-2.0
// Encodings of one or two bytes for each character, as tables. The C library knows them; what it
// says is asked for once, so that reading a text is looking things up.
#ifndef KERNELS_TEXT_CODE_TABLE_H_
#define KERNELS_TEXT_CODE_TABLE_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace {

// Constant once it is made.
class CodeTable {
 public:
  // The table of an encoding: its name in lower case without spaces, '-' and '_'. It lives as long
  // as the process. Null for names that are not known here, and where the C library comes without
  // the encoding (its "gconv" modules are a package of their own on some systems).
  static const CodeTable* Find(std::string_view plain_name);

  struct Code {
    int32_t code;  // negative: there is no such character
    int bytes;     // that were looked at and belong to it
  };
  // The character at the front of a text that is not empty. Of a pair of bytes that is none, the
  // second stays if it could begin another character and end none, as in TensorFlow (ICU).
  Code First(std::string_view text) const;

 private:
  CodeTable() = default;
  bool Load(const char* library_name, bool has_pairs, bool has_ibm_controls);

  std::array<int32_t, 256> single_{};  // negative: none, or the first byte of two
  std::array<bool, 256> is_first_{};   // of two
  std::vector<int32_t> pairs_;         // by first byte less 0x80 and second byte; or empty
};

}  // namespace millrace

#endif  // KERNELS_TEXT_CODE_TABLE_H_
