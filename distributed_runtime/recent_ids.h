// SPDX-License-Identifier: Apache-2.0
// Tells a request that was sent twice from one that is new.
#ifndef DISTRIBUTED_RUNTIME_RECENT_IDS_H_
#define DISTRIBUTED_RUNTIME_RECENT_IDS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "millrace/status.h"

namespace millrace {

// Remembers the last ids. Thread-safe.
class RecentIds {
 public:
  // Memory is taken as ids come in.
  explicit RecentIds(std::size_t capacity) : capacity_(capacity) {}

  // Aborted, naming the method, if the id was seen lately. 0 is never a duplicate.
  Status Track(int64_t id, std::string_view method);

 private:
  const std::size_t capacity_;
  Mutex mu_;
  absl::flat_hash_set<int64_t> ids_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> order_ ABSL_GUARDED_BY(mu_);  // a ring once it is full
  std::size_t oldest_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_RECENT_IDS_H_
