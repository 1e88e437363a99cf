// SPDX-License-Identifier: Apache-2.0
// Data sets as distribution strategies want them: batches of other sizes, a part for each worker.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/auto_shard.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

// The rows of the input's batches in batches of `sizes`, which take turns.
class RebatchDataset : public DatasetValue {
 public:
  RebatchDataset(DatasetPtr input, Dims sizes, bool drop, std::vector<PartialShape> shapes)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        sizes_(std::move(sizes)),
        drop_(drop),
        shapes_(std::move(shapes)) {}
  int64_t cardinality() const override {
    return input_->cardinality() == kInfinite ? kInfinite : kUnknown;
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(RefPtr<const RebatchDataset>::Share(this), std::move(walk)));
  }

 private:
  // Rows [begin, end) of a batch.
  struct Slice {
    DatasetElement batch;
    int64_t begin, end;
  };
  class Iterator : public DatasetWalk {
   public:
    Iterator(RefPtr<const RebatchDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      const int64_t wanted = dataset_->sizes_[turn_];
      std::vector<Slice> slices;
      int64_t rows = 0;
      while (rows < wanted && !ended_) {
        if (at_ >= size_) {
          MR_RETURN_IF_ERROR(Fetch(call));
          continue;
        }
        const int64_t take = std::min(wanted - rows, size_ - at_);
        slices.push_back({batch_, at_, at_ + take});
        at_ += take;
        rows += take;
      }
      turn_ = (turn_ + 1) % dataset_->sizes_.size();
      *end = rows < wanted && (rows == 0 || dataset_->drop_);
      return *end ? OkStatus() : Join(call, slices, rows, element);
    }

   private:
    Status Fetch(const DatasetCall& call) {
      at_ = size_ = 0;
      batch_.clear();
      MR_RETURN_IF_ERROR(walk_->Next(call, &batch_, &ended_));
      if (ended_) return OkStatus();
      for (const Tensor& t : batch_) {
        if (t.rank() >= 1 && t.dim(0) == batch_[0].dim(0)) continue;
        return errors::InvalidArgument(
            "Input element must have a non-scalar value in each component, and the same batch size "
            "in each: component ",
            &t - batch_.data(), " has shape ", t.shape().DebugString());
      }
      size_ = batch_[0].dim(0);
      return OkStatus();
    }
    Status Join(const DatasetCall& call, const std::vector<Slice>& slices, int64_t rows,
                DatasetElement* element) const {
      for (std::size_t i = 0; i < dataset_->types().size(); ++i) {
        MR_ASSIGN_OR_RETURN(Shape shape, RowsShape(slices, i, rows));
        MR_ASSIGN_OR_RETURN(Tensor joined,
                            Tensor::Allocate(call.allocator, dataset_->types()[i], shape));
        const int64_t width = rows == 0 ? 0 : shape.num_elements() / rows;
        int64_t to = 0;
        for (const Slice& slice : slices) {
          const int64_t count = (slice.end - slice.begin) * width;
          CopyRange(slice.batch[i], slice.begin * width, &joined, to, count);
          to += count;
        }
        element->push_back(std::move(joined));
      }
      return OkStatus();
    }
    // Of component `i` with that many rows.
    StatusOr<Shape> RowsShape(const std::vector<Slice>& slices, std::size_t i, int64_t rows) const {
      Shape shape;
      if (!slices.empty()) {
        shape = slices[0].batch[i].shape();
      } else if (!batch_.empty()) {
        shape = batch_[i].shape();
      } else {  // nothing was read yet, or nothing is left
        const PartialShape& declared = dataset_->shapes_[i];
        Dims dims;
        for (int d = 0; d < std::max(declared.rank(), 1); ++d) {
          dims.push_back(d < declared.rank() ? std::max<int64_t>(declared.dim(d), 0) : 0);
        }
        shape = Shape(dims);
      }
      for (const Slice& slice : slices) {
        Shape other = slice.batch[i].shape();
        other.SetDim(0, shape.dim(0));
        if (other == shape) continue;
        return errors::InvalidArgument("Cannot join rows of component ", i,
                                       ": batches have shapes ", shape.DebugString(), " and ",
                                       slice.batch[i].shape().DebugString());
      }
      shape.SetDim(0, rows);
      return shape;
    }

    const RefPtr<const RebatchDataset> dataset_;
    const DatasetWalkPtr walk_;
    DatasetElement batch_;
    int64_t at_ = 0, size_ = 0;  // the rows of `batch_` that are left: [at_, size_)
    std::size_t turn_ = 0;
    bool ended_ = false;
  };

  const DatasetPtr input_;
  const Dims sizes_;
  const bool drop_;
  const std::vector<PartialShape> shapes_;
};

