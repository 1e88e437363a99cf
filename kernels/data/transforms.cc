// Data sets made from others, element by element: fewer, more, or in another order.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

constexpr int64_t kInfinite = Dataset::kInfinite, kUnknown = Dataset::kUnknown;

// Repeat, Take, Skip: a count, negative for all.
class CountedDataset : public Dataset {
 public:
  CountedDataset(DatasetPtr input, int64_t count)
      : Dataset(input->types(), input->blocks()), input_(std::move(input)), count_(count) {}

 protected:
  const DatasetPtr input_;
  const int64_t count_;
};

class RepeatDataset : public CountedDataset {
 public:
  using CountedDataset::CountedDataset;
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    if (count_ == 0 || n == 0) return 0;
    if (count_ < 0 || n == kInfinite) return kInfinite;
    int64_t product;
    if (n < 0 || __builtin_mul_overflow(n, count_, &product)) return kUnknown;
    return product;
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    return DatasetIteratorPtr(new Iterator(input_, count_));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(DatasetPtr input, int64_t count) : input_(std::move(input)), left_(count) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      while (left_ != 0) {
        const bool first = walk_ == nullptr;
        if (first) {
          MR_ASSIGN_OR_RETURN(walk_, input_->NewIterator());
        }
        bool ended = false;
        MR_RETURN_IF_ERROR(walk_->Next(call, element, &ended));
        if (!ended) return OkStatus();
        walk_.reset();
        if (first && left_ < 0) break;  // nothing, for ever
        if (left_ > 0) --left_;
      }
      left_ = 0;
      *end = true;
      return OkStatus();
    }

   private:
    const DatasetPtr input_;
    int64_t left_;
    DatasetIteratorPtr walk_;
  };
};

class TakeDataset : public CountedDataset {
 public:
  using CountedDataset::CountedDataset;
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    if (count_ < 0) return n;
    if (n == kUnknown) return kUnknown;
    return n == kInfinite ? count_ : std::min(n, count_);
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetIteratorPtr walk, input_->NewIterator());
    return DatasetIteratorPtr(new Iterator(std::move(walk), count_));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(DatasetIteratorPtr walk, int64_t count) : walk_(std::move(walk)), left_(count) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      *end = left_ == 0;
      if (*end) return OkStatus();
      MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
      if (left_ > 0) --left_;
      return OkStatus();
    }

   private:
    const DatasetIteratorPtr walk_;
    int64_t left_;
  };
};

class SkipDataset : public CountedDataset {
 public:
  using CountedDataset::CountedDataset;
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    if (count_ < 0) return 0;
    return n < 0 ? n : std::max<int64_t>(n - count_, 0);
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetIteratorPtr walk, input_->NewIterator());
    return DatasetIteratorPtr(new Iterator(std::move(walk), count_));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(DatasetIteratorPtr walk, int64_t count) : walk_(std::move(walk)), left_(count) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      *end = left_ < 0;  // everything is skipped
      while (!*end && left_ > 0) {
        DatasetElement skipped;
        MR_RETURN_IF_ERROR(walk_->Next(call, &skipped, end));
        --left_;
      }
      if (*end) {
        left_ = -1;
        return OkStatus();
      }
      return walk_->Next(call, element, end);
    }

   private:
    const DatasetIteratorPtr walk_;
    int64_t left_;
  };
};

// Every n-th element from the index-th on.
class ShardDataset : public Dataset {
 public:
  ShardDataset(DatasetPtr input, int64_t shards, int64_t index)
      : Dataset(input->types(), input->blocks()),
        input_(std::move(input)),
        shards_(shards),
        index_(index) {}
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    return n < 0 ? n : n / shards_ + (index_ < n % shards_ ? 1 : 0);
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetIteratorPtr walk, input_->NewIterator());
    return DatasetIteratorPtr(new Iterator(std::move(walk), shards_, index_));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(DatasetIteratorPtr walk, int64_t shards, int64_t skip)
        : walk_(std::move(walk)), shards_(shards), skip_(skip) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (; skip_ > 0; --skip_) {
        DatasetElement skipped;
        MR_RETURN_IF_ERROR(walk_->Next(call, &skipped, end));
        if (*end) return OkStatus();
      }
      skip_ = shards_ - 1;
      return walk_->Next(call, element, end);
    }

   private:
    const DatasetIteratorPtr walk_;
    const int64_t shards_;
    int64_t skip_;
  };

  const DatasetPtr input_;
  const int64_t shards_, index_;
};

