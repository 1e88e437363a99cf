// SPDX-License-Identifier: Apache-2.0
// A part of a data set, drawn at random, and the rows of a sparse tensor.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/walk_seeds.h"

namespace millrace {
namespace {

// Each element with a probability; every walk draws alike.
class SamplingDataset : public DatasetValue {
 public:
  SamplingDataset(DatasetPtr input, float rate, uint64_t seed, uint64_t seed2)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        rate_(rate),
        seed_(seed),
        seed2_(seed2) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), rate_, Words(seed_, seed2_)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, float rate, Words draws)
        : walk_(std::move(walk)), rate_(rate), draws_(draws) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (;;) {
        element->clear();
        MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
        if (*end || Draw() < rate_) return OkStatus();
        if (call.cancellation != nullptr && call.cancellation->IsCancelled()) {
          return errors::Cancelled("the step was cancelled");
        }
      }
    }

   private:
    // In [0, 1): the fraction bits of a float in [1, 2), minus 1.
    float Draw() {
      return std::bit_cast<float>((uint32_t{127} << 23) | (draws_() & 0x7fffffu)) - 1.0f;
    }

    const DatasetWalkPtr walk_;
    const float rate_;
    Words draws_;
  };

  const DatasetPtr input_;
  const float rate_;
  const uint64_t seed_, seed2_;
};

class SamplingKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    if (ctx.input(1).rank() != 0) return errors::InvalidArgument("rate must be a scalar");
    const float rate = ctx.input(1).scalar<float>();
    MR_ASSIGN_OR_RETURN(const int64_t seed, IntScalar(ctx.input(2), "seed"));
    MR_ASSIGN_OR_RETURN(const int64_t seed2, IntScalar(ctx.input(3), "seed2"));
    const bool given = seed != 0 || seed2 != 0;
    return RefPtr<DatasetValue>(MakeRef<SamplingDataset>(
        std::move(input), rate, given ? static_cast<uint64_t>(seed) : RandomId(),
        given ? static_cast<uint64_t>(seed2) : RandomId()));
  }
};

// Each row of the first dimension as the indices, values and shape of a sparse tensor.
class SparseRowsDataset : public DatasetValue {
 public:
  SparseRowsDataset(Tensor indices, Tensor values, Tensor shape)
      : DatasetValue({kInt64, values.dtype(), kInt64}),
        indices_(std::move(indices)),
        values_(std::move(values)),
        shape_(std::move(shape)) {}
  int64_t cardinality() const override { return shape_.data<int64_t>()[0]; }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const SparseRowsDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(RefPtr<const SparseRowsDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      const SparseRowsDataset& d = *dataset_;
      if (row_ >= d.cardinality()) {
        *end = true;
        return OkStatus();
      }
      const int64_t rank = d.indices_.dim(1), begin = at_;
      const int64_t* const all = d.indices_.data<int64_t>();
      while (at_ < d.indices_.dim(0) && all[at_ * rank] == row_) ++at_;
      ++row_;
      const int64_t count = at_ - begin;
      MR_ASSIGN_OR_RETURN(Tensor indices,
                          Tensor::Allocate(call.allocator, kInt64, Shape({count, rank - 1})));
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(all + (begin + i) * rank + 1, rank - 1,
                    indices.data<int64_t>() + i * (rank - 1));
      }
      MR_ASSIGN_OR_RETURN(Tensor values,
                          Tensor::Allocate(call.allocator, d.values_.dtype(), Shape({count})));
      if (count > 0) CopyRange(d.values_, begin, &values, 0, count);
      MR_ASSIGN_OR_RETURN(Tensor shape, d.shape_.TrySlice(1, rank));
      *element = {std::move(indices), std::move(values), std::move(shape)};
      return OkStatus();
    }

   private:
    const RefPtr<const SparseRowsDataset> dataset_;
    int64_t row_ = 0, at_ = 0;  // the next row, and its first value if it has one
  };

  const Tensor indices_, values_, shape_;
};

class SparseRowsKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    const Tensor indices = ctx.locked_input(0), values = ctx.locked_input(1),
                 shape = ctx.locked_input(2);
    if (indices.rank() != 2) {
      return errors::InvalidArgument("Input indices must be a matrix. Got: ",
                                     indices.shape().DebugString());
    }
    if (values.rank() != 1) {
      return errors::InvalidArgument("Input values must be a vector. Got: ",
                                     values.shape().DebugString());
    }
    if (shape.rank() != 1) {
      return errors::InvalidArgument("Input shape must be a vector. Got: ",
                                     shape.shape().DebugString());
    }
    if (values.dim(0) != indices.dim(0)) {
      return errors::InvalidArgument("Number of values must match first dimension of indices. Got ",
                                     values.dim(0),
                                     " values, indices shape: ", indices.shape().DebugString());
    }
    if (shape.dim(0) != indices.dim(1)) {
      return errors::InvalidArgument(
          "Number of dimensions must match second dimension of indices. Got ", shape.dim(0),
          " dimensions, indices shape: ", indices.shape().DebugString());
    }
    if (shape.dim(0) == 0) {
      return errors::InvalidArgument("The shape argument requires at least one element.");
    }
    int64_t last = -1;
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      const int64_t row = indices.data<int64_t>()[i * indices.dim(1)];
      if (row < last) {
        return errors::Unimplemented(
            "The SparseTensor must be ordered in the batch dimension; "
            "handling arbitrarily ordered input is not currently supported.");
      }
      last = row;
    }
    MR_RETURN_IF_ERROR(ShapeFromTensor(shape, "dense_shape").status());
    return RefPtr<DatasetValue>(MakeRef<SparseRowsDataset>(indices, values, shape));
  }
};

}  // namespace

void RegisterSamplingDatasets(KernelRegistry& r) {
  RegisterCpu<SamplingKernel>(r, "SamplingDataset");
  RegisterCpu<SparseRowsKernel>(r, "SparseTensorSliceDataset");
}

}  // namespace millrace
