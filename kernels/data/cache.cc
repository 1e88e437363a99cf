// SPDX-License-Identifier: Apache-2.0
// Data sets that keep the elements of their first whole walk in memory.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/kept.h"
#include "kernels/data/pipeline.h"

namespace millrace {
namespace {

// Elements of one whole walk, once there was one. Thread-safe.
class WholeWalk : public Resource {
 public:
  // Element `at`, or the end; false while there was no whole walk.
  bool Get(std::size_t at, DatasetElement* element, bool* end) const {
    MutexLock lock(&mu_);
    if (!complete_) return false;
    *end = at >= held_.size();
    if (!*end) *element = held_[at];
    return true;
  }
  // `begun`: what the stages before had kept when the walk began.
  void Keep(std::vector<DatasetElement> elements, std::vector<std::string> begun) {
    MutexLock lock(&mu_);
    if (complete_) return;
    held_ = std::move(elements);
    begun_ = std::move(begun);
    complete_ = true;
  }
  // Of a whole walk: how it began. Nothing if there was none.
  std::optional<std::vector<std::string>> begun() const {
    MutexLock lock(&mu_);
    if (!complete_) return wanted_;
    return begun_;
  }
  // Forgets the elements; `begun`: there was a walk that began like this, and it has to be made
  // again before elements are given.
  void Forget(std::optional<std::vector<std::string>> begun) {
    MutexLock lock(&mu_);
    if (complete_ && begun == begun_) return;
    held_.clear();
    complete_ = false;
    wanted_ = std::move(begun);
  }
  std::optional<std::vector<std::string>> wanted() const {
    MutexLock lock(&mu_);
    return complete_ ? std::nullopt : wanted_;
  }
  std::string DebugString() const override {
    MutexLock lock(&mu_);
    return StrCat("Cache of a data set, ", held_.size(), " elements");
  }

 private:
  mutable Mutex mu_;
  bool complete_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> begun_ ABSL_GUARDED_BY(mu_);
  std::optional<std::vector<std::string>> wanted_ ABSL_GUARDED_BY(mu_);
  std::vector<DatasetElement> held_ ABSL_GUARDED_BY(mu_);
};

// Keeps what the first whole walk gave in memory.
class CacheDataset : public DatasetValue, public KeepsState {
 public:
  CacheDataset(DatasetPtr input, RefPtr<WholeWalk> cache)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        cache_(std::move(cache)) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const CacheDataset>::Share(this)));
  }
  // Not the elements, but how the walk began that gave them.
  std::string SaveState() const override {
    const auto begun = cache_->begun();
    return begun ? "filled" + JoinStates(*begun) : "";
  }
  Status RestoreState(std::string_view state) const override {
    constexpr std::string_view kFilled = "filled";
    std::optional<std::vector<std::string>> begun;
    if (state.starts_with(kFilled)) {
      MR_ASSIGN_OR_RETURN(begun, SplitStates(state.substr(kFilled.size())));
    } else if (!state.empty()) {
      return errors::InvalidArgument("this is not what the cache of a data set keeps");
    }
    cache_->Forget(std::move(begun));
    return OkStatus();
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(RefPtr<const CacheDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      if (!walk_) MR_RETURN_IF_ERROR(dataset_->FillAgain(call));
      if (!walk_ && dataset_->cache_->Get(at_, element, end)) {
        if (!*end) ++at_;
        return OkStatus();
      }
      if (!walk_) {
        begun_ = SaveStates(*dataset_->input_);
        MR_ASSIGN_OR_RETURN(walk_, dataset_->input_->NewIterator());
      }
      MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
      if (!*end) {
        seen_.push_back(*element);
        return OkStatus();
      }
      at_ = SIZE_MAX;
      dataset_->cache_->Keep(std::move(seen_), std::move(begun_));
      walk_.reset();
      return OkStatus();
    }

   private:
    const RefPtr<const CacheDataset> dataset_;
    DatasetWalkPtr walk_;
    std::vector<DatasetElement> seen_;
    std::vector<std::string> begun_;
    std::size_t at_ = 0;
  };

  // The walk of an earlier process whose elements this one has to give.
  Status FillAgain(const DatasetCall& call) const {
    const std::optional<std::vector<std::string>> begun = cache_->wanted();
    if (!begun) return OkStatus();
    const std::vector<std::string> now = SaveStates(*input_);
    MR_RETURN_IF_ERROR(RestoreStates(*input_, *begun));
    MR_ASSIGN_OR_RETURN(const DatasetWalkPtr walk, input_->NewIterator());
    std::vector<DatasetElement> elements;
    for (bool end = false; !end;) {
      DatasetElement element;
      MR_RETURN_IF_ERROR(walk->Next(call, &element, &end));
      if (!end) elements.push_back(std::move(element));
    }
    cache_->Keep(std::move(elements), *begun);
    return RestoreStates(*input_, now);
  }

  const DatasetPtr input_;
  const RefPtr<WholeWalk> cache_;
};

class CacheKernel : public DatasetKernel {
 public:
  explicit CacheKernel(KernelConstruction& c)
      : DatasetKernel(c), continues_(c.attrs().GetOr<bool>(kContinues, false)) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    const Tensor& file = ctx.input(1);
    if (file.num_elements() != 1) return errors::InvalidArgument("filename must be a scalar");
    if (!file.scalar<std::string>().empty()) {
      return errors::Unimplemented("a cache in a file (", file.scalar<std::string>(),
                                   ") is not supported; with the filename '' it is in memory");
    }
    MR_ASSIGN_OR_RETURN(
        RefPtr<WholeWalk> cache,
        KeptBySession<WholeWalk>(ctx, continues_, name(), [] { return MakeRef<WholeWalk>(); }));
    return RefPtr<DatasetValue>(MakeRef<CacheDataset>(std::move(input), std::move(cache)));
  }

 private:
  const bool continues_;
};

}  // namespace

void RegisterCacheDatasets(KernelRegistry& r) {
  RegisterCpu<CacheKernel>(r, "CacheDataset");
  RegisterCpu<CacheKernel>(r, "CacheDatasetV2");
}

}  // namespace millrace
