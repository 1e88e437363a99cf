// SPDX-License-Identifier: Apache-2.0
#include "placer/spec_pool.h"

#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Unlike ToString, keeps apart an id without a type.
std::string Key(const DeviceName& name) {
  std::string key;
  if (name.job) StrAppend(&key, "j", *name.job);
  if (name.replica) StrAppend(&key, "/r", *name.replica);
  if (name.task) StrAppend(&key, "/t", *name.task);
  if (name.type) StrAppend(&key, "/d", *name.type);
  if (name.id) StrAppend(&key, "/i", *name.id);
  return key;
}

uint64_t Pair(int a, int b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

SpecPool::SpecPool() { Intern(DeviceName()); }

StatusOr<int> SpecPool::Parse(std::string_view text) {
  if (text.empty()) return 0;
  const auto found = by_text_.find(text);
  if (found != by_text_.end()) return found->second;
  MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(text));
  const int spec = Intern(name);
  by_text_.emplace(text, spec);
  return spec;
}

int SpecPool::Intern(const DeviceName& name) {
  const auto [slot, added] = by_key_.try_emplace(Key(name), static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  return slot->second;
}

StatusOr<int> SpecPool::Merge(int a, int b, bool soft) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  auto& memo = merged_[soft ? 1 : 0];
  const auto found = memo.find(Pair(a, b));
  if (found != memo.end()) return found->second;
  DeviceName name = names_[a];
  MR_RETURN_IF_ERROR(name.MergeFrom(names_[b], soft));
  const int spec = Intern(name);
  memo.emplace(Pair(a, b), spec);
  return spec;
}

StatusOr<int> SpecPool::MergeOverride(int a, int b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  DeviceName name = names_[a];
  MR_RETURN_IF_ERROR(name.MergeOverride(names_[b]));
  return Intern(name);
}

int SpecPool::EnsureSpecification(int base, int more) {
  if (base == more || more == 0) return base;
  if (base == 0) return more;
  auto& memo = merged_[2];
  const auto found = memo.find(Pair(base, more));
  if (found != memo.end()) return found->second;
  DeviceName name = names_[base];
  name.EnsureSpecification(names_[more]);
  const int spec = Intern(name);
  memo.emplace(Pair(base, more), spec);
  return spec;
}

}  // namespace millrace
