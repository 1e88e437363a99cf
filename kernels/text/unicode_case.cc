// SPDX-License-Identifier: Apache-2.0
#include "kernels/text/unicode_case.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/text/unicode_case_table.h"

namespace millrace {
namespace {

constexpr uint32_t kReplacement = 0xfffd, kSigma = 0x3a3, kSmallSigma = 0x3c3, kFinalSigma = 0x3c2;

// Takes one character off the front of `rest`, which is not empty. Of a sequence that breaks off,
// the bytes that could begin a character go together.
uint32_t TakeCharacter(std::string_view* rest) {
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>((*rest)[i]); };
  const uint8_t lead = byte(0);
  std::size_t taken = 1;
  uint32_t code = kReplacement;
  if (lead < 0x80) {
    code = lead;
  } else if (lead >= 0xc2 && lead <= 0xf4) {
    const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t value = lead & (0x7fu >> length);
    // The second byte excludes forms that are too long, surrogates, and what is beyond U+10FFFF.
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    while (taken < length && taken < rest->size() && byte(taken) >= low && byte(taken) <= high) {
      value = value << 6 | (byte(taken++) & 0x3fu);
      low = 0x80;
      high = 0xbf;
    }
    if (taken == length) code = value;
  }
  rest->remove_prefix(taken);
  return code;
}

void Append(uint32_t code, std::string* out) {
  const auto add = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

std::vector<uint32_t> Characters(const std::string& text) {
  std::string_view rest = std::string_view(text).substr(0, text.find('\0'));
  std::vector<uint32_t> codes;
  codes.reserve(rest.size());
  while (!rest.empty()) codes.push_back(TakeCharacter(&rest));
  return codes;
}

// The range that holds `code`, if there is one.
template <typename Range>
const Range* Find(std::span<const Range> ranges, uint32_t code) {
  const auto at =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](uint32_t value, const Range& range) { return value < range.first; });
  if (at == ranges.begin() || code > (at - 1)->last) return nullptr;
  return &*(at - 1);
}

void AppendChanged(std::span<const CaseRun> runs, std::span<const CaseText> texts, uint32_t code,
                   std::string* out) {
  const auto text =
      std::lower_bound(texts.begin(), texts.end(), code,
                       [](const CaseText& entry, uint32_t value) { return entry.from < value; });
  if (text != texts.end() && text->from == code) {
    out->append(text->to);
    return;
  }
  const CaseRun* const run = Find(runs, code);
  const bool changes = run != nullptr && (code - run->first) % run->step == 0;
  Append(changes ? static_cast<uint32_t>(static_cast<int64_t>(code) + run->delta) : code, out);
}

// True if the first letter in [begin, end) that counts has a case.
template <typename Iterator>
bool MeetsCased(Iterator begin, Iterator end) {
  const auto counts = [](uint32_t code) { return Find(PassedRanges(), code) == nullptr; };
  const Iterator met = std::find_if(begin, end, counts);
  return met != end && Find(CasedRanges(), *met) != nullptr;
}

}  // namespace

std::string LowerUtf8(const std::string& text) {
  const std::vector<uint32_t> codes = Characters(text);
  std::string out;
  out.reserve(text.size());
  for (auto at = codes.begin(); at != codes.end(); ++at) {
    if (*at != kSigma) {
      AppendChanged(LowerRuns(), LowerTexts(), *at, &out);
      continue;
    }
    // A sigma at the end of a word looks different.
    const bool ends_word = MeetsCased(std::make_reverse_iterator(at), codes.rend()) &&
                           !MeetsCased(at + 1, codes.end());
    Append(ends_word ? kFinalSigma : kSmallSigma, &out);
  }
  return out;
}

std::string UpperUtf8(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const uint32_t code : Characters(text)) {
    AppendChanged(UpperRuns(), UpperTexts(), code, &out);
  }
  return out;
}

}  // namespace millrace
