// Data sets in another order.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

constexpr int64_t kInfinite = Dataset::kInfinite, kUnknown = Dataset::kUnknown;

// Elements out of a buffer that is kept full, each as likely as the others.
class ShuffleDataset : public Dataset {
 public:
  ShuffleDataset(DatasetPtr input, int64_t buffer, uint64_t seed, uint64_t seed2, bool reshuffle,
                 int64_t count)
      : Dataset(input->types(), input->blocks()),
        input_(std::move(input)),
        buffer_(buffer),
        seed_(seed),
        seed2_(seed2),
        reshuffle_(reshuffle),
        count_(count) {}
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    if (count_ == 1 || n < 0) return n;
    int64_t product;
    if (count_ < 0) return kInfinite;
    return __builtin_mul_overflow(n, count_, &product) ? kUnknown : product;
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    return DatasetIteratorPtr(new Iterator(RefPtr<const ShuffleDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(RefPtr<const ShuffleDataset> dataset)
        : dataset_(std::move(dataset)), left_(dataset_->count_) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      while (!done_ && static_cast<int64_t>(held_.size()) < dataset_->buffer_) {
        if (!walk_) {
          if (left_ == 0) {
            done_ = true;
            break;
          }
          MR_ASSIGN_OR_RETURN(walk_, dataset_->input_->NewIterator());
          if (held_.empty()) random_ = dataset_->NewRandom();
          any_ = false;
        }
        DatasetElement next;
        bool ended = false;
        MR_RETURN_IF_ERROR(walk_->Next(call, &next, &ended));
        if (!ended) {
          held_.push_back(std::move(next));
          any_ = true;
          continue;
        }
        walk_.reset();
        if (left_ > 0) --left_;
        if (!any_) done_ = true;
        if (!held_.empty()) break;  // an epoch ends before the next one begins
      }
      if (held_.empty()) {
        *end = true;
        return OkStatus();
      }
      const std::size_t at = (uint64_t{random_()[0]} * held_.size()) >> 32;
      std::swap(held_[at], held_.back());
      *element = std::move(held_.back());
      held_.pop_back();
      return OkStatus();
    }

   private:
    const RefPtr<const ShuffleDataset> dataset_;
    int64_t left_;
    DatasetIteratorPtr walk_;
    bool done_ = false, any_ = false;
    Philox random_;
    std::vector<DatasetElement> held_;
  };

  // The order of the next walk: another one each time, or always the same.
  Philox NewRandom() const {
    const uint64_t walk = reshuffle_ ? walks_.fetch_add(1, std::memory_order_relaxed) : 0;
    return Philox(seed_ + walk * 0x9e3779b97f4a7c15ull, seed2_);
  }

  const DatasetPtr input_;
  const int64_t buffer_;
  const uint64_t seed_, seed2_;
  const bool reshuffle_;
  const int64_t count_;
  mutable std::atomic<uint64_t> walks_{0};
};

// ShuffleDataset, ShuffleDatasetV3 and ShuffleAndRepeatDataset. The generator that V3 is given
// beside its seeds says nothing more: each walk of a data set has its own order anyway.
class ShuffleKernel : public DatasetKernel {
 public:
  explicit ShuffleKernel(KernelConstruction& c)
      : DatasetKernel(c),
        repeat_(c.def().name() == "ShuffleAndRepeatDataset"),
        reshuffle_(c.attr<bool>("reshuffle_each_iteration")) {}

 protected:
  StatusOr<RefPtr<Dataset>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(int64_t buffer, IntScalar(ctx.input(1), "buffer_size"));
    MR_ASSIGN_OR_RETURN(int64_t seed, IntScalar(ctx.input(2), "seed"));
    MR_ASSIGN_OR_RETURN(int64_t seed2, IntScalar(ctx.input(3), "seed2"));
    int64_t count = 1;
    if (repeat_) {
      MR_ASSIGN_OR_RETURN(count, IntScalar(ctx.input(4), "count"));
    }
    if (buffer == -1) buffer = INT64_MAX;  // all elements at once
    if (buffer <= 0) {
      return errors::InvalidArgument("buffer_size must be greater than zero or -1, got ", buffer);
    }
    if (seed == 0 && seed2 == 0) {
      seed = static_cast<int64_t>(RandomId());
      seed2 = static_cast<int64_t>(RandomId());
    }
    return RefPtr<Dataset>(
        MakeRef<ShuffleDataset>(std::move(input), buffer, seed, seed2, reshuffle_, count));
  }

 private:
  const bool repeat_, reshuffle_;
};

}  // namespace

void RegisterShuffleDatasets(KernelRegistry& r) {
  RegisterCpu<ShuffleKernel>(r, "ShuffleDataset");
  RegisterCpu<ShuffleKernel>(r, "ShuffleDatasetV3");
  RegisterCpu<ShuffleKernel>(r, "ShuffleAndRepeatDataset");
}

}  // namespace millrace
