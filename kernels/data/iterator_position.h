// SPDX-License-Identifier: Apache-2.0
// Where an iterator stands, so that it can be taken there again. Of this folder alone.
#ifndef KERNELS_DATA_ITERATOR_POSITION_H_
#define KERNELS_DATA_ITERATOR_POSITION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/resource_manager.h"
#include "kernels/data/dataset.h"

namespace millrace {

// Lies beside an IteratorResource under its name. Thread-safe; a position that is saved while
// elements are asked for is some position of that time.
class IteratorPosition : public Resource {
 public:
  // The data set whose walk is counted: to be given to the iterator.
  DatasetPtr Watch(DatasetPtr dataset);
  // The data set that is walked. FailedPrecondition before the first walk.
  StatusOr<DatasetPtr> dataset() const;
  // A string vector. FailedPrecondition before the first walk.
  StatusOr<Tensor> Save() const;
  // A data set whose walk goes on from a saved position, in the data set that was watched last;
  // makes the elements before it. To be given to the iterator.
  StatusOr<DatasetPtr> Restore(const DatasetCall& call, const Tensor& position);

  std::string DebugString() const override { return "Position of an iterator"; }

 private:
  struct Walk {
    DatasetPtr dataset;
    std::vector<std::string> states;  // of its stages when it began
    std::atomic<int64_t> given{0};
    std::atomic<bool> ended{false};
  };
  class Counting;
  class Watched;
  class Resumed;

  void Set(std::shared_ptr<Walk> walk) {
    MutexLock lock(&mu_);
    walk_ = std::move(walk);
  }
  StatusOr<std::shared_ptr<Walk>> current() const;

  mutable Mutex mu_;
  std::shared_ptr<Walk> walk_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_DATA_ITERATOR_POSITION_H_
