// SPDX-License-Identifier: Apache-2.0
// Data sets whose elements are several elements of another, stacked, and the reverse.
#include "kernels/data/batch.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/pipeline.h"

namespace millrace {
namespace {

// How the elements of a batch are brought to one shape; absent: they must have one.
struct Padding {
  std::vector<PartialShape> shapes;  // unknown sizes: those of the largest element
  std::vector<Tensor> values;
};

// Copies the box `from` into the corner of row `row` of `to`, whose rows have shape `element`.
void CopyIntoCorner(const Tensor& from, const Shape& element, int64_t row, Tensor* to) {
  const int rank = element.rank();
  if (from.num_elements() == 0) return;
  if (rank == 0) return CopyRange(from, 0, to, row, 1);
  const int64_t run = from.dim(rank - 1);
  std::vector<int64_t> at(rank, 0);
  for (int64_t read = 0; read < from.num_elements(); read += run) {
    int64_t write = 0;
    for (int i = 0; i < rank; ++i) write = write * element.dim(i) + at[i];
    CopyRange(from, read, to, row * element.num_elements() + write, run);
    for (int i = rank - 2; i >= 0 && ++at[i] == from.dim(i); --i) at[i] = 0;
  }
}

// The shape of component `i` in the batch, without the batch's axis.
StatusOr<Shape> BatchedShape(std::span<const DatasetElement> rows, std::size_t i,
                             const Padding* padding) {
  const Shape& first = rows[0][i].shape();
  if (padding == nullptr) {
    for (const DatasetElement& row : rows) {
      if (row[i].shape() == first) continue;
      return errors::InvalidArgument("Cannot batch tensors with different shapes in component ", i,
                                     ". First element had shape ", first.DebugString(),
                                     " and element ", &row - rows.data(), " had shape ",
                                     row[i].shape().DebugString(), ".");
    }
    return first;
  }
  const PartialShape& wanted = padding->shapes[i];
  Dims dims(std::max(wanted.rank(), 0), 0);
  for (const DatasetElement& row : rows) {
    if (row[i].rank() != wanted.rank()) {
      return errors::InvalidArgument("All elements in a batch must have the same rank as the ",
                                     "padded shape for component", i, ": expected rank ",
                                     wanted.rank(), " but got element with rank ", row[i].rank());
    }
    for (int k = 0; k < wanted.rank(); ++k) {
      if (wanted.dim(k) >= 0 && row[i].dim(k) > wanted.dim(k)) {
        return errors::DataLoss("Attempted to pad to a smaller size than the input element.");
      }
      dims[k] = std::max({dims[k], row[i].dim(k), wanted.dim(k)});
    }
  }
  return MakeShape(dims);
}

Status Stack(const DatasetCall& call, std::span<const DatasetElement> rows, const Padding* padding,
             DatasetElement* out) {
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    MR_ASSIGN_OR_RETURN(const Shape element, BatchedShape(rows, i, padding));
    const DataType dtype = rows[0][i].dtype();
    Dims dims = {static_cast<int64_t>(rows.size())};
    dims.insert(dims.end(), element.dims().begin(), element.dims().end());
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(call.allocator, dtype, shape));
    if (padding == nullptr) {
      const int64_t n = element.num_elements();
      for (std::size_t r = 0; r < rows.size(); ++r) {
        CopyRange(rows[r][i], 0, &whole, static_cast<int64_t>(r) * n, n);
      }
      out->push_back(std::move(whole));
      continue;
    }
    for (int64_t k = 0; k < whole.num_elements(); ++k) {
      CopyRange(padding->values[i], 0, &whole, k, 1);
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      CopyIntoCorner(rows[r][i], element, static_cast<int64_t>(r), &whole);
    }
    out->push_back(std::move(whole));
  }
  return OkStatus();
}

class BatchDataset : public DatasetValue {
 public:
  BatchDataset(DatasetPtr input, int64_t size, bool drop, std::unique_ptr<Padding> padding)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        size_(size),
        drop_(drop),
        padding_(std::move(padding)) {}
  int64_t cardinality() const override {
    const int64_t n = input_->cardinality();
    return n < 0 ? n : n / size_ + (n % size_ != 0 && !drop_ ? 1 : 0);
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(RefPtr<const BatchDataset>::Share(this), std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk, public SkipsElements {
   public:
    Iterator(RefPtr<const BatchDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)) {}
    Status Skip(const DatasetCall& call, int64_t count, int64_t* skipped) override {
      for (const int64_t size = dataset_->size_; !ended_ && *skipped < count;) {
        int64_t rows = 0;
        MR_RETURN_IF_ERROR(SkipElements(*walk_, call, size, &rows));
        ended_ = rows < size;
        if (rows == size || (rows > 0 && !dataset_->drop_)) ++*skipped;
      }
      return OkStatus();
    }
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      int64_t filled = 0;
      const Status status = Fill(call, &filled);
      Status stacked;
      if (!status.ok() || filled == 0 || (dataset_->drop_ && filled < dataset_->size_)) {
        *end = status.ok();
      } else {
        stacked = Stack(call, {rows_.data(), static_cast<std::size_t>(filled)},
                        dataset_->padding_.get(), element);
      }
      for (DatasetElement& row : rows_) row.clear();
      return status.ok() ? stacked : status;
    }

   private:
    // The rows of the next batch, *filled of them, in vectors that have memory from those before.
    Status Fill(const DatasetCall& call, int64_t* filled) {
      while (!ended_ && *filled < dataset_->size_) {
        if (*filled == static_cast<int64_t>(rows_.size())) rows_.emplace_back();
        DatasetElement& row = rows_[static_cast<std::size_t>(*filled)];
        row.clear();  // also of what an exception has left
        MR_RETURN_IF_ERROR(walk_->Next(call, &row, &ended_));
        if (!ended_) ++*filled;
      }
      return OkStatus();
    }

    const RefPtr<const BatchDataset> dataset_;
    const DatasetWalkPtr walk_;
    std::vector<DatasetElement> rows_;  // all empty between two batches
    bool ended_ = false;
  };

