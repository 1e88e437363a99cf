// SPDX-License-Identifier: Apache-2.0
#include "ops/op_registry.h"

#include <unistd.h>

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/op_def_check.h"

namespace millrace {
namespace {

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown host";
  return name;
}

// Edits (insert, delete, replace) from a to b.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

Status OpRegistry::Register(OpInfo info) {
  MR_RETURN_IF_ERROR(CheckOpDef(info.def));
  const std::string name = info.def.name();
  auto [it, inserted] = ops_.try_emplace(name);
  if (!inserted) return errors::AlreadyExists("op '", name, "' is registered twice");
  it->second = std::make_unique<OpInfo>(std::move(info));
  return OkStatus();
}

const OpInfo* OpRegistry::Find(std::string_view name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : it->second.get();
}

StatusOr<const OpInfo*> OpRegistry::Lookup(std::string_view name) const {
  if (const OpInfo* info = Find(name)) return info;
  std::string message =
      StrCat("Op type not registered '", name, "' in binary running on ", HostName(), ".");
  // A name far too long is no misspelling, and comparing it would be slow.
  if (name.size() <= 64) {
    const OpInfo* nearest = nullptr;
    std::size_t best = std::max<std::size_t>(1, name.size() / 3) + 1;
    for (const OpInfo* info : SortedOps()) {
      const std::size_t distance = EditDistance(name, info->def.name());
      if (distance < best) {
        best = distance;
        nearest = info;
      }
    }
    if (nearest != nullptr) StrAppend(&message, " Did you mean '", nearest->def.name(), "'?");
  }
  return errors::NotFound(message);
}

std::vector<const OpInfo*> OpRegistry::SortedOps() const {
  std::vector<const OpInfo*> sorted;
  sorted.reserve(ops_.size());
  for (const auto& [name, info] : ops_) sorted.push_back(info.get());
  std::sort(sorted.begin(), sorted.end(),
            [](const OpInfo* a, const OpInfo* b) { return a->def.name() < b->def.name(); });
  return sorted;
}

}  // namespace millrace
