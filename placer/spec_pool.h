// SPDX-License-Identifier: Apache-2.0
// The distinct device requests of a graph, each under a small number: a million nodes ask
// for a handful of things.
#ifndef PLACER_SPEC_POOL_H_
#define PLACER_SPEC_POOL_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/string_map.h"
#include "device/device_name.h"
#include "millrace/status.h"

namespace millrace {

// Number 0 is the empty request. Equal requests have equal numbers. Not synchronised.
class SpecPool {
 public:
  SpecPool();

  // InvalidArgument "Malformed device specification".
  StatusOr<int> Parse(std::string_view text);
  int Intern(const DeviceName& name);
  const DeviceName& name(int spec) const { return names_[spec]; }
  // For messages: "" for 0.
  std::string Text(int spec) const { return spec == 0 ? "" : names_[spec].ToString(); }

  // As DeviceName's functions of the same names; the errors are theirs.
  StatusOr<int> Merge(int a, int b, bool soft);
  StatusOr<int> MergeOverride(int a, int b);
  int EnsureSpecification(int base, int more);
  bool AreCompatible(int a, int b) const {
    return a == b || a == 0 || b == 0 || names_[a].IsCompatibleWith(names_[b]);
  }

 private:
  std::vector<DeviceName> names_;
  StringMap<int> by_text_;  // as users wrote them
  StringMap<int> by_key_;
  absl::flat_hash_map<uint64_t, int> merged_[3];  // results of strict, soft and ensured merges
};

}  // namespace millrace

#endif  // PLACER_SPEC_POOL_H_
