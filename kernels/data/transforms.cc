// SPDX-License-Identifier: Apache-2.0
// Data sets made from others, element by element: fewer, more, or in another order.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/pipeline.h"

namespace millrace {

// Of shuffle.cc.
bool IsShuffle(const DatasetValue& dataset);

namespace {

constexpr int64_t kInfinite = DatasetValue::kInfinite, kUnknown = DatasetValue::kUnknown;

// Repeat, Take, Skip: a count, negative for all.
class CountedDataset : public DatasetValue {
 public:
  CountedDataset(DatasetPtr input, int64_t count)
      : DatasetValue(input->types(), input->blocks()), input_(std::move(input)), count_(count) {}

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
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(input_, count_));
  }

 private:
  class Iterator : public DatasetWalk, public SkipsElements {
   public:
    Iterator(DatasetPtr input, int64_t count) : input_(std::move(input)), left_(count) {}
    Status Skip(const DatasetCall& call, int64_t count, int64_t* skipped) override {
      while (left_ != 0 && *skipped < count) {
        const bool first = walk_ == nullptr;
        if (first) {
          MR_ASSIGN_OR_RETURN(walk_, input_->NewIterator());
        }
        int64_t some = 0;
        MR_RETURN_IF_ERROR(SkipElements(*walk_, call, count - *skipped, &some));
        *skipped += some;
        if (*skipped < count) MR_RETURN_IF_ERROR(EndOne(first && some == 0));
      }
      return OkStatus();
    }
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      while (left_ != 0) {
        const bool first = walk_ == nullptr;
        if (first) {
          MR_ASSIGN_OR_RETURN(walk_, input_->NewIterator());
        }
        bool ended = false;
        MR_RETURN_IF_ERROR(walk_->Next(call, element, &ended));
        if (!ended) return OkStatus();
        MR_RETURN_IF_ERROR(EndOne(first));
      }
      *end = true;
      return OkStatus();
    }

   private:
    Status EndOne(bool is_empty) {
      walk_.reset();
      if (is_empty && left_ < 0) left_ = 0;  // nothing, for ever
      return left_ > 0 && --left_ == 0 ? BeginOneMore() : OkStatus();
    }
    // As TensorFlow, where one more walk begins behind the last one: orders of shuffles before this
    // stage are those of later walks then. But a shuffle and a repeat are one op there.
    Status BeginOneMore() const {
      return IsShuffle(*input_) ? OkStatus() : input_->NewIterator().status();
    }

    const DatasetPtr input_;
    int64_t left_;
    DatasetWalkPtr walk_;
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
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), count_));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, int64_t count) : walk_(std::move(walk)), left_(count) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      *end = left_ == 0;
      if (*end) return OkStatus();
      MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
      if (left_ > 0) --left_;
      return OkStatus();
    }

   private:
    const DatasetWalkPtr walk_;
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
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), count_));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, int64_t count) : walk_(std::move(walk)), left_(count) {}
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
    const DatasetWalkPtr walk_;
    int64_t left_;
  };
};

// Every n-th element from the index-th on. `non_empty`: it is an error that a shard has none, of
// which whoever has an element before it hears.
class ShardDataset : public DatasetValue {
 public:
  ShardDataset(DatasetPtr input, int64_t shards, int64_t index, bool non_empty)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        shards_(shards),
        index_(index),
        non_empty_(non_empty) {}
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    return n < 0 ? n : n / shards_ + (index_ < n % shards_ ? 1 : 0);
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(RefPtr<const ShardDataset>::Share(this), std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(RefPtr<const ShardDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)), skip_(dataset_->index_) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      MR_RETURN_IF_ERROR(Skip(call, end));
      if (*end) return OkStatus();
      MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
      if (*end) return OkStatus();
      skip_ = dataset_->shards_ - 1;
      if (checked_ || !dataset_->non_empty_) return OkStatus();
      checked_ = true;
      skip_ = dataset_->shards_ - 1 - dataset_->index_;
      bool ended = false;
      MR_RETURN_IF_ERROR(Skip(call, &ended));
      skip_ = dataset_->index_;
      return ended ? dataset_->TooFew() : OkStatus();
    }

   private:
    Status Skip(const DatasetCall& call, bool* end) {
      for (; skip_ > 0; --skip_) {
        DatasetElement skipped;
        MR_RETURN_IF_ERROR(walk_->Next(call, &skipped, end));
        if (*end) return OkStatus();
      }
      return OkStatus();
    }

    const RefPtr<const ShardDataset> dataset_;
    const DatasetWalkPtr walk_;
    int64_t skip_;
    bool checked_ = false;
  };

  Status TooFew() const {
    return errors::InvalidArgument(
        "Could not apply FILE based sharding: the dataset only has ", index_ + 1,
        " file(s), which is not enough for the required ", shards_,
        " shards/workers. Deal out elements (auto shard policy DATA) or nothing (OFF), or split ",
        "the files into more, so that every worker has one");
  }

  const DatasetPtr input_;
  const int64_t shards_, index_;
  const bool non_empty_;
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

