// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/resolvers/rank_layout.h"
#include "millrace/cluster_resolver.h"

namespace millrace {
namespace {

// The commas outside brackets part a list.
StatusOr<std::vector<std::string_view>> SplitParts(std::string_view text) {
  std::vector<std::string_view> parts;
  bool within = false;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !within)) {
      if (i == start) return errors::InvalidArgument("an empty name at ", i, " of '", text, "'");
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (within == (text[i] == '[')) {
        return errors::InvalidArgument("a bracket without its other half at ", i, " of '", text,
                                       "'");
      }
      within = !within;
    }
  }
  if (within) return errors::InvalidArgument("'", text, "' ends within brackets");
  return parts;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// "07" or "1-3" within brackets; numbers keep the width of the first.
Status AddRange(std::string_view range, std::string_view prefix, std::string_view suffix,
                std::vector<std::string>* names) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  int64_t low = 0, high = 0;
  if (!IsNumber(first) || !IsNumber(last) || !ParseInt64(first, &low) || !ParseInt64(last, &high) ||
      high < low) {
    return errors::InvalidArgument("'", range, "' is not a number or a range of numbers");
  }
  if (high - low >= resolvers::kMostTasks - static_cast<int64_t>(names->size())) {
    return errors::InvalidArgument("it names more than ", resolvers::kMostTasks, " hosts");
  }
  for (int64_t number = low; number <= high; ++number) {
    const std::string digits = StrCat(number);
    const size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
    names->push_back(StrCat(prefix, std::string(zeros, '0'), digits, suffix));
  }
  return OkStatus();
}

Status AddNames(std::string_view part, std::vector<std::string>* names) {
  const size_t open = part.find('[');
  if (open == std::string_view::npos) {
    if (names->size() >= resolvers::kMostTasks) {
      return errors::InvalidArgument("it names more than ", resolvers::kMostTasks, " hosts");
    }
    names->emplace_back(part);
    return OkStatus();
  }
  const size_t close = part.find(']', open);
  const std::string_view suffix = part.substr(close + 1);
  if (suffix.find('[') != std::string_view::npos) {
    return errors::InvalidArgument("'", part, "' has more than one pair of brackets");
  }
  std::string_view ranges = part.substr(open + 1, close - open - 1);
  while (true) {
    const size_t comma = ranges.find(',');
    MR_RETURN_IF_ERROR(AddRange(ranges.substr(0, comma), part.substr(0, open), suffix, names));
    if (comma == std::string_view::npos) return OkStatus();
    ranges.remove_prefix(comma + 1);
  }
}

}  // namespace

StatusOr<std::vector<std::string>> ExpandHostList(std::string_view text) {
  std::vector<std::string> names;
  MR_ASSIGN_OR_RETURN(const std::vector<std::string_view> parts, SplitParts(text));
  for (const std::string_view part : parts) {
    const Status added = AddNames(part, &names);
    if (!added.ok()) {
      return errors::InvalidArgument("the list of hosts '", text.substr(0, 200),
                                     "' cannot be read: ", Message(added));
    }
  }
  return names;
}

}  // namespace millrace
