// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/iterator_position.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/data/pipeline.h"

namespace millrace {
namespace {

// What a saved position begins with; then the number of elements, whether it was the end, and the
// states of the stages at the begin of the walk and now.
constexpr char kFormat[] = "position 1";
constexpr int64_t kEntries = 5;

struct Parsed {
  int64_t given = 0;
  bool ended = false;
  std::vector<std::string> before, now;
};

StatusOr<Parsed> Parse(const Tensor& position) {
  Parsed parsed;
  if (position.dtype() != kString || position.rank() != 1 || position.dim(0) != kEntries ||
      position.data<std::string>()[0] != kFormat ||
      !ParseInt64(position.data<std::string>()[1], &parsed.given) || parsed.given < 0) {
    return errors::InvalidArgument("this is no position of an iterator: ", position.DebugString(3));
  }
  const std::string* entries = position.data<std::string>();
  parsed.ended = entries[2] == "end";
  MR_ASSIGN_OR_RETURN(parsed.before, SplitStates(entries[3]));
  MR_ASSIGN_OR_RETURN(parsed.now, SplitStates(entries[4]));
  return parsed;
}

class Ended : public DatasetWalk {
 public:
  Status Next(const DatasetCall&, DatasetElement*, bool* end) override {
    *end = true;
    return OkStatus();
  }
  bool Ready() override { return true; }
};

}  // namespace

class IteratorPosition::Counting : public DatasetWalk {
 public:
  Counting(DatasetWalkPtr walk, std::shared_ptr<Walk> counts)
      : walk_(std::move(walk)), counts_(std::move(counts)) {}
  Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
    MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
    if (*end) {
      counts_->ended = true;
    } else {
      ++counts_->given;
    }
    return OkStatus();
  }
  bool Ready() override { return walk_->Ready(); }

 private:
  const DatasetWalkPtr walk_;
  const std::shared_ptr<Walk> counts_;
};

class IteratorPosition::Watched : public DatasetValue {
 public:
  Watched(DatasetPtr dataset, RefPtr<IteratorPosition> position)
      : DatasetValue(dataset->types(), dataset->blocks()),
        dataset_(std::move(dataset)),
        position_(std::move(position)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    auto walk = std::make_shared<Walk>();
    walk->dataset = dataset_;
    walk->states = SaveStates(*dataset_);
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr elements, dataset_->NewIterator());
    position_->Set(walk);
    return DatasetWalkPtr(new Counting(std::move(elements), std::move(walk)));
  }
  int64_t cardinality() const override { return dataset_->cardinality(); }

 private:
  const DatasetPtr dataset_;
  const RefPtr<IteratorPosition> position_;
};

// Has one walk.
class IteratorPosition::Resumed : public DatasetValue {
 public:
  Resumed(DatasetWalkPtr elements, std::shared_ptr<Walk> walk, RefPtr<IteratorPosition> position)
      : DatasetValue(walk->dataset->types(), walk->dataset->blocks()),
        elements_(std::move(elements)),
        walk_(std::move(walk)),
        position_(std::move(position)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MutexLock lock(&mu_);
    if (elements_ == nullptr) return errors::Internal("a position is gone on from once");
    position_->Set(walk_);
    return DatasetWalkPtr(new Counting(std::move(elements_), walk_));
  }

 private:
  mutable Mutex mu_;
  mutable DatasetWalkPtr elements_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<Walk> walk_;
  const RefPtr<IteratorPosition> position_;
};

DatasetPtr IteratorPosition::Watch(DatasetPtr dataset) {
  return DatasetPtr(MakeRef<Watched>(std::move(dataset), RefPtr<IteratorPosition>::Share(this)));
}

StatusOr<std::shared_ptr<IteratorPosition::Walk>> IteratorPosition::current() const {
  MutexLock lock(&mu_);
  if (walk_ != nullptr) return walk_;
  return errors::FailedPrecondition(
      "the iterator has no position: run its initializer before, also to set one");
}

StatusOr<DatasetPtr> IteratorPosition::dataset() const {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Walk> walk, current());
  return walk->dataset;
}

StatusOr<Tensor> IteratorPosition::Save() const {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Walk> walk, current());
  Tensor position(kString, Shape({kEntries}));  // Bounded: a handful of texts.
  auto* entries = position.data<std::string>();
  entries[0] = kFormat;
  entries[1] = StrCat(walk->given.load());
  entries[2] = walk->ended ? "end" : "";
  entries[3] = JoinStates(walk->states);
  entries[4] = JoinStates(SaveStates(*walk->dataset));
  return position;
}

StatusOr<DatasetPtr> IteratorPosition::Restore(const DatasetCall& call, const Tensor& position) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Walk> last, current());
  MR_ASSIGN_OR_RETURN(Parsed saved, Parse(position));
  auto walk = std::make_shared<Walk>();
  walk->dataset = last->dataset;
  DatasetWalkPtr elements;
  if (saved.ended) {
    // Nothing has to be made again but what comes later.
    MR_RETURN_IF_ERROR(RestoreStates(*walk->dataset, saved.now));
    elements = std::make_unique<Ended>();
  } else {
    MR_RETURN_IF_ERROR(RestoreStates(*walk->dataset, saved.before));
    MR_ASSIGN_OR_RETURN(elements, walk->dataset->NewIterator());
    int64_t skipped = 0;
    MR_RETURN_IF_ERROR(SkipElements(*elements, call, saved.given, &skipped));
    if (skipped < saved.given) {
      return errors::DataLoss("the data set has ", skipped, " elements, and the position is one ",
                              "behind ", saved.given, ": the data are others than they were");
    }
  }
  walk->states = std::move(saved.before);
  walk->given = saved.given;
  walk->ended = saved.ended;
  return DatasetPtr(MakeRef<Resumed>(std::move(elements), std::move(walk),
                                     RefPtr<IteratorPosition>::Share(this)));
}

}  // namespace millrace
