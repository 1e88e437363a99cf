// SPDX-License-Identifier: Apache-2.0
// Telling values apart: the one rule of Unique and its relatives.
#ifndef KERNELS_COMMON_DISTINCT_H_
#define KERNELS_COMMON_DISTINCT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/string_map.h"
#include "kernels/common/dtype_dispatch.h"

namespace millrace {

// Element types whose values can be told apart.
using DistinctTypes = JoinTypes<NumberTypes, TypeList<bool, std::string>>;

// Numbers values in the order in which they first occur. They are equal if == says so: zeros of
// both signs are one value, and every NaN is another one. Not thread-safe.
template <typename T>
class Numbering {
 public:
  // `expected`: how many values will be added; room is made for some of them at once.
  explicit Numbering(int64_t expected = 0) {
    if constexpr (!std::is_same_v<T, std::string>) {
      numbers_.reserve(static_cast<std::size_t>(std::min(expected, int64_t{1} << 16)));
    }
  }

  struct Place {
    int64_t number;
    bool is_new;
  };

  Place Add(const T& value) {
    // A NaN would never be found again, so it is not kept: many of one hash are slow.
    if (!EqualsItself(value)) return {size_++, true};
    const auto [it, added] = numbers_.try_emplace(KeyOf(value), size_);
    size_ += added;
    return {it->second, added};
  }
  bool Contains(const T& value) const {
    return EqualsItself(value) && numbers_.contains(KeyOf(value));
  }
  // The number of different values so far.
  int64_t size() const { return size_; }

 private:
  static bool EqualsItself(const T& value) {
    if constexpr (kIsFloating<T> || kIsComplex<T>) {
      const auto x = static_cast<ComputeType<T>>(value);
      return x == x;
    }
    return true;
  }
  static auto KeyOf(const T& value) {
    if constexpr (kIsComplex<T>) {
      return std::pair(value.real(), value.imag());
    } else {
      return static_cast<ComputeType<T>>(value);
    }
  }
  using Key = decltype(KeyOf(std::declval<const T&>()));
  using Numbers = std::conditional_t<std::is_same_v<T, std::string>, StringMap<int64_t>,
                                     absl::flat_hash_map<Key, int64_t>>;

  Numbers numbers_;
  int64_t size_ = 0;
};

}  // namespace millrace

#endif  // KERNELS_COMMON_DISTINCT_H_
