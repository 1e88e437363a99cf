// SPDX-License-Identifier: Apache-2.0
#include "base/interned_string.h"

#include <atomic>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/string_map.h"

namespace millrace {

struct InternedString::Rep {
  std::string text;
  std::atomic<int64_t> refs{1};  // goes from 1 to 0, and up, under the lock of the table only
};

struct InternedString::Table {
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return TextHash()(text); }
    size_t operator()(const Rep* rep) const { return TextHash()(rep->text); }
  };
  struct Equal {
    using is_transparent = void;
    static std::string_view Text(std::string_view text) { return text; }
    static std::string_view Text(const Rep* rep) { return rep->text; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Text(a) == Text(b);
    }
  };
  Mutex mu;
  absl::flat_hash_set<Rep*, Hash, Equal> reps ABSL_GUARDED_BY(mu);
};

InternedString::Table& InternedString::TheTable() {
  static Table* const table = new Table;  // outlives every static object
  return *table;
}

InternedString::InternedString(std::string_view text) {
  if (text.empty()) return;
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  const auto found = table.reps.find(text);
  if (found != table.reps.end()) {
    rep_ = *found;
    rep_->refs.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  rep_ = new Rep{std::string(text)};
  table.reps.insert(rep_);
}

void InternedString::Ref() {
  if (rep_ != nullptr) rep_->refs.fetch_add(1, std::memory_order_relaxed);
}

void InternedString::Unref() {
  int64_t refs = rep_->refs.load(std::memory_order_relaxed);
  while (refs > 1) {
    if (rep_->refs.compare_exchange_weak(refs, refs - 1, std::memory_order_release)) return;
  }
  Table& table = TheTable();
  MutexLock lock(&table.mu);
  if (rep_->refs.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  table.reps.erase(rep_);
  delete rep_;
}

const std::string& InternedString::str() const {
  static const std::string* const empty = new std::string;
  return rep_ == nullptr ? *empty : rep_->text;
}

}  // namespace millrace
