// SPDX-License-Identifier: Apache-2.0
// Where a program stands in a data set.
#ifndef KERNELS_DATA_ITERATOR_RESOURCE_H_
#define KERNELS_DATA_ITERATOR_RESOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/resource_manager.h"
#include "kernels/data/dataset.h"

namespace millrace {

// Thread-safe: calls of Next come one after another.
class IteratorResource : public Resource {
 public:
  explicit IteratorResource(std::vector<DataType> types) : types_(std::move(types)) {}

  const std::vector<DataType>& types() const { return types_; }

  // From the beginning of `dataset`. A Next that is under way still ends on the old one. `timed` is
  // what an op has made of it, if that is another one.
  Status Start(DatasetPtr dataset, DatasetPtr timed = nullptr);
  // The next element; waits for it, and for calls that came before. OutOfRange at the end,
  // FailedPrecondition before Start, Cancelled if the call's step ends first.
  Status Next(const DatasetCall& call, DatasetElement* element);
  // The same if it does not need to wait; false, and nothing has happened, if it would.
  bool TryNext(const DatasetCall& call, DatasetElement* element, Status* status);

  // True for the OutOfRange of a sequence that has ended, false for one of something within it.
  static bool IsEnd(const Status& status);

  bool started() const {
    MutexLock lock(&mu_);
    return walk_ != nullptr;
  }

  std::string DebugString() const override {
    return StrCat("Iterator over ", types_.size(), " components");
  }

 private:
  struct Walk {
    bool blocks = false;
    Mutex mu;
    CondVar idle;
    bool busy ABSL_GUARDED_BY(mu) = false;  // somebody uses what follows
    bool ended = false;
    DatasetWalkPtr iterator;
    DatasetPtr dataset;
    int64_t elements = 0, next_look = 64;  // at how the time is spent
  };
  std::shared_ptr<Walk> walk() const {
    MutexLock lock(&mu_);
    return walk_;
  }
  static Status NotStarted();
  // By whoever made the walk busy.
  Status Step(Walk* walk, const DatasetCall& call, DatasetElement* element);
  // Says once where the time goes if the program waits for its input.
  void Look(Walk* walk);

  const std::vector<DataType> types_;
  mutable Mutex mu_;
  std::shared_ptr<Walk> walk_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> said_{false};
};

}  // namespace millrace

#endif  // KERNELS_DATA_ITERATOR_RESOURCE_H_
