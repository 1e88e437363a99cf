// SPDX-License-Identifier: Apache-2.0
#include "model/builds.h"

#include <algorithm>

#include "base/strings.h"

namespace millrace::model {
namespace {

// "y was int64 [?] and is float [?,1]; sample_weight was none and is float [?]".
std::string Changes(const Builds::Signature& before, const Builds::Signature& now) {
  const auto find = [](const Builds::Signature& signature, const std::string& name) {
    const auto found = std::find_if(signature.begin(), signature.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    return found == signature.end() ? std::string("none") : found->second;
  };
  std::string changes;
  const auto add = [&](const std::string& name, const std::string& was, const std::string& is) {
    if (was != is) {
      StrAppend(&changes, changes.empty() ? "" : "; ", name, " was ", was, " and is ", is);
    }
  };
  for (const auto& [name, is] : now) add(name, find(before, name), is);
  for (const auto& [name, was] : before) {
    if (find(now, name) == "none") add(name, was, "none");
  }
  return changes;
}

std::string Times(int64_t n) { return n == 1 ? "once" : StrCat(n, " times"); }

}  // namespace

std::string Builds::Add(const std::string& kind, const Signature& signature) {
  Built& built = built_[kind];
  const int64_t same = ++built.of_signature[signature];
  ++built.times;
  std::string line;
  if (built.times > 1) {
    const std::string changes = Changes(built.last, signature);
    line = StrCat("the ", kind, " step is built again (", Times(built.times), " in all, ",
                  Times(same), " for these arguments): ",
                  changes.empty() ? "the arguments are those of the last time, and the model was "
                                    "compiled again"
                                  : changes,
                  ". Building takes the time of many steps, and what is built stays: give ",
                  "arguments of one type and shape, or the same data set, in every call");
  }
  built.last = signature;
  return line;
}

}  // namespace millrace::model
