// SPDX-License-Identifier: Apache-2.0
#include "base/wait.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace millrace {
namespace {

// Characters that no sentence has: before an encoded wait, and between its fields.
constexpr char kBegin = '\x1e';
constexpr char kBetween = '\x1f';

std::array<std::string Wait::*, 7> Texts() {
  return {&Wait::node, &Wait::op,   &Wait::device, &Wait::origin,
          &Wait::name, &Wait::peer, &Wait::text};
}

// Takes what stands before the next separator.
std::string_view NextField(std::string_view* rest) {
  const std::size_t end = std::min(rest->find(kBetween), rest->size());
  const std::string_view field = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return field;
}

int64_t Number(std::string_view text) {
  int64_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string EncodeWait(const Wait& wait) {
  std::string code(1, kBegin);
  code += std::to_string(static_cast<int>(wait.kind));
  code += kBetween;
  code += std::to_string(wait.since_nanos);
  for (const auto field : Texts()) {
    code += kBetween;
    // Names come from graphs, which may contain anything.
    for (const char c : wait.*field) code += c == kBegin || c == kBetween ? '?' : c;
  }
  return code;
}

Wait DecodeWait(std::string_view description) {
  Wait wait;
  if (description.empty() || description.front() != kBegin) {
    wait.text = description;
    return wait;
  }
  description.remove_prefix(1);
  const int64_t kind = Number(NextField(&description));
  if (kind >= 0 && kind <= static_cast<int64_t>(Wait::Kind::kTask)) {
    wait.kind = static_cast<Wait::Kind>(kind);
  }
  wait.since_nanos = Number(NextField(&description));
  for (const auto field : Texts()) wait.*field = NextField(&description);
  return wait;
}

}  // namespace millrace