std::vector<DataType> JoinedTypes(const std::vector<DatasetPtr>& inputs) {
  std::vector<DataType> types;
  for (const DatasetPtr& input : inputs) {
    types.insert(types.end(), input->types().begin(), input->types().end());
  }
  return types;
}

bool AnyBlocks(const std::vector<DatasetPtr>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const DatasetPtr& input) { return input->blocks(); });
}

class ZipDataset : public Dataset {
 public:
  explicit ZipDataset(std::vector<DatasetPtr> inputs)
      : Dataset(JoinedTypes(inputs), AnyBlocks(inputs)), inputs_(std::move(inputs)) {}
  int64_t cardinality() const override {
    int64_t least = kInfinite;
    for (const DatasetPtr& input : inputs_) {
      const int64_t n = input->cardinality();
      if (n == kUnknown) return kUnknown;
      if (n != kInfinite) least = least == kInfinite ? n : std::min(least, n);
    }
    return least;
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    std::vector<DatasetIteratorPtr> walks;
    for (const DatasetPtr& input : inputs_) {
      MR_ASSIGN_OR_RETURN(DatasetIteratorPtr walk, input->NewIterator());
      walks.push_back(std::move(walk));
    }
    return DatasetIteratorPtr(new Iterator(std::move(walks)));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(std::vector<DatasetIteratorPtr> walks) : walks_(std::move(walks)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      // All of them move on, so that an error in one does not shift the others.
      Status first;
      for (const DatasetIteratorPtr& walk : walks_) {
        DatasetElement part;
        bool ended = false;
        const Status status = walk->Next(call, &part, &ended);
        if (first.ok()) first = status;
        *end |= ended;
        if (*end) return OkStatus();
        element->insert(element->end(), part.begin(), part.end());
      }
      return first;
    }

   private:
    const std::vector<DatasetIteratorPtr> walks_;
  };

  const std::vector<DatasetPtr> inputs_;
};

class ConcatenateDataset : public Dataset {
 public:
  ConcatenateDataset(DatasetPtr first, DatasetPtr second)
      : Dataset(first->types(), first->blocks() || second->blocks()),
        inputs_{std::move(first), std::move(second)} {}
  int64_t cardinality() const override {
    const int64_t a = inputs_[0]->cardinality(), b = inputs_[1]->cardinality();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    return a == kUnknown || b == kUnknown ? kUnknown : a + b;
  }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    return DatasetIteratorPtr(new Iterator(RefPtr<const ConcatenateDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(RefPtr<const ConcatenateDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (; at_ < 2; ++at_) {
        if (!walk_) {
          MR_ASSIGN_OR_RETURN(walk_, dataset_->inputs_[at_]->NewIterator());
        }
        bool ended = false;
        MR_RETURN_IF_ERROR(walk_->Next(call, element, &ended));
        if (!ended) return OkStatus();
        walk_.reset();
      }
      *end = true;
      return OkStatus();
    }

   private:
    const RefPtr<const ConcatenateDataset> dataset_;
    int at_ = 0;
    DatasetIteratorPtr walk_;
  };

  const DatasetPtr inputs_[2];
};

// Keeps what the first whole walk gave in memory.
class CacheDataset : public Dataset {
 public:
  explicit CacheDataset(DatasetPtr input)
      : Dataset(input->types(), input->blocks()), input_(std::move(input)) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  StatusOr<DatasetIteratorPtr> NewIterator() const override {
    return DatasetIteratorPtr(new Iterator(RefPtr<const CacheDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(RefPtr<const CacheDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      if (!walk_) {
        MutexLock lock(&dataset_->mu_);
        if (dataset_->complete_) {
          *end = at_ >= dataset_->held_.size();
          if (!*end) *element = dataset_->held_[at_++];
          return OkStatus();
        }
      }
      if (!walk_) {
        MR_ASSIGN_OR_RETURN(walk_, dataset_->input_->NewIterator());
      }
      MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
      if (!*end) {
        seen_.push_back(*element);
        return OkStatus();
      }
      MutexLock lock(&dataset_->mu_);
      if (!dataset_->complete_) {
        dataset_->held_ = std::move(seen_);
        dataset_->complete_ = true;
      }
      at_ = dataset_->held_.size();
      walk_.reset();
      return OkStatus();
    }

   private:
    const RefPtr<const CacheDataset> dataset_;
    DatasetIteratorPtr walk_;
    std::vector<DatasetElement> seen_;
    std::size_t at_ = 0;
  };

  const DatasetPtr input_;
  mutable Mutex mu_;
  mutable bool complete_ ABSL_GUARDED_BY(mu_) = false;
  mutable std::vector<DatasetElement> held_ ABSL_GUARDED_BY(mu_);
};

// --- Kernels ----------------------------------------------------------------------------------

template <typename D>
class CountedKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<Dataset>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t count, IntScalar(ctx.input(1), "count"));
    return RefPtr<Dataset>(MakeRef<D>(std::move(input), count));
  }
};

class ShardKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<Dataset>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t shards, IntScalar(ctx.input(1), "num_shards"));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(2), "index"));
    if (shards <= 0) {
      return errors::InvalidArgument("Number of shards must be greater than zero (currently ",
                                     "num_shards = ", shards, ").");
    }
    if (index < 0 || index >= shards) {
      return errors::InvalidArgument("Index must be between 0 and ", shards - 1,
                                     " (currently index = ", index, ").");
    }
    return RefPtr<Dataset>(MakeRef<ShardDataset>(std::move(input), shards, index));
  }
};

class ZipKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<Dataset>> Make(KernelContext& ctx) override {
    std::vector<DatasetPtr> inputs;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, i));
      inputs.push_back(std::move(input));
    }
    return RefPtr<Dataset>(MakeRef<ZipDataset>(std::move(inputs)));
  }
};

class ConcatenateKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<Dataset>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr first, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(DatasetPtr second, InputDataset(ctx, 1));
    if (first->types() != second->types()) {
      return errors::InvalidArgument("input dataset and dataset to concatenate have different ",
                                     "output types");
    }
    return RefPtr<Dataset>(MakeRef<ConcatenateDataset>(std::move(first), std::move(second)));
  }
};

class CacheKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<Dataset>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    const Tensor& file = ctx.input(1);
    if (file.num_elements() != 1) return errors::InvalidArgument("filename must be a scalar");
    if (!file.scalar<std::string>().empty()) {
      return errors::Unimplemented("a cache in a file (", file.scalar<std::string>(),
                                   ") is not supported; with the filename '' it is in memory");
    }
    return RefPtr<Dataset>(MakeRef<CacheDataset>(std::move(input)));
  }
};

// Ops that say how a data set should run, not what it gives: options, models, rewriting.
class SameDatasetKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(InputDataset(ctx, 0).status());
    ctx.SetOutput(0, ctx.input(0));
    return OkStatus();
  }
};

// Marks how a data set is split among workers. One that is not split gives the same elements.
class RewriteKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(InputDataset(ctx, 0).status());
    const Tensor& name = ctx.input(1);
    if (name.num_elements() != 1 || name.data<std::string>()[0] != "replicate_on_split") {
      return errors::Unimplemented(
          "RewriteDataset of ", name.num_elements() == 1 ? name.data<std::string>()[0] : "several",
          ": the one rewrite that is known is replicate_on_split");
    }
    ctx.SetOutput(0, ctx.input(0));
    return OkStatus();
  }
};

// Handles that V2 and V3 ops want beside what they need: they name nothing.
class DummyHandleKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    Tensor handle(kResource, Shape());
    handle.data<ResourceHandle>()[0].device = ctx.device()->name();
    handle.data<ResourceHandle>()[0].name = def().name();
    ctx.SetOutput(0, std::move(handle));
    return OkStatus();
  }
};

class CardinalityKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(ctx, 0));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(input->cardinality()));
    return OkStatus();
  }
};

}  // namespace

void RegisterTransformDatasets(KernelRegistry& r) {
  RegisterCpu<CountedKernel<RepeatDataset>>(r, "RepeatDataset");
  RegisterCpu<CountedKernel<TakeDataset>>(r, "TakeDataset");
  RegisterCpu<CountedKernel<SkipDataset>>(r, "SkipDataset");
  RegisterCpu<ShardKernel>(r, "ShardDataset");
  RegisterCpu<ZipKernel>(r, "ZipDataset");
  RegisterCpu<ConcatenateKernel>(r, "ConcatenateDataset");
  RegisterCpu<CacheKernel>(r, "CacheDataset");
  RegisterCpu<CacheKernel>(r, "CacheDatasetV2");
  RegisterCpu<DummyHandleKernel>(r, "DummySeedGenerator");
  RegisterCpu<DummyHandleKernel>(r, "DummyMemoryCache");
  for (const char* op : {"OptionsDataset", "ModelDataset", "OptimizeDatasetV2"}) {
    RegisterCpu<SameDatasetKernel>(r, op);
  }
  RegisterCpu<RewriteKernel>(r, "RewriteDataset");
  RegisterCpu<CardinalityKernel>(r, "DatasetCardinality");
}

}  // namespace millrace
