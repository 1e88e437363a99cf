// SPDX-License-Identifier: Apache-2.0
#include "graph/node_name.h"

#include <limits>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool MayStart(char c, bool internal) { return IsAlnum(c) || c == '.' || (internal && c == '_'); }

bool MayFollow(char c) { return IsAlnum(c) || c == '_' || c == '.' || c == '/' || c == '-'; }

// The K of "n:K": digits, no leading zero, within int32.
bool ParseIndex(std::string_view text, int* index) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
    if (value > std::numeric_limits<int>::max()) return false;
  }
  *index = static_cast<int>(value);
  return true;
}

}  // namespace

bool IsNodeName(std::string_view name, bool internal) {
  bool at_start = true;
  for (char c : name) {
    if (at_start) {
      if (!MayStart(c, internal)) return false;
      at_start = false;
    } else if (c == '>') {
      at_start = true;
    } else if (!MayFollow(c)) {
      return false;
    }
  }
  return !at_start;
}

StatusOr<TensorName> ParseTensorName(std::string_view text, bool internal) {
  TensorName parsed{text, 0};
  if (text.starts_with('^')) {
    parsed = {text.substr(1), -1};
  } else if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    parsed.node = text.substr(0, colon);
    if (!ParseIndex(text.substr(colon + 1), &parsed.index)) parsed.node = {};
  }
  if (!IsNodeName(parsed.node, internal)) {
    return errors::InvalidArgument("Illegal op input name '", text, "'");
  }
  return parsed;
}

std::string FormatTensorName(std::string_view node, int index) {
  if (index < 0) return StrCat("^", node);
  return index == 0 ? std::string(node) : StrCat(node, ":", index);
}

}  // namespace millrace
