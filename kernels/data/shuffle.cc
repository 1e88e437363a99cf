// SPDX-License-Identifier: Apache-2.0
// Data sets in another order. For given seeds it is TensorFlow's.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/kept.h"
#include "kernels/data/pipeline.h"
#include "kernels/data/spare_elements.h"
#include "kernels/data/walk_seeds.h"

namespace millrace {
namespace {

constexpr int64_t kInfinite = DatasetValue::kInfinite, kUnknown = DatasetValue::kUnknown;

// Elements out of a buffer that is kept full, each as likely as the others. Of a repeated data set
// all elements of one epoch come before those of the next, which the buffer takes in meanwhile.
class ShuffleDataset : public DatasetValue, public KeepsState {
 public:
  ShuffleDataset(DatasetPtr input, int64_t buffer, RefPtr<WalkSeeds> seeds, int64_t count)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        buffer_(buffer),
        seeds_(std::move(seeds)),
        count_(count) {}
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    if (count_ == 1 || n < 0) return n;
    int64_t product;
    if (count_ < 0) return kInfinite;
    return __builtin_mul_overflow(n, count_, &product) ? kUnknown : product;
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const ShuffleDataset>::Share(this)));
  }
  std::string SaveState() const override { return seeds_->Save(); }
  Status RestoreState(std::string_view state) const override { return seeds_->Restore(state); }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(RefPtr<const ShuffleDataset> dataset)
        : dataset_(std::move(dataset)), left_(dataset_->count_) {
      random_ = dataset_->seeds_->NewWalk();
    }
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      MR_RETURN_IF_ERROR(Fill(call));
      if (num_held_ == 0) {
        *end = true;
        return OkStatus();
      }
      // Each epoch is drawn as a walk of its own would be.
      while (epochs_.front().empty()) {
        epochs_.pop_front();
        random_ = dataset_->seeds_->NewWalk();
      }
      // The first one takes the place of the one that is given, and the vector that came to be
      // filled stays here.
      RingBuffer<DatasetElement>& held = epochs_.front();
      DatasetElement& chosen = held[random_() % held.size()];
      element->clear();
      element->swap(chosen);
      if (&chosen != &held.front()) chosen.swap(held.front());
      spare_.PutBack(std::move(held.front()));
      held.pop_front();
      --num_held_;
      return OkStatus();
    }

   private:
    static constexpr std::size_t kMostEpochs = 3;  // in the buffer at a time

    Status Fill(const DatasetCall& call) {
      while (num_held_ < dataset_->buffer_) {
        if (!walk_) {
          if (left_ == 0 || (epochs_.size() >= kMostEpochs && num_held_ > 0)) break;
          MR_ASSIGN_OR_RETURN(walk_, dataset_->input_->NewIterator());
          epochs_.emplace_back();
          any_ = false;
        }
        DatasetElement next = spare_.Take();
        bool ended = false;
        MR_RETURN_IF_ERROR(walk_->Next(call, &next, &ended));
        if (!ended) {
          epochs_.back().push_back(std::move(next));
          ++num_held_;
          any_ = true;
          continue;
        }
        walk_.reset();
        if (left_ > 0) --left_;
        if (!any_) left_ = 0;  // nothing, however often
      }
      return OkStatus();
    }

    const RefPtr<const ShuffleDataset> dataset_;
    int64_t left_;  // epochs that have not ended
    DatasetWalkPtr walk_;
    bool any_ = false;
    Words random_;
    std::deque<RingBuffer<DatasetElement>> epochs_;  // what is held of each
    SpareElements spare_;
    int64_t num_held_ = 0;
  };

  const DatasetPtr input_;
  const int64_t buffer_;
  const RefPtr<WalkSeeds> seeds_;
  const int64_t count_;
};

// All forms of ShuffleDataset and ShuffleAndRepeatDataset. The handle that the later ones are given
// beside seeds may name nothing; ShuffleDatasetV2 has no other seeds than the handle's.
class ShuffleKernel : public DatasetKernel {
 public:
  explicit ShuffleKernel(KernelConstruction& c)
      : DatasetKernel(c),
        repeat_(c.def().name().starts_with("ShuffleAndRepeat")),
        has_seeds_(c.def().name() != "ShuffleDatasetV2"),
        reshuffle_(c.attrs().GetOr<bool>("reshuffle_each_iteration", true)),
        continues_(c.attrs().GetOr<bool>(kContinues, false)) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(int64_t buffer, IntScalar(ctx.input(1), "buffer_size"));
    int64_t count = 1;
    if (repeat_) {
      MR_ASSIGN_OR_RETURN(count, IntScalar(ctx.input(4), "count"));
    }
    if (buffer == -1) buffer = INT64_MAX;  // all elements at once
    if (buffer <= 0) {
      return errors::InvalidArgument("buffer_size must be greater than zero or -1, got ", buffer);
    }
    MR_ASSIGN_OR_RETURN(RefPtr<WalkSeeds> seeds, Seeds(ctx));
    return RefPtr<DatasetValue>(
        MakeRef<ShuffleDataset>(std::move(input), buffer, std::move(seeds), count));
  }

 private:
  StatusOr<RefPtr<WalkSeeds>> Seeds(KernelContext& ctx) const {
    if (!has_seeds_) return LookupHandle<WalkSeeds>(ctx, 2);
    MR_ASSIGN_OR_RETURN(const int64_t seed, IntScalar(ctx.input(2), "seed"));
    MR_ASSIGN_OR_RETURN(const int64_t seed2, IntScalar(ctx.input(3), "seed2"));
    const int handle = repeat_ ? 5 : 4;
    if (ctx.num_inputs() > handle) {
      if (RefPtr<WalkSeeds> given = SeedsOfInput(ctx, handle); given) return given;
    }
    return KeptBySession<WalkSeeds>(ctx, continues_, StrCat(name(), " ", seed, " ", seed2),
                                    [&] { return MakeWalkSeeds(seed, seed2, reshuffle_); });
  }

  const bool repeat_, has_seeds_, reshuffle_, continues_;
};

}  // namespace

// For transforms.cc.
bool IsShuffle(const DatasetValue& dataset) {
  return dynamic_cast<const ShuffleDataset*>(&StageItself(dataset)) != nullptr;
}

void RegisterShuffleDatasets(KernelRegistry& r) {
  RegisterCpu<ShuffleKernel>(r, "ShuffleDataset");
  RegisterCpu<ShuffleKernel>(r, "ShuffleDatasetV2");
  RegisterCpu<ShuffleKernel>(r, "ShuffleDatasetV3");
  RegisterCpu<ShuffleKernel>(r, "ShuffleAndRepeatDataset");
  RegisterCpu<ShuffleKernel>(r, "ShuffleAndRepeatDatasetV2");
}

}  // namespace millrace
