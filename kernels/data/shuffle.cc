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

namespace millrace {
namespace {

constexpr int64_t kInfinite = DatasetValue::kInfinite, kUnknown = DatasetValue::kUnknown;

// Single words of a generator that gives four at a time.
class Words {
 public:
  Words() = default;
  Words(uint64_t seed, uint64_t seed2) : random_(seed, seed2) {}
  // Behind the first `drawn` of them.
  Words(uint64_t seed, uint64_t seed2, uint64_t drawn) : Words(seed, seed2) {
    const uint64_t size = block_.size();
    random_.Skip(drawn / size);
    for (uint64_t i = 0; i < drawn % size; ++i) (*this)();
  }
  uint32_t operator()() {
    if (used_ == block_.size()) {
      block_ = random_();
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  Philox random_;
  Philox::Result block_{};
  std::size_t used_ = std::tuple_size_v<Philox::Result>;
};

// The seeds of one walk after the other: drawn from a generator, or always the same.
// Thread-safe.
class WalkSeeds : public Resource {
 public:
  WalkSeeds(uint64_t seed, uint64_t seed2, bool reshuffle)
      : reshuffle_(reshuffle), seed_(seed), seed2_(seed2), draws_(seed, seed2) {}
  Words NewWalk() {
    MutexLock lock(&mu_);
    if (!reshuffle_) return Words(seed_, seed2_);
    const uint64_t seed = draws_();
    drawn_ += 2;
    return Words(seed, draws_());
  }
  std::string Save() const {
    MutexLock lock(&mu_);
    return StrCat(seed_, " ", seed2_, " ", drawn_);
  }
  Status Restore(std::string_view state) {
    uint64_t seed = 0, seed2 = 0, drawn = 0;
    const char* at = state.data();
    const char* const end = at + state.size();
    for (uint64_t* number : {&seed, &seed2, &drawn}) {
      if (at != end && *at == ' ') ++at;
      const auto [next, error] = std::from_chars(at, end, *number);
      if (error != std::errc()) {
        return errors::InvalidArgument("'", state, "' is not what a shuffled data set keeps");
      }
      at = next;
    }
    MutexLock lock(&mu_);
    seed_ = seed;
    seed2_ = seed2;
    drawn_ = drawn;
    draws_ = Words(seed, seed2, drawn);
    return OkStatus();
  }
  std::string DebugString() const override { return "Seeds of a shuffled data set"; }

 private:
  const bool reshuffle_;
  mutable Mutex mu_;
  uint64_t seed_ ABSL_GUARDED_BY(mu_), seed2_ ABSL_GUARDED_BY(mu_);
  uint64_t drawn_ ABSL_GUARDED_BY(mu_) = 0;  // words of `draws_`
  Words draws_ ABSL_GUARDED_BY(mu_);
};

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
      while (!epochs_.empty() && epochs_.front().empty()) epochs_.pop_front();
      if (epochs_.empty()) {
        *end = true;
        return OkStatus();
      }
      // The first one takes the place of the one that is given.
      std::deque<DatasetElement>& held = epochs_.front();
      DatasetElement& chosen = held[random_() % held.size()];
      *element = std::move(chosen);
      if (&chosen != &held.front()) chosen = std::move(held.front());
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
        DatasetElement next;
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
    std::deque<std::deque<DatasetElement>> epochs_;  // what is held of each
    int64_t num_held_ = 0;
  };

  const DatasetPtr input_;
  const int64_t buffer_;
  const RefPtr<WalkSeeds> seeds_;
  const int64_t count_;
};

// ShuffleDataset, ShuffleDatasetV3 and ShuffleAndRepeatDataset. The handle of a generator that V3
// is given beside its seeds names nothing.
class ShuffleKernel : public DatasetKernel {
 public:
  explicit ShuffleKernel(KernelConstruction& c)
      : DatasetKernel(c),
        repeat_(c.def().name() == "ShuffleAndRepeatDataset"),
        reshuffle_(c.attr<bool>("reshuffle_each_iteration")),
        continues_(c.attrs().GetOr<bool>(kContinues, false)) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(int64_t buffer, IntScalar(ctx.input(1), "buffer_size"));
    MR_ASSIGN_OR_RETURN(const int64_t seed, IntScalar(ctx.input(2), "seed"));
    MR_ASSIGN_OR_RETURN(const int64_t seed2, IntScalar(ctx.input(3), "seed2"));
    int64_t count = 1;
    if (repeat_) {
      MR_ASSIGN_OR_RETURN(count, IntScalar(ctx.input(4), "count"));
    }
    if (buffer == -1) buffer = INT64_MAX;  // all elements at once
    if (buffer <= 0) {
      return errors::InvalidArgument("buffer_size must be greater than zero or -1, got ", buffer);
    }
    const auto make = [&] {
      if (seed != 0 || seed2 != 0) {
        return MakeRef<WalkSeeds>(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2),
                                  reshuffle_);
      }
      return MakeRef<WalkSeeds>(RandomId(), RandomId(), reshuffle_);
    };
    MR_ASSIGN_OR_RETURN(
        RefPtr<WalkSeeds> seeds,
        KeptBySession<WalkSeeds>(ctx, continues_, StrCat(name(), " ", seed, " ", seed2), make));
    return RefPtr<DatasetValue>(
        MakeRef<ShuffleDataset>(std::move(input), buffer, std::move(seeds), count));
  }

 private:
  const bool repeat_, reshuffle_, continues_;
};

}  // namespace

// For transforms.cc.
bool IsShuffle(const DatasetValue& dataset) {
  return dynamic_cast<const ShuffleDataset*>(&StageItself(dataset)) != nullptr;
}

void RegisterShuffleDatasets(KernelRegistry& r) {
  RegisterCpu<ShuffleKernel>(r, "ShuffleDataset");
  RegisterCpu<ShuffleKernel>(r, "ShuffleDatasetV3");
  RegisterCpu<ShuffleKernel>(r, "ShuffleAndRepeatDataset");
}

}  // namespace millrace
