// SPDX-License-Identifier: Apache-2.0
#include "planner/explanations.h"

#include <string_view>

#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::string_view kInGroup = "\n  in the group of ";

}  // namespace

StringMap<Explanation> Explain(const PlacementLog& log, bool chains) {
  const std::vector<PlacementLog::Decision> decisions = log.Decisions();
  StringMap<Explanation> explanations;
  for (const PlacementLog::Decision& d : decisions) {
    Explanation& known = explanations[d.node];
    known.rule = static_cast<int>(d.rule);
    known.why = d.why;
    known.requested = d.requested;
    known.origin = d.origin;
  }
  if (!chains) return explanations;
  // The text has the nodes in the order of the decisions; each begins a line, and only nodes do.
  const std::string text = log.ToText();
  const auto begins = [&](std::size_t i) {
    return i < decisions.size() ? StrCat("\n", decisions[i].node, " (", decisions[i].op, ")")
                                : std::string();
  };
  std::size_t at = 0;
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const std::string next = begins(i + 1);
    std::size_t end = next.empty() ? text.size() : text.find(next, at);
    end = end == std::string::npos || next.empty() ? text.size() : end + 1;
    explanations[decisions[i].node].chain = text.substr(at, end - at);
    at = end;
  }
  return explanations;
}

std::string GroupOf(const std::string& chain) {
  const std::size_t at = chain.find(kInGroup);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + kInGroup.size();
  return chain.substr(begin, chain.find('\n', begin) - begin);
}

}  // namespace millrace