  const DatasetPtr input_;
  const int64_t size_;
  const bool drop_;
  const std::unique_ptr<Padding> padding_;
};

StatusOr<bool> BoolScalar(const Tensor& t, const char* what) {
  if (t.dtype() == kBool && t.num_elements() == 1) return t.scalar<bool>();
  return errors::InvalidArgument(what, " must be a bool scalar");
}

// BatchDataset and PaddedBatchDataset with their V2, which may drop the rest.
class BatchKernel : public DatasetKernel {
 public:
  explicit BatchKernel(KernelConstruction& c)
      : DatasetKernel(c),
        padded_(c.def().name().starts_with("Padded")),
        // What is copied at a time by ParallelBatchDataset does not show.
        v2_(c.def().name().ends_with("V2") || c.def().name() == "ParallelBatchDataset"),
        components_(static_cast<int>(c.attrs().GetOr<int64_t>("N", 0))) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t size, IntScalar(ctx.input(1), "batch_size"));
    if (size <= 0) return errors::InvalidArgument("Batch size must be greater than zero.");
    bool drop = false;
    if (v2_) {
      MR_ASSIGN_OR_RETURN(drop, BoolScalar(ctx.input(ctx.num_inputs() - 1), "drop_remainder"));
    }
    std::unique_ptr<Padding> padding;
    if (padded_) {
      MR_ASSIGN_OR_RETURN(padding, ReadPadding(ctx, *input));
    }
    return RefPtr<DatasetValue>(
        MakeRef<BatchDataset>(std::move(input), size, drop, std::move(padding)));
  }

 private:
  StatusOr<std::unique_ptr<Padding>> ReadPadding(const KernelContext& ctx,
                                                 const DatasetValue& input) const {
    auto padding = std::make_unique<Padding>();
    if (static_cast<std::size_t>(components_) != input.types().size()) {
      return errors::InvalidArgument("Number of padded shapes (", components_,
                                     ") must match the number of components in the input ",
                                     "dataset's elements (", input.types().size(), ")");
    }
    for (int i = 0; i < components_; ++i) {
      MR_ASSIGN_OR_RETURN(Dims dims, IntVector(ctx.input(2 + i), "padded_shapes", true));
      for (int64_t& dim : dims) dim = std::max<int64_t>(dim, -1);
      padding->shapes.push_back(PartialShape(dims));
      const Tensor& value = ctx.input(2 + components_ + i);
      if (value.rank() != 0 || value.dtype() != input.types()[i]) {
        return errors::InvalidArgument("All padding values must be scalars of their component's ",
                                       "type; number ", i, " is ", value.DebugString(1));
      }
      padding->values.push_back(value);
    }
    return padding;
  }

  const bool padded_, v2_;
  const int components_;
};

// The rows of each element, one by one.
class UnbatchDataset : public DatasetValue {
 public:
  explicit UnbatchDataset(DatasetPtr input)
      : DatasetValue(input->types(), input->blocks()), input_(std::move(input)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(DatasetWalkPtr walk) : walk_(std::move(walk)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      while (batch_.empty() || at_ >= batch_[0].dim(0)) {
        batch_.clear();
        at_ = 0;
        MR_RETURN_IF_ERROR(walk_->Next(call, &batch_, end));
        if (*end) return OkStatus();
        for (const Tensor& t : batch_) {
          if (t.rank() >= 1 && t.dim(0) == batch_[0].dim(0)) continue;
          batch_.clear();
          return errors::InvalidArgument("Input element must have the same batch size in each ",
                                         "component");
        }
      }
      for (const Tensor& t : batch_) {
        MR_ASSIGN_OR_RETURN(Tensor row, CopyOfRow(call.allocator, t, at_));
        element->push_back(std::move(row));
      }
      ++at_;
      return OkStatus();
    }

   private:
    const DatasetWalkPtr walk_;
    DatasetElement batch_;
    int64_t at_ = 0;
  };

  const DatasetPtr input_;
};

class UnbatchKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    return RefPtr<DatasetValue>(MakeRef<UnbatchDataset>(std::move(input)));
  }
};

}  // namespace

RefPtr<DatasetValue> NewBatchDataset(DatasetPtr input, int64_t size, bool drop_remainder) {
  return MakeRef<BatchDataset>(std::move(input), size, drop_remainder, nullptr);
}

void RegisterBatchDatasets(KernelRegistry& r) {
  for (const char* op : {"BatchDataset", "BatchDatasetV2", "PaddedBatchDataset",
                         "PaddedBatchDatasetV2", "ParallelBatchDataset"}) {
    RegisterCpu<BatchKernel>(r, op);
  }
  RegisterCpu<UnbatchKernel>(r, "UnbatchDataset");
}

}  // namespace millrace
