// SPDX-License-Identifier: Apache-2.0
// Hash maps keyed by text that can be searched with a std::string_view. The order of
// iteration is random: sort before printing anything that must be reproducible.
#ifndef BASE_STRING_MAP_H_
#define BASE_STRING_MAP_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"

namespace millrace {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return absl::HashOf(absl::string_view(text.data(), text.size()));
  }
};

template <typename Value>
using StringMap = absl::flat_hash_map<std::string, Value, TextHash, std::equal_to<>>;
using StringSet = absl::flat_hash_set<std::string, TextHash, std::equal_to<>>;

}  // namespace millrace

#endif  // BASE_STRING_MAP_H_