class ZipDataset : public DatasetValue {
 public:
  explicit ZipDataset(std::vector<DatasetPtr> inputs)
      : DatasetValue(JoinedTypes(inputs), AnyBlocks(inputs)), inputs_(std::move(inputs)) {}
  int64_t cardinality() const override {
    int64_t least = kInfinite;
    for (const DatasetPtr& input : inputs_) {
      const int64_t n = input->cardinality();
      if (n == kUnknown) return kUnknown;
      if (n != kInfinite) least = least == kInfinite ? n : std::min(least, n);
    }
    return least;
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    std::vector<DatasetWalkPtr> walks;
    for (const DatasetPtr& input : inputs_) {
      MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input->NewIterator());
      walks.push_back(std::move(walk));
    }
    return DatasetWalkPtr(new Iterator(std::move(walks)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(std::vector<DatasetWalkPtr> walks) : walks_(std::move(walks)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      // All of them move on, so that an error in one does not shift the others.
      Status first;
      for (const DatasetWalkPtr& walk : walks_) {
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
    const std::vector<DatasetWalkPtr> walks_;
  };

  const std::vector<DatasetPtr> inputs_;
};

class ConcatenateDataset : public DatasetValue {
 public:
  ConcatenateDataset(DatasetPtr first, DatasetPtr second)
      : DatasetValue(first->types(), first->blocks() || second->blocks()),
        inputs_{std::move(first), std::move(second)} {}
  int64_t cardinality() const override {
    const int64_t a = inputs_[0]->cardinality(), b = inputs_[1]->cardinality();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    int64_t sum;
    if (a == kUnknown || b == kUnknown || __builtin_add_overflow(a, b, &sum)) return kUnknown;
    return sum;
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const ConcatenateDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetWalk {
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
    DatasetWalkPtr walk_;
  };

  const DatasetPtr inputs_[2];
};

// --- Kernels ----------------------------------------------------------------------------------

template <typename D>
class CountedKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t count, IntScalar(ctx.input(1), "count"));
    return RefPtr<DatasetValue>(MakeRef<D>(std::move(input), count));
  }
};

class ShardKernel : public DatasetKernel {
 public:
  explicit ShardKernel(KernelConstruction& c)
      : DatasetKernel(c), non_empty_(c.attr<bool>("require_non_empty")) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
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
    return RefPtr<DatasetValue>(MakeRef<ShardDataset>(std::move(input), shards, index, non_empty_));
  }

 private:
  const bool non_empty_;
};

class ZipKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    std::vector<DatasetPtr> inputs;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, i));
      inputs.push_back(std::move(input));
    }
    return RefPtr<DatasetValue>(MakeRef<ZipDataset>(std::move(inputs)));
  }
};

class ConcatenateKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr first, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(DatasetPtr second, InputDataset(ctx, 1));
    if (first->types() != second->types()) {
      return errors::InvalidArgument("input dataset and dataset to concatenate have different ",
                                     "output types");
    }
    return RefPtr<DatasetValue>(MakeRef<ConcatenateDataset>(std::move(first), std::move(second)));
  }
};

// Ops that say how a data set should run, not what it gives: models, rewriting, threads.
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
  RegisterCacheDatasets(r);
  for (const char* op : {"ModelDataset", "OptimizeDatasetV2", "MaxIntraOpParallelismDataset",
                         "PrivateThreadPoolDataset"}) {
    RegisterCpu<SameDatasetKernel>(r, op);
  }
  RegisterCpu<RewriteKernel>(r, "RewriteDataset");
  RegisterCpu<CardinalityKernel>(r, "DatasetCardinality");
}

}  // namespace millrace
