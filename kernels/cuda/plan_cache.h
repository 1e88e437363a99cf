// SPDX-License-Identifier: Apache-2.0
// What libraries chose, by what they were asked.
#ifndef KERNELS_CUDA_PLAN_CACHE_H_
#define KERNELS_CUDA_PLAN_CACHE_H_

#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "millrace/status.h"

namespace millrace {

// Of all machines of the process: Key tells them apart. Thread-safe.
template <typename Key, typename Plan>
class LibraryPlanCache {
 public:
  using Shared = std::shared_ptr<const Plan>;

  // Null if there is none.
  Shared Find(const Key& key) {
    MutexLock lock(&mu_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? Shared() : found->second;
  }
  // The plan for `key`; made by `make` at the first time, and again after it has failed. Two
  // threads may make the same one at once; one of them is kept.
  StatusOr<Shared> Get(const Key& key, absl::FunctionRef<StatusOr<Shared>()> make) {
    if (Shared found = Find(key); found != nullptr) return found;
    StatusOr<Shared> made = make();
    if (!made.ok()) return made;
    MutexLock lock(&mu_);
    if (plans_.size() >= kMost) plans_.clear();  // shapes that never come back
    return plans_.try_emplace(key, *std::move(made)).first->second;
  }

 private:
  static constexpr std::size_t kMost = 10000;
  Mutex mu_;
  std::map<Key, Shared> plans_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_CUDA_PLAN_CACHE_H_