// Each batch of the input in as many parts as there are replicas; the last ones may be empty.
class SplitBatchDataset : public DatasetValue {
 public:
  SplitBatchDataset(DatasetPtr input, int64_t parts)
      : DatasetValue(input->types(), input->blocks()), input_(std::move(input)), parts_(parts) {}
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    int64_t product;
    if (n < 0) return n;
    return __builtin_mul_overflow(n, parts_, &product) ? kUnknown : product;
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), parts_));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, int64_t parts) : walk_(std::move(walk)), parts_(parts) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      if (part_ == 0) {
        batch_.clear();
        MR_RETURN_IF_ERROR(walk_->Next(call, &batch_, end));
        if (*end) return OkStatus();
        for (const Tensor& t : batch_) {
          if (t.rank() > 0) continue;
          return errors::InvalidArgument(
              "Cannot rebatch dataset: All components must have at least one dimension. Perhaps "
              "your input dataset is not batched? Component ",
              &t - batch_.data(), " is scalar.");
        }
      }
      for (const Tensor& t : batch_) {
        const int64_t rows = t.dim(0), each = rows / parts_ + (rows % parts_ != 0 ? 1 : 0);
        const int64_t begin = each == 0 || part_ > rows / each ? rows : each * part_;
        MR_ASSIGN_OR_RETURN(Tensor slice, t.TrySlice(begin, std::min(rows, begin + each)));
        element->push_back(std::move(slice));
      }
      part_ = (part_ + 1) % parts_;
      return OkStatus();
    }

   private:
    const DatasetWalkPtr walk_;
    const int64_t parts_;
    DatasetElement batch_;
    int64_t part_ = 0;  // the next one
  };

  const DatasetPtr input_;
  const int64_t parts_;
};

class SplitBatchKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t parts, IntScalar(ctx.input(1), "num_replicas"));
    if (parts <= 0) {
      return errors::InvalidArgument("num_replicas must be greater than zero.");
    }
    return RefPtr<DatasetValue>(MakeRef<SplitBatchDataset>(std::move(input), parts));
  }
};

class RebatchKernel : public DatasetKernel {
 public:
  explicit RebatchKernel(KernelConstruction& c)
      : DatasetKernel(c), shapes_(c.attr<std::vector<PartialShape>>("output_shapes")) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    if (ctx.input(1).rank() > 1) {
      return errors::InvalidArgument("`batch_sizes` must be a scalar or a vector.");
    }
    MR_ASSIGN_OR_RETURN(Dims sizes, IntVector(ctx.input(1), "batch_sizes"));
    if (sizes.empty() ||
        std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n == 0; })) {
      return errors::InvalidArgument("batch_sizes of ", name(), " must name a size above 0");
    }
    for (const int64_t size : sizes) {
      if (size >= 0) continue;
      return errors::InvalidArgument("batch_sizes of ", name(), " has ", size,
                                     ": no size may be negative");
    }
    const Tensor& drop = ctx.input(2);
    if (drop.num_elements() != 1) {
      return errors::InvalidArgument("drop_remainder must be a bool scalar");
    }
    if (shapes_.size() != input->types().size()) {
      return errors::InvalidArgument("output_shapes of ", name(), " has ", shapes_.size(),
                                     " entries, the data set ", input->types().size(),
                                     " components");
    }
    return RefPtr<DatasetValue>(
        MakeRef<RebatchDataset>(std::move(input), std::move(sizes), drop.scalar<bool>(), shapes_));
  }

 private:
  const std::vector<PartialShape> shapes_;
};

class AutoShardKernel : public Kernel {
 public:
  explicit AutoShardKernel(KernelConstruction& c)
      : Kernel(c), policy_(c.attr<int64_t>("auto_shard_policy")) {
    if (policy_ < kShardOff || policy_ > kShardHint) {
      c.SetError(errors::InvalidArgument("auto_shard_policy is ", policy_,
                                         ", it must be -1 (off), ",
                                         "0 (auto), 1 (file), 2 (data) or 3 (hint)"));
    }
  }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [this, &ctx] { return Give(ctx); });
  }

 private:
  Status Give(KernelContext& ctx) const {
    MR_ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t workers, IntScalar(ctx.input(1), "num_workers"));
    MR_ASSIGN_OR_RETURN(const int64_t index, IntScalar(ctx.input(2), "index"));
    if (workers < 1) {
      return errors::InvalidArgument("num_workers should be greater than or equal to 1. Got ",
                                     workers);
    }
    if (index < 0 || index >= workers) {
      return errors::InvalidArgument("index should be >= 0 and < num_workers. Currently index: ",
                                     index, ", num_workers: ", workers);
    }
    if (workers == 1 || policy_ == kShardOff) {
      ctx.SetOutput(0, ctx.input(0));
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor shard, AutoShard(ctx, *input, {workers, index}, policy_));
    ctx.SetOutput(0, std::move(shard));
    return OkStatus();
  }

  const int64_t policy_;
};

}  // namespace

void RegisterDistributedDatasets(KernelRegistry& r) {
  RegisterCpu<SplitBatchKernel>(r, "RebatchDataset");
  RegisterCpu<RebatchKernel>(r, "RebatchDatasetV2");
  RegisterCpu<AutoShardKernel>(r, "AutoShardDataset");
}

}  // namespace millrace
