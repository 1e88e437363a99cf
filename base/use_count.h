// SPDX-License-Identifier: Apache-2.0
// Counts what is under way, so that whoever ends it all can wait for the last of it.
#ifndef BASE_USE_COUNT_H_
#define BASE_USE_COUNT_H_

#include "base/mutex.h"

namespace millrace {

// Thread-safe. Lives until the last Leave has returned: often by being shared.
class UseCount {
 public:
  void Enter() {
    MutexLock lock(&mu_);
    ++count_;
  }
  void Leave() {
    MutexLock lock(&mu_);
    if (--count_ == 0) none_.SignalAll();
  }
  bool any() const {
    MutexLock lock(&mu_);
    return count_ > 0;
  }
  // Whatever is under way must be ending.
  void WaitForNone() {
    MutexLock lock(&mu_);
    while (count_ > 0) none_.Wait(&mu_);
  }

 private:
  mutable Mutex mu_;
  CondVar none_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // BASE_USE_COUNT_H_
