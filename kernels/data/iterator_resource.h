// Where a program stands in a data set.
#ifndef KERNELS_DATA_ITERATOR_RESOURCE_H_
#define KERNELS_DATA_ITERATOR_RESOURCE_H_

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

  // From the beginning of `dataset`. A Next that is under way still ends on the old one.
  Status Start(DatasetPtr dataset) {
    if (dataset->types() != types_) {
      return errors::InvalidArgument("Number or types of components do not match between the ",
                                     "iterator and the data set that it is made from");
    }
    auto walk = std::make_shared<Walk>();
    walk->blocks = dataset->blocks();
    {
      MutexLock lock(&walk->mu);
      MR_ASSIGN_OR_RETURN(walk->iterator, dataset->NewIterator());
    }
    MutexLock lock(&mu_);
    walk_ = std::move(walk);
    return OkStatus();
  }

  Status Next(const DatasetCall& call, DatasetElement* element) {
    std::shared_ptr<Walk> walk;
    {
      MutexLock lock(&mu_);
      walk = walk_;
    }
    if (!walk) {
      return errors::FailedPrecondition(
          "GetNext() failed because the iterator has not been initialized. Ensure that you have "
          "run the initializer operation for this iterator before getting the next element.");
    }
    bool end = false;
    {
      MutexLock lock(&walk->mu);
      if (!walk->ended) MR_RETURN_IF_ERROR(walk->iterator->Next(call, element, &end));
      walk->ended |= end;
      end = walk->ended;
    }
    return end ? errors::OutOfRange("End of sequence") : OkStatus();
  }

  bool started() const {
    MutexLock lock(&mu_);
    return walk_ != nullptr;
  }
  // Next may wait for functions.
  bool blocks() const {
    MutexLock lock(&mu_);
    return walk_ != nullptr && walk_->blocks;
  }

  std::string DebugString() const override {
    return StrCat("Iterator over ", types_.size(), " components");
  }

 private:
  struct Walk {
    Mutex mu;
    bool ended = false, blocks = false;
    DatasetIteratorPtr iterator;
  };

  const std::vector<DataType> types_;
  mutable Mutex mu_;
  std::shared_ptr<Walk> walk_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_DATA_ITERATOR_RESOURCE_H_
