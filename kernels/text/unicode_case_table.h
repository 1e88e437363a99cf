// SPDX-License-Identifier: Apache-2.0
// Which characters change with their case, of Unicode 13. Every table is in ascending order.
#ifndef KERNELS_TEXT_UNICODE_CASE_TABLE_H_
#define KERNELS_TEXT_UNICODE_CASE_TABLE_H_

#include <cstdint>
#include <span>

namespace millrace {

// Each `step`-th character from `first` to `last` becomes the one `delta` after it.
struct CaseRun {
  uint32_t first, last, step;
  int32_t delta;
};
std::span<const CaseRun> LowerRuns();
std::span<const CaseRun> UpperRuns();

// A character that becomes several, in UTF-8.
struct CaseText {
  uint32_t from;
  const char* to;
};
std::span<const CaseText> LowerTexts();
std::span<const CaseText> UpperTexts();

struct CodeRange {
  uint32_t first, last;
};
// Letters that have a case, and characters that words go on behind: marks, apostrophes.
std::span<const CodeRange> CasedRanges();
std::span<const CodeRange> PassedRanges();

}  // namespace millrace

#endif  // KERNELS_TEXT_UNICODE_CASE_TABLE_H_
