// SPDX-License-Identifier: Apache-2.0
// The attributes of one node.
#ifndef OPS_ATTR_MAP_H_
#define OPS_ATTR_MAP_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/attr_value.h"
#include "millrace/status.h"

namespace millrace {

// A small map from name to value, sorted by name. Typed getters give InvalidArgument that
// names the attribute if it is missing or of another kind.
class AttrMap {
 public:
  using Entry = std::pair<std::string, AttrValue>;

  void Set(std::string_view name, AttrValue value);
  bool Erase(std::string_view name);
  // Null if absent.
  const AttrValue* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // T: std::string, int64_t, int32_t (range checked), float, bool, DataType, PartialShape,
  // Tensor, FunctionName, and std::vector of each (an empty list is any vector).
  template <typename T>
  StatusOr<T> Get(std::string_view name) const;
  template <typename T>
  T GetOr(std::string_view name, T fallback) const {
    if (!Has(name)) return fallback;
    StatusOr<T> value = Get<T>(name);
    return value.ok() ? *std::move(value) : fallback;
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace millrace

#endif  // OPS_ATTR_MAP_H_
